//! Error numbers and their names.

use foldspace::Error;
use foldspace_linux::Errno;

#[test]
fn errors_have_linuxs_names_and_numbers() {
    // asm-generic/errno-base.h and errno.h.
    for (errno, number, name) in [
        (Errno::EPERM, 1, "EPERM"),
        (Errno::ENOENT, 2, "ENOENT"),
        (Errno::ENOMEM, 12, "ENOMEM"),
        (Errno::EINVAL, 22, "EINVAL"),
        (Errno::ENOSYS, 38, "ENOSYS"),
        (Errno::ECANCELED, 125, "ECANCELED"),
        (Errno::ERESTARTSYS, 512, "ERESTARTSYS"),
        (Errno::ERESTARTNOINTR, 513, "ERESTARTNOINTR"),
        (Errno::ERESTARTNOHAND, 514, "ERESTARTNOHAND"),
        (Errno::ERESTART_RESTARTBLOCK, 516, "ERESTART_RESTARTBLOCK"),
    ] {
        assert_eq!((errno.number(), errno.name()), (number, name));
        assert_eq!((errno.to_string(), format!("{errno:?}")), (name.to_owned(), name.to_owned()));
        assert_eq!(Errno::new(number as u16), Some(errno));
        assert_eq!(errno.to_result(), -i64::from(number) as u64);
        assert_eq!(errno.is_restart(), number >= 512);
    }
}

#[test]
fn every_number_of_the_host_has_its_name_here() {
    for number in 1..=133 {
        let errno = Errno::new(number).expect("a number");
        if errno.name() == "?" {
            assert_eq!(errno.to_string(), format!("errno {number}"));
        } else {
            // The C library knows the number.
            let message = std::io::Error::from_raw_os_error(number.into()).to_string();
            assert!(!message.starts_with("Unknown error"), "{} is no error of the host's", errno.name());
        }
    }
    assert_eq!((Errno::new(0), Errno::new(4096)), (None, None));
}

#[test]
fn what_the_manager_refuses_becomes_what_most_calls_say() {
    for (error, errno) in [
        (Error::OutOfMemory, Errno::ENOMEM),
        (Error::NoRoom, Errno::ENOMEM),
        (Error::TooManyVmas, Errno::ENOMEM),
        (Error::CommitLimit, Errno::ENOMEM),
        (Error::NotMapped, Errno::ENOMEM),
        (Error::BadRange, Errno::EINVAL),
        (Error::WrongKind, Errno::EINVAL),
        (Error::AlreadyMapped, Errno::EEXIST),
        (Error::AccessDenied, Errno::EACCES),
        (Error::LockLimit, Errno::EAGAIN),
        (Error::Sealed, Errno::EPERM),
    ] {
        assert_eq!(Errno::from(error), errno, "{error}");
    }
}
