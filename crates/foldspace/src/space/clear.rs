//! exit: letting go of everything.

use super::AddressSpace;
use crate::addr::ENTRIES;
use crate::frame::{Frame, Garbage, Memory};
use crate::platform::Flush;
use crate::sync::atomic::Ordering;
use crate::table::{Entry, for_each_of, release_entry};

impl AddressSpace {
    /// Unmaps everything. Time: the nodes that nobody else shares. Waits for no grace period.
    pub fn clear(&self) {
        let guard = self.memory.pin();
        let _layout = self.writer.lock();
        self.memory.uncharge(self.vmas.load(&guard).summary().totals.pages.accounted);
        self.vmas.clear(&guard);
        // Relaxed: under the writers' lock, as whoever asks.
        self.has_guards.store(false, Ordering::Relaxed);
        let mut garbage = Garbage::new();
        while self.give_up_user_half(&mut garbage) {
            garbage.settle(&self.memory, self.id, Flush::All);
        }
        garbage.settle(&self.memory, self.id, Flush::All);
        garbage.retire(&self.memory, &guard);
    }

    /// Takes entries out of the root; true if there may be more than can be given up before a shootdown.
    fn give_up_user_half(&self, garbage: &mut Garbage) -> bool {
        let mut root = self.tables().lock();
        let used = self.memory.record(self.root).counts().used();
        for_each_of(used, &self.memory.entries(self.root)[..ENTRIES / 2], |index, _| {
            if !garbage.is_full() {
                let entry = root.put(index, Entry::NONE);
                garbage.give_up(&self.memory, entry, root.level(), root.slot(index));
            }
        });
        garbage.is_full()
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        self.memory.registry.leave(self);
        let guard = self.memory.pin();
        self.memory.uncharge(self.vmas.load(&guard).summary().totals.pages.accounted);
        let mut garbage = Garbage::new();
        // Nobody runs it: there is nothing to shoot down first.
        let mut root = self.tables().lock();
        let used = self.memory.record(self.root).counts().used();
        for_each_of(used, &self.memory.entries(self.root)[..ENTRIES / 2], |index, _| {
            let entry = root.put(index, Entry::NONE);
            let place = self.memory.place(root.slot(index));
            release_entry(&self.memory, entry, root.level(), place, &mut garbage);
        });
        drop(root);
        empty_root(&self.memory, self.root);
        self.memory.leave_lineage(self.root);
        garbage.push_table(&self.memory, self.root);
        garbage.retire(&self.memory, &guard);
        // An exit moves the epoch on: its tables, full of zeros, are what the next fork wants.
        self.memory.hand_over(&guard);
        drop(guard);
        self.memory.ended();
    }
}

/// Takes the embedder's entries out of a root that nobody uses, as a frame for tables has to be all zeros.
pub(super) fn empty_root(memory: &Memory, root: Frame) {
    for (index, _) in memory.kernel_entries() {
        // Relaxed: nobody else has it, and it goes on under the locks of caches.
        memory.entries(root)[index.get()].store(0, Ordering::Relaxed);
    }
}
