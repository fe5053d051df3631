//! What executes a guest: loads, stores and fetches.

use std::sync::Arc;

use foldspace::VirtAddr;
use foldspace::addr::{Level, PAGE_SHIFT, PAGE_SIZE};
use foldspace::space::{Access, Fault};

use super::line::{Barrier, Forget, Line, whose_barrier};
use super::tlb::{Known, Tag, Tlb};
use super::{Guest, MOST_FAULTS, Reason, Stop};
use crate::arena::Arena;
use crate::mmu::{Cause, Rights, Upper, walk};
use crate::platform::Machine;

/// A processor of a guest. It is used by one thread at a time, and any number of them run one guest, or many. A value that the last access has
/// left in it is used without a lock; a change of the guest's memory by any thread reaches it before that change is over.
///
/// Loads and stores of 1, 2, 4 and 8 bytes at multiples of their size are single accesses; others are made of such.
pub struct Cpu {
    guest: Guest,
    machine: Arc<Machine>,
    line: Arc<Line>,
    tlb: Tlb,
    seen: u64,
    barrier: Barrier,
    heed: Heed,
}

/// What becomes of watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heed {
    /// An access that a watch covers is not made, and says so.
    Watches,
    /// It is made: to go on after a stop.
    Nothing,
}

impl Cpu {
    pub(super) fn new(guest: &Guest) -> Cpu {
        let machine = guest.machine.clone();
        let line = Arc::new(Line::new());
        line.run(guest.space.id());
        machine.join_line(&line);
        Cpu {
            guest: guest.clone(),
            machine,
            line,
            tlb: Tlb::new(),
            seen: 0,
            barrier: whose_barrier(),
            heed: Heed::Watches,
        }
    }

    /// The guest that it runs.
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// What becomes of watches from now on; [`Heed::Watches`] at first.
    pub fn heed(&mut self, heed: Heed) {
        self.heed = heed;
        self.tlb.forget_all();
    }

