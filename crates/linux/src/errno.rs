//! Error numbers: what a system call says instead of doing its work.

use core::fmt;

use linux_raw_sys::errno as raw;

/// A Linux error number, always in `1..4096`. Returned to the program as its negative.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Errno(u16);

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "` of `asm-generic/errno.h`.")] pub const $name: Errno = Errno(raw::$name as u16);)*

            /// The symbol, `"?"` for a number without one.
            pub const fn name(self) -> &'static str {
                match self.0 as u32 {
                    $(raw::$name => stringify!($name),)*
                    512 => "ERESTARTSYS",
                    513 => "ERESTARTNOINTR",
                    514 => "ERESTARTNOHAND",
                    516 => "ERESTART_RESTARTBLOCK",
                    _ => "?",
                }
            }
        }
    };
}

errnos! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST EXDEV
    ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK
    ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA ETIME EOVERFLOW EBADFD EILSEQ ENOTSOCK EOPNOTSUPP EAFNOSUPPORT
    EADDRINUSE ENOBUFS EIDRM EISCONN ENOTCONN ETIMEDOUT ECONNREFUSED ECONNRESET EALREADY EINPROGRESS ESTALE ECANCELED EADDRNOTAVAIL ENETUNREACH ELIBBAD EPROTO EPROTOTYPE EBADMSG
    EPROTONOSUPPORT ESOCKTNOSUPPORT EDESTADDRREQ EMSGSIZE ENOPROTOOPT ENOMSG ENOMEDIUM EMEDIUMTYPE ENOKEY EOWNERDEAD ENOTRECOVERABLE ENOTUNIQ EHWPOISON EUSERS
}

/// Never seen by a program: they say what becomes of an interrupted call (Linux's `include/linux/errno.h`).
impl Errno {
    /// Starts again if no handler ran, or if the handler has `SA_RESTART`; else `EINTR`.
    pub const ERESTARTSYS: Errno = Errno(512);
    /// Starts again whatever ran.
    pub const ERESTARTNOINTR: Errno = Errno(513);
    /// Starts again if no handler ran; else `EINTR`.
    pub const ERESTARTNOHAND: Errno = Errno(514);
    /// Like [`Errno::ERESTARTNOHAND`], but goes on where it was: the rest of a relative sleep (`restart_syscall`).
    pub const ERESTART_RESTARTBLOCK: Errno = Errno(516);

    /// The error with a number; `None` unless that is in `1..4096`.
    pub const fn new(number: u16) -> Option<Errno> {
        match number {
            1..4096 => Some(Errno(number)),
            _ => None,
        }
    }

    /// The number, as in `errno`.
    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    /// What the program sees in its result register.
    pub const fn to_result(self) -> u64 {
        (-(self.0 as i64)) as u64
    }

    /// Whether this asks for a restart and must not reach the program.
    pub const fn is_restart(self) -> bool {
        matches!(self.0, 512..=514 | 516)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "?" => write!(f, "errno {}", self.0),
            name => f.write_str(name),
        }
    }
}

impl core::error::Error for Errno {}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What most calls say; those that say something else do so themselves.
impl From<foldspace::Error> for Errno {
    fn from(error: foldspace::Error) -> Errno {
        match error {
            foldspace::Error::OutOfMemory
            | foldspace::Error::NoRoom
            | foldspace::Error::TooManyVmas
            | foldspace::Error::CommitLimit
            | foldspace::Error::NotMapped => Errno::ENOMEM,
            foldspace::Error::BadRange | foldspace::Error::WrongKind => Errno::EINVAL,
            foldspace::Error::AlreadyMapped => Errno::EEXIST,
            foldspace::Error::AccessDenied => Errno::EACCES,
            foldspace::Error::LockLimit => Errno::EAGAIN,
            foldspace::Error::Sealed => Errno::EPERM,
            foldspace::Error::Busy => Errno::EBUSY,
            foldspace::Error::Poisoned => Errno::EIO,
        }
    }
}
