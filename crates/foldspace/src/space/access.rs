//! Reading and writing an address space from outside: a kernel's copies to and from user memory, which never touch user addresses.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use crossbeam_epoch::Guard;

use super::fault::Force;
use super::{Access, AddressSpace, Fault};
use crate::addr::{Level, PAGE_SIZE, USER_END, VirtAddr};
use crate::backing::{Object, Reference};
use crate::error::{Error, Result};
use crate::frame::{Frame, Garbage};
use crate::table::{Entry, Supply};
use crate::vma::{Backing, VmaFlags};

impl AddressSpace {
    /// The reference page with the content that the page at `addr` has now: what happens to that page afterwards changes nothing. Anything that can
    /// be read will do: anonymous memory, objects, the pages of a reference mapping.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] unless `addr` is a page's first byte; [`Error::NotMapped`] if it cannot be read; [`Error::OutOfMemory`].
    pub fn reference_at(&self, addr: VirtAddr) -> Result<Arc<Reference>> {
        if !addr.is_page_aligned() {
            return Err(Error::BadRange);
        }
        let mut page = [0; PAGE_SIZE as usize];
        let mut done = 0;
        while done < page.len() {
            done += self.read(VirtAddr(addr.get() + done as u64), &mut page[done..]);
            // Once more for the reason; if it can be read by now, so much the better.
            if done < page.len() {
                if let Err(fault) = self.fault(addr, Access::Read) {
                    return Err(if fault == Fault::OutOfMemory { Error::OutOfMemory } else { Error::NotMapped });
                }
            }
        }
        Reference::new(&self.memory, &page)
    }

    /// Copies bytes out, faulting pages in as loads would. Returns how many came before the first that could not be read.
    pub fn read(&self, from: VirtAddr, out: &mut [u8]) -> usize {
        let len = out.len();
        self.for_each_page(from, len, Access::Read, |frame, offset, at, bytes| {
            self.memory.read_frame(frame, offset, &mut out[at..at + bytes]);
        })
    }

    /// Copies bytes in, faulting pages in as stores would. Returns how many went before the first that could not be written.
    pub fn write(&self, to: VirtAddr, bytes: &[u8]) -> usize {
        self.for_each_page(to, bytes.len(), Access::Write, |frame, offset, at, len| {
            self.memory.write_frame(frame, offset, &bytes[at..at + len]);
        })
    }

    /// Copies `len` bytes of an object in, from its byte `offset` on, as [`AddressSpace::write`] does, but from page to page. Returns how many: fewer
    /// at the object's end, and before the first byte that could not be written.
    ///
    /// # Errors
    ///
    /// As [`Object::read_at`].
    pub fn write_from(&self, to: VirtAddr, object: &Object, offset: u64, len: usize) -> Result<usize> {
        let mut done = 0;
        // The object's frame, which is not reused while we are pinned. Not kept while the store's page is made, which may have to wait for a grace period.
        let mut source: Option<(Guard, u64, Frame)> = None;
        loop {
            let at = offset.saturating_add(done as u64);
            let left = (len - done).min(usize::try_from(object.len().saturating_sub(at)).unwrap_or(usize::MAX));
            let Some((addr, within, room)) = chunk(to, done, done + left) else { break };
            let (index, start) = (at / PAGE_SIZE, (at % PAGE_SIZE) as usize);
            let bytes = room.min(PAGE_SIZE as usize - start);
            if bytes == 0 {
                break;
            }
            let frame = match source {
                Some((_, page, frame)) if page == index => frame,
                _ => {
                    // First, so that who copies much is not pinned all the time: what others free waits for him.
                    source = None;
                    let guard = self.memory.pin();
                    match object.frame(index) {
                        Ok(Some(frame)) => source.insert((guard, index, frame)).2,
                        // Cut meanwhile.
                        Ok(None) => break,
                        Err(error) if done == 0 => return Err(error),
                        Err(_) => break,
                    }
                }
            };
            let copy = |page| self.memory.move_bytes((frame, start), (page, within), bytes);
            if self.with_page_pinned(addr, Access::Write, copy).is_some() {
                done += bytes;
                continue;
            }
            source = None;
            if self.fault(addr, Access::Write).is_err() {
                break;
            }
        }
        Ok(done)
    }

    /// The aligned 32-bit word at `addr`, in one piece; `None` if a load would fault now: call [`AddressSpace::fault`] and try again. Never faults
    /// and never waits itself, so it can be asked under a lock.
    pub fn word_now(&self, addr: VirtAddr) -> Option<u32> {
        // SeqCst, here and below: a program expects of its words what its own locked instructions do.
        self.with_word(addr, Access::Read, |atomic| atomic.load(Ordering::SeqCst))
    }

    /// Changes the aligned 32-bit word at `addr` in one step, as a program's locked instruction would; `change` says what it becomes, or `None` to
    /// leave it, and may be asked more than once. Returns what it was; `None` if a store would fault now, as for [`AddressSpace::word_now`].
    pub fn update_word_now(&self, addr: VirtAddr, change: impl FnMut(u32) -> Option<u32>) -> Option<u32> {
        self.with_word(addr, Access::Write, |atomic| {
            let result = atomic.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
            result.unwrap_or_else(|word| word)
        })
    }

    fn with_word<T>(&self, addr: VirtAddr, access: Access, act: impl FnOnce(&AtomicU32) -> T) -> Option<T> {
        if addr >= USER_END || addr.get() % 4 != 0 {
            return None;
        }
        self.with_page(addr, access, |frame| act(self.memory.word_of_frame(frame, addr.page_offset())))
    }

