//! Memory whose faults are somebody else's to answer: userfaultfd's part of the manager. A VMA may name a [`Watcher`]; an access that would make
//! one of its pages present, or store to one that is write-protected, is [`Fault::Watched`] then, and nothing is installed until somebody fills
//! the page, or lifts the protection, from outside.
//!
//! ```text
//!   fault ── VMA is watched? ──no──► as ever
//!              └─yes─► the page is there, and may be stored to? ──yes─► as ever
//!                        └─no──► Fault::Watched: the embedder lets the thread wait, and the access is tried again
//!
//!   fill, show, protect_watched     the answers, each one store for a page
//! ```
//!
//! Write protection is a mark in the entry of a page, which moves and is copied with it. Whoever clears it (the next store, where nobody
//! watches any more) needs no order; setting it is marked as a change in progress, so that no fault that has asked before makes the page writable after.

use crossbeam_epoch::Guard;

use super::fault::{Attempt, execution_and_key, install_anon, user};
use super::modify::Holes;
use super::{Access, AddressSpace, Fault, retry_after_reclaim};
use crate::addr::{Level, PAGE_SIZE, PageRange, VirtAddr};
use crate::backing::Object;
use crate::error::{Error, Result};
use crate::frame::Garbage;
use crate::table::{Entry, Supply, Touch};
use crate::vma::{Backing, VersionRef, Vma, VmaFlags, Watcher};

/// What a watched fault is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watched {
    /// The page has no content yet.
    Missing,
    /// The object has the page, and it is not mapped here.
    Unmapped,
    /// The page is write-protected.
    WriteProtected,
}

/// What a page is filled with.
#[derive(Clone, Copy)]
pub enum Fill<'a> {
    /// These bytes.
    Bytes(&'a [u8; PAGE_SIZE as usize]),
    /// Zeros, which take no memory where it is private.
    Zeros,
    /// Nothing, as if its memory had failed: every access is [`Fault::Poisoned`].
    Poison,
}

/// Whether stores to a page that is filled are watched from the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// They are.
    WriteProtected,
    /// Those to pages of private anonymous memory that are not there yet are, too: these are zeros from now on.
    HolesToo,
    /// They are as the VMA says.
    None,
}

