//! What a program can ask of a userfaultfd: `UFFDIO_*` (`linux/userfaultfd.h`), with the checks and errors of Linux's `fs/userfaultfd.c`.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use foldspace::addr::{PAGE_SIZE, USER_END};
use foldspace::space::{Absent, Fill, Protection, Shift};
use foldspace::vma::{Backing, Vma, VmaFlags};
use foldspace::{AddressSpace, Error, PageRange, VirtAddr};

use super::{Userfault, feature};
use crate::errno::Errno;
use crate::mm::{self, uaccess};
use crate::process::credentials::CAP_SYS_PTRACE;
use crate::sched;
use crate::syscall::SysResult;

const API: u32 = 0xc018_aa3f;
const REGISTER: u32 = 0xc020_aa00;
const UNREGISTER: u32 = 0x8010_aa01;
const WAKE: u32 = 0x8010_aa02;
const COPY: u32 = 0xc028_aa03;
const ZEROPAGE: u32 = 0xc020_aa04;
const MOVE: u32 = 0xc028_aa05;
const WRITEPROTECT: u32 = 0xc018_aa06;
const CONTINUE: u32 = 0xc020_aa07;
const POISON: u32 = 0xc020_aa08;

/// Bits of the masks that say which requests there are: their numbers.
const fn bit(request: u32) -> u64 {
    1 << (request & 0xff)
}

/// `UFFDIO_REGISTER_MODE_*`.
const MODE_MISSING: u64 = 1;
const MODE_WP: u64 = 2;
const MODE_MINOR: u64 = 4;

/// `UFFDIO_*_MODE_DONTWAKE` of all but write protection, and what else filling can be asked for.
const DONT_WAKE: u64 = 1;
const COPY_WP: u64 = 2;
const CONTINUE_WP: u64 = 2;
const MOVE_ABSENT: u64 = 2;
const PROTECT_WP: u64 = 1;
const PROTECT_DONT_WAKE: u64 = 2;

/// `struct uffdio_range`, checked (`validate_range`).
fn range(start: u64, len: u64) -> Result<PageRange, Errno> {
    let aligned = start.is_multiple_of(PAGE_SIZE) && len.is_multiple_of(PAGE_SIZE);
    if !aligned || len == 0 || start < mm::memory().lowest_address().get() {
        return Err(Errno::EINVAL);
    }
    PageRange::from_len(VirtAddr(start), len).filter(|range| range.end() <= USER_END).ok_or(Errno::EINVAL)
}

/// Whether Linux can hand a VMA's faults on: private anonymous memory, and memory of files that are in memory.
fn suits(kinds: VmaFlags) -> impl Fn(&Vma) -> bool {
    move |vma| match &vma.backing {
        Backing::Anonymous => !kinds.contains(VmaFlags::WATCH_UNMAPPED) && !vma.flags.contains(VmaFlags::DROPPABLE),
        Backing::Object(_) if vma.flags.contains(VmaFlags::SECRET) => false,
        Backing::Object(_) => vma.flags.contains(VmaFlags::SHARED) || !kinds.contains(VmaFlags::WATCH_UNMAPPED),
        Backing::Reference(_) => false,
    }
}

fn filling_error(error: Error) -> Errno {
    match error {
        Error::NotMapped => Errno::ENOENT,
        Error::AlreadyMapped => Errno::EEXIST,
        Error::WrongKind => Errno::EINVAL,
        Error::BadRange => Errno::EFAULT,
        _ => Errno::ENOMEM,
    }
}

