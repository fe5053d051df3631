//! MADV_HWPOISON and MADV_SOFT_OFFLINE, and what is said of memory that has failed: madvise(2), `madvise_inject_error` in mm/madvise.c.

use std::cell::RefCell;

use foldspace::space::Access;
use foldspace::{AddressSpace, Object, VirtAddr};
use foldspace_linux::{Caller, Capability, Content, Errno, OpenFile, OpenRights, abi, madvise, mlock, mmap};

use super::{AT, PAGE, Process};

// asm-generic/mman-common.h
const DONTNEED: i32 = 4;
const POPULATE_READ: i32 = 22;
const POPULATE_WRITE: i32 = 23;
const HWPOISON: i32 = 100;
const SOFT_OFFLINE: i32 = 101;
const RW: u64 = abi::PROT_READ | abi::PROT_WRITE;

/// A process that is told, and perhaps being ended.
struct Told {
    process: Process,
    failed: RefCell<Vec<u64>>,
    killed: bool,
}

impl Told {
    /// With four pages that have been written to.
    fn new(rights: &[Capability]) -> Told {
        let process = Process { rights: rights.to_vec(), ..Process::new() };
        process.map(0, 4, RW);
        (0..4).for_each(|page| assert_eq!(process.space.write(VirtAddr(AT + page * PAGE), &[page as u8 + 1]), 1));
        Told { process, failed: RefCell::default(), killed: false }
    }

    fn advise(&self, page: u64, pages: u64, advice: i32) -> Result<(), Errno> {
        madvise(self, AT + page * PAGE, pages * PAGE, advice)
    }
}

impl Caller for Told {
    fn space(&self) -> &AddressSpace {
        &self.process.space
    }

    fn open_file(&self, fd: i32) -> Result<OpenFile, Errno> {
        self.process.open_file(fd)
    }

    fn is_capable(&self, capability: Capability) -> bool {
        self.process.is_capable(capability)
    }

    fn is_being_killed(&self) -> bool {
        self.killed
    }

    fn memory_failed(&self, address: u64) {
        self.failed.borrow_mut().push(address);
    }
}

#[test]
fn a_page_fails_for_who_may_and_he_is_told_where() {
    let nobody = Told::new(&[]);
    assert_eq!(nobody.advise(0, 1, HWPOISON), Err(Errno::EPERM));
    assert_eq!(nobody.advise(0, 1, SOFT_OFFLINE), Err(Errno::EPERM));
    let told = Told::new(&[Capability::Admin]);
    assert_eq!(told.advise(1, 2, SOFT_OFFLINE), Ok(()), "programs notice nothing");
    let mut byte = [0];
    assert_eq!((told.process.space.read(VirtAddr(AT + PAGE), &mut byte), byte), (1, [2]));
    assert_eq!(told.advise(1, 2, HWPOISON), Ok(()));
    assert_eq!(*told.failed.borrow(), [AT + PAGE, AT + 2 * PAGE]);
    assert_eq!(told.process.space.read(VirtAddr(AT + PAGE), &mut byte), 0);
    assert_eq!(told.advise(3, 2, HWPOISON), Err(Errno::EFAULT), "past the mapping");
    assert_eq!(told.failed.borrow().len(), 3, "the page before was there");
    // Zeros are nobody's.
    told.process.map(8, 1, abi::PROT_READ);
    assert_eq!(told.advise(8, 1, HWPOISON), Err(Errno::EBUSY));
}

/// What its source still has is not lost: nobody is signalled (`memory_failure` in mm/memory-failure.c).
#[test]
fn of_a_clean_page_of_a_file_nothing_is_said() {
    let mut told = Told::new(&[Capability::Admin]);
    let file = Object::anonymous(told.process.space.memory(), PAGE).unwrap();
    let rights = OpenRights::READ;
    told.process.files.push((3, OpenFile { content: Content::Object(file), rights, max_len: u64::MAX }));
    let at = AT + 16 * PAGE;
    let flags = abi::MAP_SHARED | abi::MAP_FIXED;
    assert_eq!(mmap(&told, at, PAGE, abi::PROT_READ, flags, 3, 0), Ok(at));
    assert_eq!(told.process.space.fault(VirtAddr(at), Access::Read), Ok(()));
    assert_eq!(told.advise(16, 1, HWPOISON), Ok(()));
    assert_eq!(*told.failed.borrow(), [0; 0]);
}

/// madvise(2): EHWPOISON of MADV_POPULATE_*. Where it is given up, it is memory as any other.
#[test]
fn what_has_failed_cannot_be_populated_until_it_is_given_up() {
    let told = Told::new(&[Capability::Admin]);
    assert_eq!(told.advise(2, 1, HWPOISON), Ok(()));
    for advice in [POPULATE_READ, POPULATE_WRITE] {
        assert_eq!(told.advise(0, 4, advice), Err(Errno::EHWPOISON));
        assert_eq!(told.advise(0, 2, advice), Ok(()));
    }
    assert_eq!(told.advise(2, 1, DONTNEED), Ok(()));
    assert_eq!(told.advise(0, 4, POPULATE_WRITE), Ok(()));
    // What cannot be had past a file's end, or is guarded, is a bad address to it.
    const GUARD_INSTALL: i32 = 102;
    assert_eq!(told.advise(3, 1, GUARD_INSTALL), Ok(()));
    assert_eq!(told.advise(0, 4, POPULATE_READ), Err(Errno::EFAULT));
    assert_eq!(told.advise(0, 5, POPULATE_READ), Err(Errno::EFAULT), "before the hole");
    assert_eq!(told.advise(4, 1, POPULATE_READ), Err(Errno::ENOMEM));
}

/// A fatal signal ends what takes long (`fatal_signal_pending` in mm/gup.c).
#[test]
fn who_is_being_ended_populates_nothing() {
    let mut told = Told::new(&[]);
    told.process.map(4, 4, RW);
    told.killed = true;
    assert_eq!(told.advise(4, 4, POPULATE_WRITE), Err(Errno::EINTR));
    assert_eq!(told.process.space.usage().resident_anon, 4, "only what was there");
    told.process.space.update_layout(|layout| layout.lock_limit = u64::MAX);
    assert_eq!(mlock(&told, AT + 4 * PAGE, PAGE), Err(Errno::EINTR));
    told.killed = false;
    assert_eq!(told.advise(4, 4, POPULATE_WRITE), Ok(()));
    assert_eq!(told.process.space.usage().resident_anon, 8);
}

/// Signals are the embedder's: memory fails all the same for who sends none.
#[test]
fn memory_fails_for_a_caller_that_takes_no_notice() {
    let process = Process { rights: vec![Capability::Admin], ..Process::new() };
    process.map(0, 1, RW);
    assert_eq!(process.space.write(VirtAddr(AT), &[1]), 1);
    assert_eq!(madvise(&process, AT, PAGE, HWPOISON), Ok(()));
    assert_eq!(process.space.write(VirtAddr(AT), &[1]), 0);
}