impl AddressSpace {
    /// Hands the faults of `range` that are of `kinds` (of [`VmaFlags::WATCHING`]) to `watcher`. Zeros that were only looked at are missing
    /// again. `suits` says which VMAs can be watched.
    ///
    /// # Errors
    ///
    /// In this order, of the first VMA to which it applies: [`Error::WrongKind`] if it does not suit, [`Error::AccessDenied`] if it cannot be made
    /// writable, [`Error::AlreadyMapped`] if somebody else watches it. [`Error::NotMapped`] if there is none; [`Error::TooManyVmas`];
    /// [`Error::OutOfMemory`].
    pub fn watch(
        &self,
        range: PageRange,
        watcher: Watcher,
        kinds: VmaFlags,
        suits: impl Fn(&Vma) -> bool,
    ) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            let version = self.vmas.load(guard);
            let mut any = false;
            for vma in version.range(range) {
                any = true;
                if !suits(vma) {
                    return Err(Error::WrongKind);
                }
                if !vma.flags.contains(VmaFlags::MAY_WRITE) {
                    return Err(Error::AccessDenied);
                }
                if ![Watcher::NOBODY, watcher].contains(&vma.tag.watcher()) {
                    return Err(Error::AlreadyMapped);
                }
            }
            if !any {
                return Err(Error::NotMapped);
            }
            let mut garbage = Garbage::new();
            let done = self.watch_checked(guard, version, range, watcher, kinds & VmaFlags::WATCHING, &mut garbage);
            self.finish(&mut garbage, guard, range);
            done
        })
    }

    fn watch_checked(
        &self,
        guard: &Guard,
        before: VersionRef<'_>,
        range: PageRange,
        watcher: Watcher,
        kinds: VmaFlags,
        garbage: &mut Garbage,
    ) -> Result<()> {
        self.tables().own_range(range, Touch::All, garbage)?;
        let turned = self.modify(guard, range, Holes::Skip, |piece, _| {
            piece.flags = (piece.flags - VmaFlags::WATCHING) | kinds;
            piece.tag = piece.tag.with_watcher(watcher);
            Ok(())
        });
        match turned {
            Ok(()) | Err(Error::NotMapped) => {}
            Err(error) => return Err(error),
        }
        // Marks of one who watched before, and zeros that nobody has stored.
        for vma in before.range(range).filter(|vma| !vma.flags.contains(VmaFlags::WATCH_MISSING)) {
            let Some(part) = vma.range.intersect(range) else { continue };
            self.tables().change_leaves(part, garbage, |table, index, entry| {
                if entry.is_reference() {
                    table.put(index, Entry::NONE);
                } else if entry.is_marked() {
                    table.change(index, 0, Entry::MARK);
                }
            });
        }
        garbage.stale = true;
        Ok(())
    }

    /// Ends that `watcher` watches, in `range`. What is present stays.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyVmas`], [`Error::OutOfMemory`].
    pub fn unwatch(&self, range: PageRange, watcher: Watcher) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            let turned = self.modify(guard, range, Holes::Skip, |piece, _| {
                if piece.tag.watcher() == watcher {
                    piece.flags -= VmaFlags::WATCHING;
                    piece.tag = piece.tag.with_watcher(Watcher::NOBODY);
                }
                Ok(())
            });
            match turned {
                Err(Error::NotMapped) => Ok(()),
                other => other,
            }
        })
    }

    /// Fills a page that is missing. Whoever waits for it finds it whole.
    ///
    /// # Errors
    ///
    /// [`Error::NotMapped`] if nobody watches there, [`Error::WrongKind`] if stores are to be watched and are not watched there,
    /// [`Error::AlreadyMapped`] if it is not missing, [`Error::BadRange`] past the end of an object, [`Error::OutOfMemory`].
    pub fn fill(&self, at: VirtAddr, fill: Fill<'_>, protection: Protection) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            let version = self.vmas.load(guard);
            let vma = version.find(at).filter(|vma| vma.flags.intersects(VmaFlags::WATCHED)).ok_or(Error::NotMapped)?;
            if protection != Protection::None && !vma.flags.contains(VmaFlags::WATCH_WRITES) {
                return Err(Error::WrongKind);
            }
            match &vma.backing {
                Backing::Object(object) if object.is_past_end(vma.page_at(at)) => Err(Error::BadRange),
                Backing::Object(object) if vma.flags.contains(VmaFlags::SHARED) && !matches!(fill, Fill::Poison) => {
                    object.put_new_page(vma.page_at(at), fill)?;
                    self.show_page(guard, version, vma, object, at)?;
                    match protection {
                        Protection::None => Ok(()),
                        marked => self.mark(guard, PageRange::page_of(at), marked),
                    }
                }
                _ => self.fill_private(guard, vma, at, fill, protection),
            }
        })
    }

    fn fill_private(
        &self,
        guard: &Guard,
        vma: &Vma,
        at: VirtAddr,
        fill: Fill<'_>,
        protection: Protection,
    ) -> Result<()> {
        let memory = &*self.memory;
        let prepared = match fill {
            Fill::Bytes(bytes) => {
                let frame = memory.alloc_frame()?;
                memory.write_frame(frame, 0, bytes);
                Some(frame)
            }
            Fill::Zeros | Fill::Poison => None,
        };
        let mut garbage = Garbage::new();
        let mut supply = Supply::on_demand(memory);
        let mut done = Err(Error::AlreadyMapped);
        match self.tables().own(at, Level::L1, &mut supply, &mut garbage) {
            Err(error) => done = Err(error),
            Ok(mut table) => {
                let index = at.index(Level::L1);
                // Bytes, as on Linux, also where what was there is lost.
                let there = table.entry(index);
                if there.is_empty() || there.is_poison() && prepared.is_some() {
                    let (write, mark) = match protection {
                        Protection::WriteProtected | Protection::HolesToo => (0, Entry::MARK),
                        Protection::None if vma.flags.contains(VmaFlags::WRITE) => (Entry::WRITE, 0),
                        Protection::None => (0, 0),
                    };
                    let marks = Entry::ACCESSED | Entry::DIRTY | mark | execution_and_key(vma);
                    match prepared {
                        Some(frame) => {
                            let flags = user(vma.flags) | write | marks;
                            install_anon(memory, &mut table, at, frame, flags, Entry::NONE, &mut garbage);
                        }
                        None if matches!(fill, Fill::Poison) => drop(table.put(index, Entry::POISON)),
                        None => {
                            let zeros = Entry::reference(memory.zero().at(Level::L1));
                            table.put(index, zeros.with(mark | execution_and_key(vma)));
                        }
                    }
                    done = Ok(());
                }
            }
        }
        if done.is_err() {
            if let Some(frame) = prepared {
                memory.free_frame(frame);
            }
        }
        if let Some(page) = PageRange::page_of(at) {
            self.finish(&mut garbage, guard, page);
        }
        done
    }

    /// Maps the page that the object has at `at`.
    ///
    /// # Errors
    ///
    /// [`Error::NotMapped`] if nobody watches for such pages there, [`Error::AlreadyMapped`] if it is mapped, [`Error::BadRange`] if the object has
    /// none, [`Error::OutOfMemory`].
    pub fn show(&self, at: VirtAddr) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            let version = self.vmas.load(guard);
            let watched = |vma: &&Vma| vma.flags.contains(VmaFlags::WATCH_UNMAPPED);
            let vma = version.find(at).filter(watched).ok_or(Error::NotMapped)?;
            let Backing::Object(object) = &vma.backing else { return Err(Error::NotMapped) };
            if self.tables().look(at).entry.is_present() {
                return Err(Error::AlreadyMapped);
            }
            if !object.holds(vma.page_at(at)) {
                return Err(Error::BadRange);
            }
            self.show_page(guard, version, vma, object, at)
        })
    }

    fn show_page(
        &self,
        guard: &Guard,
        version: VersionRef<'_>,
        vma: &Vma,
        object: &Object,
        at: VirtAddr,
    ) -> Result<()> {
        let mut garbage = Garbage::new();
        let done = loop {
            match self.install_object(version, vma, object, at, &mut garbage, Access::Read) {
                Ok(Attempt::Done) => break Ok(()),
                // Nobody else changes the layout: an object has lost the page.
                Ok(Attempt::Again) => continue,
                Err(Fault::OutOfMemory) => break Err(Error::OutOfMemory),
                Err(_) => break Err(Error::BadRange),
            }
        };
        if let Some(page) = PageRange::page_of(at) {
            self.finish(&mut garbage, guard, page);
        }
        done
    }

    /// Write-protects the pages that are present in `range`, or lifts that.
    ///
    /// # Errors
    ///
    /// [`Error::NotMapped`] unless stores are watched in all that is mapped there, and something is; [`Error::OutOfMemory`].
    pub fn protect_watched(&self, range: PageRange, protection: Protection) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            let mut mapped = self.vmas.load(guard).range(range).peekable();
            if mapped.peek().is_none() || !mapped.all(|vma| vma.flags.contains(VmaFlags::WATCH_WRITES)) {
                return Err(Error::NotMapped);
            }
            self.mark(guard, Some(range), protection)
        })
    }

    /// The caller holds the writers' lock.
    fn mark(&self, guard: &Guard, range: Option<PageRange>, protection: Protection) -> Result<()> {
        let Some(range) = range else { return Ok(()) };
        let (set, clear) = match protection {
            Protection::WriteProtected | Protection::HolesToo => (Entry::MARK, Entry::WRITE),
            Protection::None => (0, Entry::MARK),
        };
        let mut garbage = Garbage::new();
        // Faults that have asked before, and would make a page writable, start again.
        self.in_change.begin(range);
        let owned = match protection {
            Protection::HolesToo => self.fill_holes(guard, range, &mut garbage),
            _ => self.tables().own_range(range, Touch::Pages, &mut garbage),
        };
        if owned.is_ok() {
            self.tables().change_leaves(range, &mut garbage, |table, index, entry| {
                // The mark is there when the write bit goes, and only then.
                if entry.is_marked() != (set != 0) {
                    table.change(index, set, clear);
                }
            });
        }
        garbage.stale = true;
        self.finish(&mut garbage, guard, range);
        self.in_change.end();
        owned
    }

    /// Puts zeros in all holes of `range` that are private anonymous memory, and makes all its tables exclusive.
    fn fill_holes(&self, guard: &Guard, range: PageRange, garbage: &mut Garbage) -> Result<()> {
        let zeros = Entry::reference(self.memory.zero().at(Level::L1));
        for vma in self.vmas.load(guard).range(range) {
            let Some(part) = vma.range.intersect(range) else { continue };
            if !matches!(vma.backing, Backing::Anonymous) {
                self.tables().own_range(part, Touch::Pages, garbage)?;
                continue;
            }
            self.tables().own_range(part, Touch::Every, garbage)?;
            self.tables().fill_holes(part, zeros.with(execution_and_key(vma)), garbage);
        }
        Ok(())
    }

    /// Whether an access to a watched VMA is its watcher's to answer.
    #[cold]
    #[inline(never)]
    pub(super) fn ask_watcher(&self, vma: &Vma, addr: VirtAddr, access: Access) -> Result<(), Fault> {
        let entry = self.tables().look(addr).entry;
        let watches = |flag| vma.flags.contains(flag);
        let kind = if entry.is_present() {
            (access == Access::Write && entry.is_marked() && watches(VmaFlags::WATCH_WRITES))
                .then_some(Watched::WriteProtected)
        } else if entry.is_marker() {
            None
        } else {
            match &vma.backing {
                Backing::Object(object) if object.is_past_end(vma.page_at(addr)) => None,
                Backing::Object(object) if object.holds(vma.page_at(addr)) => {
                    watches(VmaFlags::WATCH_UNMAPPED).then_some(Watched::Unmapped)
                }
                _ => watches(VmaFlags::WATCH_MISSING).then_some(Watched::Missing),
            }
        };
        match kind {
            Some(kind) => Err(Fault::Watched { watcher: vma.tag.watcher(), kind }),
            None => Ok(()),
        }
    }
}
