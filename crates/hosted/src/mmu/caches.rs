//! What a processor remembers of its walks: translations (TLB) and upper levels (paging-structure caches).

use std::collections::{HashMap, VecDeque};

use foldspace::addr::{Level, PAGE_SHIFT};
use foldspace::platform::{Flush, SpaceId};
use foldspace::space::{Access, AddressSpace};
use foldspace::{Frame, VirtAddr};

use super::walk::{self, Cause, PageFault, Rights, Translation, Upper};
use crate::arena::Arena;
use crate::sync::{Mutex, MutexGuard};

/// How much a processor remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheSize {
    /// Everything, also of address spaces that it does not run at the moment (as with process-context identifiers), until a shootdown: the most
    /// stale that a processor may legally be.
    Unbounded,
    /// This many translations, the oldest goes first; everything is dropped when the processor changes to another address space (as without
    /// process-context identifiers).
    Bounded(usize),
}

/// A cached translation that the tables do not bear out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stale {
    /// Whose.
    pub space: SpaceId,
    /// First address that it translates.
    pub addr: VirtAddr,
    /// `None`: a translation to a data frame; otherwise it leads to a table of this level.
    pub table: Option<Level>,
    /// The frame, and the rights, that the processor believes in.
    pub cached: (Frame, Rights),
    /// What the tables say.
    pub tables: Result<(Frame, Rights), Cause>,
}

/// A processor's caches, where a shootdown can reach them.
pub(crate) struct SharedCaches(Mutex<Caches>);

impl SharedCaches {
    pub(crate) fn new(size: CacheSize) -> SharedCaches {
        SharedCaches(Mutex::new(Caches { size, spaces: HashMap::new() }))
    }

    /// For the whole of an access: translation, and the loads or stores that use it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Caches> {
        self.0.lock()
    }
}

/// See [`SharedCaches`].
pub(crate) struct Caches {
    size: CacheSize,
    spaces: HashMap<SpaceId, SpaceCaches>,
}

/// What is remembered of one address space.
#[derive(Default)]
struct SpaceCaches {
    /// By page number.
    leaves: HashMap<u64, Translation>,
    /// Page numbers in the order in which they came, if the number of leaves is bounded; may name some that have gone.
    order: VecDeque<u64>,
    /// Tables of level 1, 2 and 3, by the address bits that lead to them.
    uppers: [HashMap<u64, Upper>; 3],
}

/// Levels of tables that can be cached, deepest first: a walk starts from the deepest that is known.
const CACHED: [Level; 3] = [Level::L1, Level::L2, Level::L3];

/// The part of an address that leads to a table of `level`.
fn prefix(addr: VirtAddr, level: Level) -> u64 {
    addr.get() >> (level.entry_shift() + 9)
}

/// How a look-up was answered.
pub(crate) enum Answer {
    /// From the translations.
    Hit(Translation),
    /// By a walk.
    Walked(Translation),
}

impl Caches {
    /// Translates for a program that runs `space`, whose root is `root`. A fault drops what is cached for that address, as the processor does
    /// (SDM vol. 3, "Invalidation of TLBs and Paging-Structure Caches": page faults).
    pub(crate) fn translate(
        &mut self,
        arena: &Arena,
        (space, root): (SpaceId, Frame),
        addr: VirtAddr,
        access: Access,
    ) -> Result<Answer, PageFault> {
        let fault = |cause| PageFault { addr, access, cause };
        if !walk::is_canonical(addr) {
            return Err(fault(Cause::NotCanonical));
        }
        let size = self.size;
        let caches = self.spaces.entry(space).or_default();
        let page = addr.get() >> PAGE_SHIFT;
        if let Some(&known) = caches.leaves.get(&page) {
            if let Err(cause) = known.rights.permit(access) {
                caches.forget(addr);
                return Err(fault(cause));
            }
            // The first store through a clean translation goes to the tables, to mark the page there.
            if access != Access::Write || known.dirty {
                return Ok(Answer::Hit(known));
            }
        }
        let (start, level) = caches.deepest(addr).unwrap_or((Upper { table: root, rights: Rights::ALL }, Level::L4));
        let uppers = &mut caches.uppers;
        let walked = walk::walk(arena, start, level, addr, access, |level, upper| {
            uppers[level as usize - 1].insert(prefix(addr, level), upper);
        });
        match walked {
            Ok(translation) => {
                caches.remember(size, page, translation);
                Ok(Answer::Walked(translation))
            }
            Err(cause) => {
                caches.forget(addr);
                Err(fault(cause))
            }
        }
    }

