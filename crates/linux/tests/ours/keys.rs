//! Protection keys as pkeys(7) and pkey_alloc(2) have them, on a machine that has some, whatever the one has that runs this.

use std::cell::RefCell;

use foldspace::AddressSpace;
use foldspace::vma::ProtectionKey;
use foldspace_linux::{Caller, Capability, Errno, OpenFile, abi, mmap, mprotect, pkey_alloc, pkey_free, pkey_mprotect};

use super::{AT, PAGE, Process};

const RW: u64 = abi::PROT_READ | abi::PROT_WRITE;
// asm-generic/mman-common.h
const DISABLE_ACCESS: u64 = 1;
const DISABLE_WRITE: u64 = 2;

/// A thread of a process, with a register of rights.
struct Thread {
    process: Process,
    rights: RefCell<Vec<(u32, u32)>>,
}

impl Thread {
    fn new() -> Thread {
        let process = Process::new();
        process.space.memory().set_protection_keys();
        process.map(0, 4, RW);
        Thread { process, rights: RefCell::default() }
    }

    /// The keys of the areas from [`AT`] on, and how many pages each has.
    fn keys(&self) -> Vec<(u64, u32)> {
        self.process.space.vmas().view().iter().map(|vma| (vma.range.pages(), vma.tag.key().number())).collect()
    }
}

impl Caller for Thread {
    fn space(&self) -> &AddressSpace {
        &self.process.space
    }

    fn open_file(&self, fd: i32) -> Result<OpenFile, Errno> {
        self.process.open_file(fd)
    }

    fn is_capable(&self, capability: Capability) -> bool {
        self.process.is_capable(capability)
    }

    fn set_key_rights(&self, key: ProtectionKey, rights: u32) {
        self.rights.borrow_mut().push((key.number(), rights));
    }
}

#[test]
fn a_key_is_the_lowest_that_is_free_and_its_rights_are_the_threads() {
    let thread = Thread::new();
    assert_eq!(pkey_alloc(&thread, 1, 0), Err(Errno::EINVAL), "no flags are known");
    assert_eq!(pkey_alloc(&thread, 0, 4), Err(Errno::EINVAL), "nor other rights");
    assert_eq!(pkey_alloc(&thread, 0, DISABLE_WRITE), Ok(1));
    assert_eq!(pkey_alloc(&thread, 0, DISABLE_ACCESS), Ok(2));
    assert_eq!(*thread.rights.borrow(), [(1, 2), (2, 1)]);
    (3..16).for_each(|number| assert_eq!(pkey_alloc(&thread, 0, 0), Ok(number)));
    assert_eq!(pkey_alloc(&thread, 0, 0), Err(Errno::ENOSPC), "sixteen, of which the default is one");
    assert_eq!(pkey_free(&thread, 7), Ok(()));
    assert_eq!(pkey_free(&thread, 7), Err(Errno::EINVAL), "it has gone");
    assert_eq!(pkey_alloc(&thread, 0, 0), Ok(7));
    for nothing in [-1, 16, i32::MAX, i32::MIN] {
        assert_eq!(pkey_free(&thread, nothing), Err(Errno::EINVAL), "{nothing} is no key");
    }
}

#[test]
fn memory_keeps_the_key_that_it_has() {
    let thread = Thread::new();
    let protect = |page, pages, prot, key| pkey_mprotect(&thread, AT + page * PAGE, pages * PAGE, prot, key);
    assert_eq!(protect(1, 2, RW, 1), Err(Errno::EINVAL), "nobody was given it");
    assert_eq!(pkey_alloc(&thread, 0, 0), Ok(1));
    assert_eq!(protect(1, 2, RW, 1), Ok(()));
    assert_eq!(thread.keys(), [(1, 0), (2, 1), (1, 0)]);
    // mprotect lets memory keep its key, and so does pkey_mprotect with none.
    assert_eq!(mprotect(&thread, AT + PAGE, PAGE, abi::PROT_READ), Ok(()));
    assert_eq!(protect(2, 1, abi::PROT_READ, -1), Ok(()));
    assert_eq!(thread.keys(), [(1, 0), (2, 1), (1, 0)]);
    assert_eq!(pkey_free(&thread, 1), Ok(()), "although memory has it");
    assert_eq!(protect(1, 1, RW, 1), Err(Errno::EINVAL), "it cannot be named any more");
    assert_eq!(thread.keys(), [(1, 0), (2, 1), (1, 0)]);
    assert_eq!(protect(1, 2, RW, 0), Ok(()), "the default is everybody's");
    assert_eq!(thread.keys(), [(4, 0)]);
}