    /// Like [`AddressSpace::read`], also where the VMA allows no access at all: what a debugger sees. Nothing of what is secret.
    pub fn read_forced(&self, from: VirtAddr, out: &mut [u8]) -> usize {
        let len = out.len();
        let mut done = 0;
        while done < len {
            let Some((addr, offset, bytes)) = chunk(from, done, len) else { break };
            if self.is_secret(addr) {
                break;
            }
            let piece = &mut out[done..done + bytes];
            if self.read(addr, piece) < bytes && !self.read_out_of_reach(addr, offset, piece) {
                break;
            }
            done += bytes;
        }
        done
    }

    /// Reads from a page of a VMA that allows nothing, without making it present: nothing of it may be in reach of user mode.
    fn read_out_of_reach(&self, addr: VirtAddr, offset: usize, out: &mut [u8]) -> bool {
        let guard = self.memory.pin();
        let version = self.vmas.load(&guard);
        let Some(vma) = version.find(addr).filter(|vma| !vma.flags.intersects(VmaFlags::ACCESS)) else { return false };
        let entry = self.tables().look(addr).entry;
        let frame = match &vma.backing {
            _ if entry.is_guard() => return false,
            _ if entry.is_present() => Some(entry.frame()),
            Backing::Anonymous => None,
            Backing::Reference(reference) => reference.page(),
            Backing::Object(object) => match object.frame(vma.page_at(addr)) {
                Ok(Some(frame)) => Some(frame),
                _ => return false,
            },
        };
        match frame {
            Some(frame) => self.memory.read_frame(frame, offset, out),
            None => out.fill(0),
        }
        true
    }

    /// Like [`AddressSpace::write`], also where a private VMA is not writable: the page becomes a private copy, as for a debugger's
    /// store. For loaders of programs. Nothing that is secret.
    pub fn write_forced(&self, to: VirtAddr, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let Some((addr, offset, len)) = chunk(to, done, bytes.len()) else { break };
            if self.is_secret(addr) {
                break;
            }
            let piece = &bytes[done..done + len];
            let plain = self.write(addr, piece);
            if plain == 0 {
                if self.fault_with(addr, Access::Write, Force::Yes).is_err() {
                    break;
                }
                // Shared again already, perhaps: then once more.
                if !self.write_own_page(addr, offset, piece) {
                    continue;
                }
            }
            done += len;
        }
        done
    }

    /// Whether what is mapped at `addr` is for the program alone. One that becomes so right after that has nothing there yet that was.
    pub(super) fn is_secret(&self, addr: VirtAddr) -> bool {
        let guard = self.memory.pin();
        self.vmas.load(&guard).find(addr).is_some_and(|vma| vma.flags.contains(VmaFlags::SECRET))
    }

    /// Writes into a page if it is private and ours alone, under the lock of its table.
    fn write_own_page(&self, addr: VirtAddr, offset: usize, bytes: &[u8]) -> bool {
        let guard = self.memory.pin();
        let mut garbage = Garbage::new();
        let mut supply = Supply::on_demand(&self.memory);
        let written = self.tables().own(addr, Level::L1, &mut supply, &mut garbage).is_ok_and(|table| {
            let entry = table.entry(addr.index(Level::L1));
            let ours = entry.is_present()
                && !entry.is_reference()
                && !entry.is_object()
                && self.memory.record(entry.frame()).is_alone();
            if ours {
                self.memory.write_frame(entry.frame(), offset, bytes);
            }
            ours
        });
        if let Some(page) = crate::addr::PageRange::page_of(addr) {
            self.finish(&mut garbage, &guard, page);
        }
        written
    }

    fn for_each_page(
        &self,
        start: VirtAddr,
        len: usize,
        access: Access,
        mut each: impl FnMut(Frame, usize, usize, usize),
    ) -> usize {
        let mut done = 0;
        while done < len {
            let Some((addr, offset, bytes)) = chunk(start, done, len) else { break };
            if self.with_page(addr, access, |frame| each(frame, offset, done, bytes)).is_some() {
                done += bytes;
            } else if self.fault(addr, access).is_err() {
                break;
            }
        }
        done
    }

    /// What `act` says of the frame at `addr`, if it is present and `access` is allowed. Pinned, so that it is not reused meanwhile.
    ///
    /// A store also holds the lock of the root: fork shares under it, so a store through the direct map comes before the fork, or
    /// finds that it has to fault first. (A processor's stores are stopped by the shootdown.)
    pub(super) fn with_page<T>(&self, addr: VirtAddr, access: Access, act: impl FnOnce(Frame) -> T) -> Option<T> {
        let _guard = self.memory.pin();
        self.with_page_pinned(addr, access, act)
    }

    fn with_page_pinned<T>(&self, addr: VirtAddr, access: Access, act: impl FnOnce(Frame) -> T) -> Option<T> {
        let _root = (access == Access::Write).then(|| self.tables().lock());
        let leaf = self.tables().look(addr);
        let allowed = leaf.rights.user() && (access != Access::Write || leaf.rights.write());
        let marks = if access == Access::Write { Entry::ACCESSED | Entry::DIRTY } else { Entry::ACCESSED };
        // What a processor would note of the access.
        let present = leaf.entry.is_present() && allowed && self.tables().mark(&leaf, addr, marks);
        present.then(|| act(leaf.entry.frame()))
    }
}

/// The next piece within one page: address, offset in the page, bytes. `None` outside the user half.
fn chunk(start: VirtAddr, done: usize, len: usize) -> Option<(VirtAddr, usize, usize)> {
    let addr = start.checked_add(done as u64).filter(|addr| *addr < USER_END)?;
    let offset = addr.page_offset();
    Some((addr, offset, (PAGE_SIZE as usize - offset).min(len - done)))
}