    /// Does the upper half of what a shootdown says: whichever it is, all upper levels go.
    pub(crate) fn flush_uppers(&mut self, space: SpaceId) {
        let Some(caches) = self.spaces.get_mut(&space) else { return };
        for upper in &mut caches.uppers {
            upper.clear();
        }
    }

    /// Does the other half: translations.
    pub(crate) fn flush_leaves(&mut self, space: SpaceId, flush: Flush) {
        let Some(caches) = self.spaces.get_mut(&space) else { return };
        match flush {
            Flush::All => caches.leaves.clear(),
            Flush::Range(range) => {
                let pages = range.start().get() >> PAGE_SHIFT..range.end().get() >> PAGE_SHIFT;
                if range.pages() < caches.leaves.len() as u64 {
                    for page in pages {
                        caches.leaves.remove(&page);
                    }
                } else {
                    caches.leaves.retain(|page, _| !pages.contains(page));
                }
            }
        }
    }

    /// A change to another address space.
    pub(crate) fn changed_space(&mut self) {
        match self.size {
            CacheSize::Unbounded => {}
            CacheSize::Bounded(_) => self.spaces.clear(),
        }
    }

    /// Appends what is cached for `space` and not borne out by its tables.
    pub(crate) fn audit(&self, arena: &Arena, space: &AddressSpace, found: &mut Vec<Stale>) {
        let Some(caches) = self.spaces.get(&space.id()) else { return };
        for (&page, &cached) in &caches.leaves {
            let addr = VirtAddr(page << PAGE_SHIFT);
            let tables = walk::translate(arena, space.root(), addr);
            let borne_out = tables.is_ok_and(|tables| {
                // A translation that is dirty where the tables are clean would hide the next store from them.
                cached.frame == tables.frame && cached.rights.within(tables.rights) && cached.dirty <= tables.dirty
            });
            if !borne_out {
                let tables = tables.map(|tables| (tables.frame, tables.rights));
                let cached = (cached.frame, cached.rights);
                found.push(Stale { space: space.id(), addr, table: None, cached, tables });
            }
        }
        for level in CACHED {
            for (&prefix, &cached) in &caches.uppers[level as usize - 1] {
                let addr = VirtAddr(prefix << (level.entry_shift() + 9));
                let tables = walk::table_at(arena, space.root(), level, addr);
                if !tables.is_ok_and(|tables| cached.table == tables.table && cached.rights.within(tables.rights)) {
                    let tables = tables.map(|tables| (tables.table, tables.rights));
                    let cached = (cached.table, cached.rights);
                    found.push(Stale { space: space.id(), addr, table: Some(level), cached, tables });
                }
            }
        }
    }
}

impl SpaceCaches {
    /// The deepest table on the path of `addr` that is cached, and its level.
    fn deepest(&self, addr: VirtAddr) -> Option<(Upper, Level)> {
        CACHED.into_iter().find_map(|level| {
            let upper = self.uppers[level as usize - 1].get(&prefix(addr, level))?;
            Some((*upper, level))
        })
    }

    fn remember(&mut self, size: CacheSize, page: u64, translation: Translation) {
        let new = self.leaves.insert(page, translation).is_none();
        let CacheSize::Bounded(most) = size else { return };
        if new {
            self.order.push_back(page);
        }
        while self.leaves.len() > most || self.order.len() > most.saturating_mul(4).max(64) {
            let Some(oldest) = self.order.pop_front() else { break };
            self.leaves.remove(&oldest);
        }
    }

    /// Drops the translation of `addr`'s page, and the tables on its path.
    fn forget(&mut self, addr: VirtAddr) {
        self.leaves.remove(&(addr.get() >> PAGE_SHIFT));
        for level in CACHED {
            self.uppers[level as usize - 1].remove(&prefix(addr, level));
        }
    }
}