/// x86 can always read what it can execute, but for a key: Linux keeps one for that (`__execute_only_pkey`).
#[test]
fn what_may_only_be_executed_has_a_key_that_no_program_is_given() {
    let thread = Thread::new();
    assert_eq!(mprotect(&thread, AT, PAGE, abi::PROT_EXEC), Ok(()));
    assert_eq!(
        (thread.keys(), thread.rights.borrow().last()),
        (vec![(1, 1), (3, 0)], Some(&(1, DISABLE_ACCESS as u32)))
    );
    assert_eq!(pkey_alloc(&thread, 0, 0), Ok(2));
    assert_eq!(pkey_free(&thread, 1), Err(Errno::EINVAL), "it was not given");
    assert_eq!(pkey_mprotect(&thread, AT, PAGE, RW, 1), Err(Errno::EINVAL));
    // One for all such memory, new mappings included.
    let flags = abi::MAP_PRIVATE | abi::MAP_ANONYMOUS | abi::MAP_FIXED;
    assert_eq!(mmap(&thread, AT + 3 * PAGE, PAGE, abi::PROT_EXEC, flags, -1, 0), Ok(AT + 3 * PAGE));
    assert_eq!(thread.keys(), [(1, 1), (2, 0), (1, 1)]);
    // Who names a key has it; and what may be read again has the default.
    assert_eq!(pkey_mprotect(&thread, AT + 3 * PAGE, PAGE, abi::PROT_EXEC, 2), Ok(()));
    assert_eq!(mprotect(&thread, AT, PAGE, RW), Ok(()));
    assert_eq!(thread.keys(), [(3, 0), (1, 2)]);
}

/// Without keys to give, it can be read as well; nothing fails.
#[test]
fn what_may_only_be_executed_is_readable_where_no_key_is_left() {
    let thread = Thread::new();
    (1..16).for_each(|number| assert_eq!(pkey_alloc(&thread, 0, 0), Ok(number)));
    assert_eq!(mprotect(&thread, AT, PAGE, abi::PROT_EXEC), Ok(()));
    assert_eq!(thread.keys(), [(1, 0), (3, 0)]);
    assert_eq!(thread.rights.borrow().len(), 15, "nobody's rights change");
}

#[test]
fn a_processor_without_keys_has_none_to_give() {
    let process = Process::new();
    process.map(0, 1, RW);
    assert_eq!(pkey_alloc(&process, 0, 0), Err(Errno::EINVAL));
    assert_eq!(pkey_free(&process, 0), Err(Errno::EINVAL));
    assert_eq!(pkey_mprotect(&process, AT, PAGE, RW, 0), Err(Errno::EINVAL));
    assert_eq!(mprotect(&process, AT, PAGE, abi::PROT_EXEC), Ok(()));
}

/// The register of rights is the embedder's: who has none loses nothing but what keys are for.
#[test]
fn a_caller_without_a_register_of_rights_gets_keys_all_the_same() {
    let process = Process::new();
    process.space.memory().set_protection_keys();
    process.map(0, 1, RW);
    assert_eq!(pkey_alloc(&process, 0, DISABLE_ACCESS), Ok(1));
    assert_eq!(pkey_mprotect(&process, AT, PAGE, RW, 1), Ok(()));
    assert_eq!(process.space.write(foldspace::VirtAddr(AT), &[1]), 1);
}