impl Userfault {
    pub(super) fn request(&self, request: u32, argument: u64) -> SysResult {
        if request != API && self.state.lock().features.is_none() {
            return Err(Errno::EINVAL);
        }
        match request {
            API => self.agree(argument),
            REGISTER => self.register(argument),
            UNREGISTER => {
                let [start, len]: [u64; 2] = uaccess::read(argument)?;
                let range = range(start, len)?;
                let space = self.space()?;
                check_mapped(&space, range)?;
                space.unwatch(range, self.watcher)?;
                self.wake(range.start().get(), range.end().get());
                Ok(0)
            }
            WAKE => {
                let [start, len]: [u64; 2] = uaccess::read(argument)?;
                let range = range(start, len)?;
                self.wake(range.start().get(), range.end().get());
                Ok(0)
            }
            COPY => self.copy(argument),
            ZEROPAGE => self.fill_alike(argument, Fill::Zeros),
            WRITEPROTECT => self.protect(argument),
            CONTINUE => self.show(argument),
            POISON => self.fill_alike(argument, Fill::Poison),
            MOVE => self.shift(argument),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The address space, if anybody still lives in it. `ESRCH`.
    fn space(&self) -> Result<Arc<AddressSpace>, Errno> {
        self.space.lock().upgrade().ok_or(Errno::ESRCH)
    }

    /// `UFFDIO_API`: once.
    fn agree(&self, argument: u64) -> SysResult {
        const VERSION: u64 = 0xaa;
        let [version, mut wanted, _]: [u64; 3] = uaccess::read(argument)?;
        let permitted = wanted & feature::EVENT_FORK == 0
            || version != VERSION
            || sched::with_current(|task| task.credentials().may(CAP_SYS_PTRACE));
        if !permitted {
            uaccess::write(argument, &[0u64; 3])?;
            return Err(Errno::EPERM);
        }
        if wanted & feature::WP_ASYNC != 0 {
            wanted |= feature::WP_UNPOPULATED;
        }
        let fits = version == VERSION && wanted & !feature::ALL == 0;
        {
            let mut state = self.state.lock();
            if fits && state.features.is_none() {
                state.features = Some(wanted);
                drop(state);
                let requests = bit(REGISTER) | bit(UNREGISTER) | 1 << (API & 0xff);
                uaccess::write(argument, &[VERSION, feature::ALL, requests])?;
                return Ok(0);
            }
        }
        uaccess::write(argument, &[0u64; 3])?;
        Err(Errno::EINVAL)
    }

    fn agreed_on(&self, wanted: u64) -> bool {
        self.state.lock().features.unwrap_or(0) & wanted != 0
    }

    /// Nobody is moving or unmapping watched memory: `EAGAIN`, also in the field of the result, if there is one.
    fn check_unchanging(&self, result: Option<u64>) -> Result<(), Errno> {
        if self.changing.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        if let Some(result) = result {
            uaccess::write(result, &Errno::EAGAIN.to_result())?;
        }
        Err(Errno::EAGAIN)
    }

    fn register(&self, argument: u64) -> SysResult {
        let [start, len, mode]: [u64; 3] = uaccess::read(argument)?;
        if mode == 0 || mode & !(MODE_MISSING | MODE_WP | MODE_MINOR) != 0 {
            return Err(Errno::EINVAL);
        }
        let range = range(start, len)?;
        let mut kinds = VmaFlags::empty();
        kinds.set(VmaFlags::WATCH_MISSING, mode & MODE_MISSING != 0);
        kinds.set(VmaFlags::WATCH_WRITES, mode & MODE_WP != 0);
        kinds.set(VmaFlags::WATCH_UNMAPPED, mode & MODE_MINOR != 0);
        kinds.set(VmaFlags::WATCH_FOLLOWS, self.agreed_on(feature::EVENT_REMAP));
        self.space()?.watch(range, self.watcher, kinds, suits(kinds)).map_err(|error| match error {
            Error::NotMapped | Error::WrongKind => Errno::EINVAL,
            Error::AccessDenied => Errno::EPERM,
            Error::AlreadyMapped => Errno::EBUSY,
            _ => Errno::ENOMEM,
        })?;
        let mut requests = bit(WAKE) | bit(COPY) | bit(ZEROPAGE) | bit(POISON) | bit(MOVE);
        requests |= if mode & MODE_WP != 0 { bit(WRITEPROTECT) } else { 0 };
        requests |= if mode & MODE_MINOR != 0 { bit(CONTINUE) } else { 0 };
        uaccess::write(argument.wrapping_add(24), &requests)?;
        Ok(0)
    }

    /// Does `page` for each page of `range` until one fails; says at `result` how many bytes were done, or the error, and wakes who waits for them.
    fn for_each_page(
        &self,
        range: PageRange,
        mode: u64,
        result: u64,
        mut page: impl FnMut(VirtAddr) -> Result<(), Errno>,
    ) -> SysResult {
        let (mut done, mut failed) = (0, None);
        while done < range.len() && failed.is_none() {
            match page(VirtAddr(range.start().get() + done)) {
                Ok(()) => done += PAGE_SIZE,
                Err(error) => failed = Some(error),
            }
        }
        let told = match failed {
            Some(error) if done == 0 => error.to_result(),
            _ => done,
        };
        uaccess::write(result, &told)?;
        if done > 0 && mode & DONT_WAKE == 0 {
            self.wake(range.start().get(), range.start().get() + done);
        }
        match failed {
            None => Ok(0),
            Some(error) if done == 0 => Err(error),
            Some(_) => Err(Errno::EAGAIN),
        }
    }

    fn copy(&self, argument: u64) -> SysResult {
        self.check_unchanging(Some(argument.wrapping_add(32)))?;
        let [to, from, len, mode]: [u64; 4] = uaccess::read(argument)?;
        let range = range(to, len)?;
        if from.checked_add(len).is_none_or(|end| end > USER_END.get()) || mode & !(DONT_WAKE | COPY_WP) != 0 {
            return Err(Errno::EINVAL);
        }
        let space = self.space()?;
        check_one_area(&space, range)?;
        let protection = if mode & COPY_WP != 0 { Protection::WriteProtected } else { Protection::None };
        // Not on the stack: it is small.
        let mut content = alloc::boxed::Box::new([0; PAGE_SIZE as usize]);
        self.for_each_page(range, mode, argument.wrapping_add(32), |at| {
            uaccess::read_bytes(from + (at.get() - to), &mut content[..])?;
            space.fill(at, Fill::Bytes(&content), protection).map_err(filling_error)
        })
    }

    /// `UFFDIO_ZEROPAGE` and `UFFDIO_POISON`: pages that are all alike.
    fn fill_alike(&self, argument: u64, page: Fill<'_>) -> SysResult {
        self.check_unchanging(Some(argument.wrapping_add(24)))?;
        let [start, len, mode]: [u64; 3] = uaccess::read(argument)?;
        let range = range(start, len)?;
        if mode & !DONT_WAKE != 0 {
            return Err(Errno::EINVAL);
        }
        let space = self.space()?;
        check_one_area(&space, range)?;
        self.for_each_page(range, mode, argument.wrapping_add(24), |at| {
            space.fill(at, page, Protection::None).map_err(filling_error)
        })
    }

    /// `UFFDIO_MOVE` (`userfaultfd_move`, `move_pages`): of the caller's own memory only.
    fn shift(&self, argument: u64) -> SysResult {
        let space = self.space()?;
        if !sched::with_current(|task| Arc::ptr_eq(&task.space(), &space)) {
            return Err(Errno::EINVAL);
        }
        self.check_unchanging(Some(argument.wrapping_add(32)))?;
        let [to, from, len, mode]: [u64; 4] = uaccess::read(argument)?;
        let (to, from) = (range(to, len)?, range(from, len)?);
        if mode & !(DONT_WAKE | MOVE_ABSENT) != 0 {
            return Err(Errno::EINVAL);
        }
        let absent = if mode & MOVE_ABSENT != 0 { Absent::Skip } else { Absent::Refuse };
        let shift = Shift { from, to, watcher: self.watcher, absent };
        self.for_each_page(to, mode, argument.wrapping_add(32), |at| {
            let index = (at.get() - to.start().get()) / PAGE_SIZE;
            space.shift_page(&shift, index).map_err(|error| match error {
                Error::NotMapped => Errno::ENOENT,
                Error::AlreadyMapped => Errno::EEXIST,
                Error::WrongKind => Errno::EINVAL,
                Error::Busy => Errno::EBUSY,
                Error::Poisoned => Errno::EFAULT,
                _ => Errno::ENOMEM,
            })
        })
    }

    fn show(&self, argument: u64) -> SysResult {
        self.check_unchanging(Some(argument.wrapping_add(24)))?;
        let [start, len, mode]: [u64; 3] = uaccess::read(argument)?;
        let range = range(start, len)?;
        if mode & !(DONT_WAKE | CONTINUE_WP) != 0 {
            return Err(Errno::EINVAL);
        }
        let space = self.space()?;
        check_one_area(&space, range)?;
        self.for_each_page(range, mode, argument.wrapping_add(24), |at| {
            space.show(at).map_err(filling_error)?;
            match (mode & CONTINUE_WP, PageRange::page_of(at)) {
                (CONTINUE_WP, Some(page)) => {
                    space.protect_watched(page, Protection::WriteProtected).map_err(filling_error)
                }
                _ => Ok(()),
            }
        })
    }

    fn protect(&self, argument: u64) -> SysResult {
        self.check_unchanging(None)?;
        let [start, len, mode]: [u64; 3] = uaccess::read(argument)?;
        let range = range(start, len)?;
        let (protects, wakes) = (mode & PROTECT_WP != 0, mode & PROTECT_DONT_WAKE == 0);
        if mode & !(PROTECT_WP | PROTECT_DONT_WAKE) != 0 || protects && !wakes {
            return Err(Errno::EINVAL);
        }
        let protection = match protects {
            true if self.agreed_on(feature::WP_UNPOPULATED) => Protection::HolesToo,
            true => Protection::WriteProtected,
            false => Protection::None,
        };
        self.space()?.protect_watched(range, protection).map_err(filling_error)?;
        if !protects && wakes {
            self.wake(range.start().get(), range.end().get());
        }
        Ok(0)
    }
}

/// What is filled is all in one VMA, which is watched (`uffd_mfill_lock`, `validate_dst_vma`). `ENOENT`.
fn check_one_area(space: &AddressSpace, range: PageRange) -> Result<(), Errno> {
    let version = space.vmas();
    match version.view().find_at_or_after(range.start()) {
        Some(vma)
            if vma.start() <= range.start() && range.end() <= vma.end() && vma.flags.intersects(VmaFlags::WATCHED) =>
        {
            Ok(())
        }
        _ => Err(Errno::ENOENT),
    }
}

/// Something is mapped in the range, and can be watched. `EINVAL`.
fn check_mapped(space: &AddressSpace, range: PageRange) -> Result<(), Errno> {
    let version = space.vmas();
    let mut mapped = version.view().iter().filter(|vma| vma.range.intersect(range).is_some()).peekable();
    if mapped.peek().is_none() || !mapped.all(suits(VmaFlags::empty())) { Err(Errno::EINVAL) } else { Ok(()) }
}
