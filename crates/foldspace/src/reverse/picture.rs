//! One instant of everything that leads to a frame: all tables on all paths to it, locked, so that what they say together is true.
//!
//! ```text
//!   root A     root B        1 upwards, without locks: slots of the frame, slots of their tables, and so on
//!       \       /            2 downwards: each table found is locked, those nearest to the roots first, if nobody has it
//!        L3 (2)              3 each slot found still holds what it held, and each node has as many references as slots were found
//!         |                  not so: all is unlocked, and begun again
//!        L2 (1)
//!         |                  A reference is counted before its slot is filled, and stays counted until the shootdown that its end owes is done.
//!        L1 (1)              So when the numbers agree there is no other slot, and no processor that remembers one that is gone. New slots
//!         |                  begin as copies of old ones, under the locks that are held: none comes while the picture lives.
//!        frame (1)
//! ```
//!
//! Nothing of this is on the way of those who fault, fork or unmap; they find a lock taken, at worst.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::addr::{Level, VirtAddr};
use crate::error::{Error, Result};
use crate::frame::{Frame, Kind, Memory, Record, Slot};
use crate::space::AddressSpace;
use crate::table::Entry;

/// `slot` refers to `node`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    node: Frame,
    slot: Slot,
}

/// All tables on all paths from roots to one frame, locked.
///
/// # Invariants
///
/// The lock of each table in `locked` is held. Each link holds, and there is no other link to the tables of the picture.
pub(crate) struct Picture<'m> {
    memory: &'m Memory,
    frame: Frame,
    /// By the level of the table that has the slot, ascending each.
    links: [Vec<Link>; LEVELS.len()],
    locked: Vec<Frame>,
}

const LEVELS: [Level; 4] = [Level::L1, Level::L2, Level::L3, Level::L4];

/// How often a picture is begun again before it is given up: others change what it would show, or are about to shoot down what they have changed. Seldom
/// enough for a caller that is pinned, and may hold up all who cut an object: how long a picture takes depends on how many share the frame.
const PATIENCE: u32 = if cfg!(foldspace_shuttle) { 1 << 3 } else { 1 << 6 };

/// How often who wants a picture in earnest asks again, pinned anew and with nothing held in between.
const ROUNDS: u32 = if cfg!(foldspace_shuttle) { 1 << 2 } else { 1 << 8 };

/// Does `attempt`, again where others were in its way (`busy`), as often as that is worth it. Each attempt pins by itself.
pub(crate) fn in_earnest<T, E: PartialEq>(busy: E, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 1..ROUNDS {
        match attempt() {
            Err(error) if error == busy => crate::sync::hint::spin_loop(),
            outcome => return outcome,
        }
    }
    attempt()
}

impl Memory {
    /// Calls `act` with what leads to `frame` at one instant, which lasts until `act` returns; with [`Error::Busy`] if it could not be had within
    /// reason. `is_whole` is asked whether the slots found are all that the frame has, under the locks of their tables.
    ///
    /// The caller is pinned, and holds no lock but that of an object that is being cut.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]; [`Error::OutOfMemory`]; what `act` says.
    pub(crate) fn with_picture<T>(
        &self,
        frame: Frame,
        mut act: impl FnMut(&Picture<'_>) -> Option<Result<T>>,
    ) -> Result<T> {
        for _ in 0..PATIENCE {
            if let Some(picture) = self.picture(frame)? {
                if let Some(outcome) = act(&picture) {
                    return outcome;
                }
            }
            crate::sync::hint::spin_loop();
        }
        Err(Error::Busy)
    }

    /// `None`: somebody was changing it.
    fn picture(&self, frame: Frame) -> Result<Option<Picture<'_>>> {
        let mut picture = Picture { memory: self, frame, links: [const { Vec::new() }; 4], locked: Vec::new() };
        let from = match self.records().get(frame.0 as usize).map(Record::kind) {
            Some(Kind::Anon | Kind::Object) => 0,
            Some(Kind::Table1) => 1,
            Some(Kind::Table2) => 2,
            Some(Kind::Table3) => 3,
            _ => return Ok(Some(picture)),
        };
        // In the order of their levels, upwards.
        let (mut nodes, mut tables) = (Vec::new(), Vec::new());
        push(&mut nodes, frame)?;
        for (links, level) in picture.links.iter_mut().zip(LEVELS).skip(from) {
            for node in &nodes {
                let mut pushed = Ok(());
                // Not more than that while they are found: it is under the lock of a lineage.
                self.slots(*node, |slot| pushed = pushed.and_then(|()| push(links, Link { node: *node, slot })));
                pushed?;
            }
            // A dead table's record may lead anywhere by now. What is a table while we are pinned will be no other one meanwhile.
            if links.iter().any(|link| self.record(link.slot.table).table_level() != Some(level)) {
                return Ok(None);
            }
            links.sort_unstable();
            nodes.clear();
            links.iter().try_for_each(|link| push(&mut nodes, link.slot.table))?;
            nodes.sort_unstable();
            nodes.dedup();
            nodes.iter().rev().try_for_each(|table| push(&mut tables, *table))?;
        }
        picture.locked.try_reserve_exact(tables.len()).map_err(|_| Error::OutOfMemory)?;
        // Parents before children.
        for table in tables.into_iter().rev() {
            if !self.record(table).try_lock() {
                return Ok(None);
            }
            picture.locked.push(table);
        }
        Ok(picture.holds().then_some(picture))
    }
}