    /// Loads `N` bytes: 1, 2, 4, 8 or 16, and anything else up to a page.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn load<const N: usize>(&mut self, addr: u64) -> Result<[u8; N], Stop> {
        let page = addr >> PAGE_SHIFT;
        let (offset, known) = ((addr % PAGE_SIZE) as usize, *self.tlb.at(page));
        if known.read == self.tlb.tag(page) && offset % N == 0 && self.line.begin(self.seen, self.barrier) {
            let value = self.machine.arena.load_word(known.frame, offset);
            self.line.end();
            if let Some(value) = value {
                return Ok(value);
            }
        }
        let mut bytes = [0; N];
        self.load_slice(addr, &mut bytes)?;
        Ok(bytes)
    }

    /// Stores `N` bytes, as [`Cpu::load`].
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn store<const N: usize>(&mut self, addr: u64, value: [u8; N]) -> Result<(), Stop> {
        let page = addr >> PAGE_SHIFT;
        let (offset, known) = ((addr % PAGE_SIZE) as usize, *self.tlb.at(page));
        if known.write == self.tlb.tag(page) && offset % N == 0 && self.line.begin(self.seen, self.barrier) {
            let stored = self.machine.arena.store_word(known.frame, offset, value);
            self.line.end();
            if stored.is_some() {
                return Ok(());
            }
        }
        self.store_slice(addr, &value)
    }

    /// Loads `N` bytes of instructions.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn fetch<const N: usize>(&mut self, addr: u64) -> Result<[u8; N], Stop> {
        let page = addr >> PAGE_SHIFT;
        let (offset, known) = ((addr % PAGE_SIZE) as usize, *self.tlb.at(page));
        if known.fetch == self.tlb.tag(page) && offset % N == 0 && self.line.begin(self.seen, self.barrier) {
            let value = self.machine.arena.load_word(known.frame, offset);
            self.line.end();
            if let Some(value) = value {
                return Ok(value);
            }
        }
        let mut bytes = [0; N];
        self.read(addr, &mut bytes, Access::Execute)?;
        Ok(bytes)
    }

    /// Loads any number of bytes.
    ///
    /// # Errors
    /// [`Stop`]; what comes before its address is loaded.
    pub fn load_slice(&mut self, addr: u64, out: &mut [u8]) -> Result<(), Stop> {
        self.read(addr, out, Access::Read)
    }

    /// Stores any number of bytes.
    ///
    /// # Errors
    /// [`Stop`]; what comes before its address is stored.
    pub fn store_slice(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Stop> {
        for_each_piece(addr, bytes.len(), |at, done, len| {
            let piece = &bytes[done..done + len];
            self.within_page(at, len, Access::Write, |arena, known, offset| arena.store(known.frame, offset, piece))
        })
    }

    fn read(&mut self, addr: u64, out: &mut [u8], access: Access) -> Result<(), Stop> {
        for_each_piece(addr, out.len(), |at, done, len| {
            let piece = &mut out[done..done + len];
            self.within_page(at, len, access, |arena, known, offset| arena.load(known.frame, offset, piece))
        })
    }

    /// An access within a page, whatever it takes.
    fn within_page(
        &mut self,
        addr: u64,
        len: usize,
        access: Access,
        mut perform: impl FnMut(&Arena, &Known, usize) -> Option<()>,
    ) -> Result<(), Stop> {
        let stop = |reason| Stop { at: VirtAddr(addr), access, reason };
        if self.heed == Heed::Watches {
            if let Some(at) = self.guest.watches().first(addr, len, access) {
                return Err(Stop { at: VirtAddr(at), access, reason: Reason::Watched });
            }
        }
        let (page, offset) = (addr >> PAGE_SHIFT, (addr % PAGE_SIZE) as usize);
        for _ in 0..MOST_FAULTS {
            match self.line.news(&mut self.seen) {
                Forget::Nothing => {}
                Forget::Pages(first, end) => self.tlb.forget(first, end),
                Forget::Everything => self.tlb.forget_all(),
            }
            let (known, tag) = (*self.tlb.at(page), self.tlb.tag(page));
            let is_known = match access {
                Access::Read => known.read == tag,
                Access::Write => known.write == tag,
                Access::Execute => known.fetch == tag,
            };
            if !self.line.begin(self.seen, self.barrier) {
                continue;
            }
            // Busy: a shootdown waits, and so what the walk comes through is what it seems to be.
            let known = if is_known { Ok(known) } else { self.walk(addr, page, access) };
            let outcome = known.map(|known| perform(&self.machine.arena, &known, offset));
            self.line.end();
            match outcome {
                Ok(Some(())) => return Ok(()),
                Ok(None) | Err(Cause::Malformed(_)) => return Err(stop(Reason::Broken)),
                Err(Cause::NotCanonical) => return Err(stop(Reason::NotMapped)),
                Err(_) => self.guest.space.fault(VirtAddr(addr), access).map_err(|fault| stop(fault.into()))?,
            }
        }
        Err(stop(Reason::Broken))
    }

    fn walk(&mut self, addr: u64, page: u64, access: Access) -> Result<Known, Cause> {
        let top = Upper { table: self.guest.space.root(), rights: Rights::ALL };
        let translation = walk::walk(&self.machine.arena, top, Level::L4, VirtAddr(addr), access, |_, _| {})?;
        let rights = translation.rights;
        // A watched page is never known: each access to it comes here.
        let watched = |access| self.heed == Heed::Watches && self.guest.watches().touch(page, access);
        let tag = |may: bool, access| if may && !watched(access) { self.tlb.tag(page) } else { Tag::NOTHING };
        let known = Known {
            read: tag(rights.user, Access::Read),
            // The first store to a clean page goes to the tables.
            write: tag(rights.user && rights.writable && translation.dirty, Access::Write),
            fetch: tag(rights.user && rights.executable, Access::Execute),
            frame: translation.frame,
        };
        self.tlb.put(page, known);
        Ok(known)
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        self.machine.leave_line(&self.line);
    }
}

impl From<Fault> for Reason {
    fn from(fault: Fault) -> Reason {
        match fault {
            Fault::NotMapped => Reason::NotMapped,
            Fault::AccessDenied => Reason::Denied,
            Fault::PastEnd => Reason::PastEnd,
            Fault::Watched { .. } => Reason::Watched,
            Fault::Poisoned => Reason::Poisoned,
            Fault::OutOfMemory => Reason::OutOfMemory,
        }
    }
}

/// Calls `each` with the pieces of `len` bytes from `addr` that lie in one page each: where, after how many bytes, how many.
fn for_each_piece(
    addr: u64,
    len: usize,
    mut each: impl FnMut(u64, usize, usize) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut done = 0;
    while done < len {
        let at = addr.wrapping_add(done as u64);
        let piece = (len - done).min((PAGE_SIZE - at % PAGE_SIZE) as usize);
        each(at, done, piece)?;
        done += piece;
    }
    Ok(())
}
