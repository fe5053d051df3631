//! From a frame up to the address spaces that map it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::addr::{Level, VirtAddr};
use crate::error::{Error, Result};
use crate::frame::{Frame, Memory, Slot};
use crate::space::AddressSpace;

impl Memory {
    /// Calls `visit` with each address space that maps `frame`, and where; once for each place. Exact when nothing changes meanwhile; else it may
    /// leave out what comes or goes. The zero page, reference pages and what they are linked by are not tracked. Time: the slots on all paths
    /// up to the roots, and the copies in their lineages.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] without heap for the slots of one level; some places may have been visited then.
    pub fn mappings(&self, frame: Frame, mut visit: impl FnMut(&Arc<AddressSpace>, VirtAddr)) -> Result<()> {
        // Tables that die meanwhile stay readable.
        let _guard = self.pin();
        self.climb(frame, 0, &mut visit)
    }

    /// From `node`, `below` bytes into which the address lies.
    fn climb(&self, node: Frame, below: u64, visit: &mut dyn FnMut(&Arc<AddressSpace>, VirtAddr)) -> Result<()> {
        // Not while they are found: that is under the lock of a lineage.
        let mut slots: Vec<Slot> = Vec::new();
        let mut full = false;
        self.slots(node, |slot| match slots.try_reserve(1) {
            Ok(()) => slots.push(slot),
            Err(_) => full = true,
        });
        if full {
            return Err(Error::OutOfMemory);
        }
        for Slot { table, index } in slots {
            let Some(level) = self.record(table).table_level() else { continue };
            let below = below + index.get() as u64 * level.entry_span();
            if level != Level::L4 {
                self.climb(table, below, visit)?;
            } else if let Some(space) = self.space_of_root(table) {
                visit(&space, VirtAddr(below));
            }
        }
        Ok(())
    }
}