impl Picture<'_> {
    /// Whether every link holds, and the tables have no others.
    fn holds(&self) -> bool {
        let linked = |link: &Link| {
            let entry = Entry::load(&self.memory.entries(link.slot.table)[link.slot.index.get()]);
            entry.is_tracked() && entry.frame() == link.node
        };
        let table_is_whole = |group: &[Link]| group.is_empty() || self.memory.is_whole(group[0].node, group.len());
        self.links.iter().flatten().all(linked)
            && self.links.iter().skip(1).all(|links| links.chunk_by(|a, b| a.node == b.node).all(table_is_whole))
            && self.links.iter().zip(&self.links[1..]).all(|(below, above)| {
                below.iter().all(|link| {
                    let table = link.slot.table;
                    above.binary_search_by_key(&table, |above| above.node).is_ok() || self.is_nowhere_linked(table)
                })
            })
    }

    /// Whether a table to which no slot was found is one of an object's that nobody has linked. Others are dead, or about to be linked.
    fn is_nowhere_linked(&self, table: Frame) -> bool {
        self.memory.record(table).is_pinned() && self.memory.is_whole(table, 0)
    }

    /// Whether the frame has no slots but those found. Of an object's frame, under the lock of the object's pages too.
    pub(crate) fn is_whole(&self) -> bool {
        self.memory.is_whole(self.frame, self.slots().count())
    }

    /// The slots that refer to the frame.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let links = self.links.iter().find(|links| !links.is_empty());
        links.into_iter().flatten().filter(|link| link.node == self.frame).map(|link| link.slot)
    }

    /// Appends the address spaces that it leads to; not those that are being dropped, which nobody runs, nor those that are being made, which nobody
    /// has run.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; some may have been appended then.
    pub(crate) fn spaces(&self, spaces: &mut Vec<Arc<AddressSpace>>) -> Result<()> {
        let mut last = None;
        for link in &self.links[Level::L4 as usize - 1] {
            let root = link.slot.table;
            if last.replace(root) == Some(root) || spaces.iter().any(|space| space.root() == root) {
                continue;
            }
            spaces.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
            spaces.extend(self.memory.space_of_root(root));
        }
        Ok(())
    }

    /// Whether one of the paths is that of an address below a root.
    pub(crate) fn leads_to(&self, place: (Frame, VirtAddr)) -> bool {
        let mut found = false;
        self.for_each_path(&mut |root, at| found |= (root, at) == place);
        found
    }

    /// Calls `visit` with the root of each path, and the address that it is the path of.
    fn for_each_path(&self, visit: &mut dyn FnMut(Frame, VirtAddr)) {
        self.climb(self.frame, 0, visit);
    }

    fn climb(&self, node: Frame, below: u64, visit: &mut dyn FnMut(Frame, VirtAddr)) {
        for (links, level) in self.links.iter().zip(LEVELS) {
            let first = links.partition_point(|link| link.node < node);
            for link in links[first..].iter().take_while(|link| link.node == node) {
                let at = below + link.slot.index.get() as u64 * level.entry_span();
                match level {
                    Level::L4 => visit(link.slot.table, VirtAddr(at)),
                    _ => self.climb(link.slot.table, at, visit),
                }
            }
        }
    }
}

impl Drop for Picture<'_> {
    fn drop(&mut self) {
        for table in self.locked.iter().rev() {
            self.memory.record(*table).unlock();
        }
    }
}

impl Memory {
    fn is_whole(&self, node: Frame, slots: usize) -> bool {
        self.has_all_slots(node, slots)
    }

    /// Calls `visit` with each address space that maps `frame`, and where; once for each place, in no order. All of it is of one instant between call
    /// and return, whatever others do meanwhile. The zero page, reference pages and what they are linked by are not tracked. Time: the slots
    /// on all paths up to the roots, the copies in their lineages, and as much again each time that somebody changed one of them.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if somebody changed them again and again; [`Error::OutOfMemory`] without heap to write them down. Nothing was visited then.
    pub fn mappings(&self, frame: Frame, mut visit: impl FnMut(&Arc<AddressSpace>, VirtAddr)) -> Result<()> {
        in_earnest(Error::Busy, || self.mappings_once(frame, &mut visit))
    }

    fn mappings_once(&self, frame: Frame, visit: &mut dyn FnMut(&Arc<AddressSpace>, VirtAddr)) -> Result<()> {
        // Tables that die meanwhile stay what they are.
        let _guard = self.pin();
        let mut spaces = Vec::new();
        let mut places: Vec<(Frame, VirtAddr)> = Vec::new();
        if self.records().get(frame.0 as usize).is_none_or(|record| !record.kind().is_tracked()) {
            return Ok(());
        }
        self.with_picture(frame, |picture| {
            if !picture.is_whole() {
                return None;
            }
            places.clear();
            let mut pushed = Ok(());
            picture.for_each_path(&mut |root, at| pushed = pushed.and_then(|()| push(&mut places, (root, at))));
            Some(pushed.and_then(|()| picture.spaces(&mut spaces)))
        })?;
        for (root, at) in places {
            if let Some(space) = spaces.iter().find(|space| space.root() == root) {
                visit(space, at);
            }
        }
        Ok(())
    }
}

fn push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    list.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
    list.push(item);
    Ok(())
}
