//! Who maps an object.

use alloc::sync::Arc;

use super::Object;
use crate::addr::VirtAddr;
use crate::space::AddressSpace;
use crate::sync::atomic::Ordering;
use crate::vma::{Vma, VmaFlags};

impl Object {
    /// Whether a shared mapping of it may be written, or be made writable by mprotect: then memfd's F_SEAL_WRITE is refused (EBUSY). A mapping
    /// that is made meanwhile may be overlooked: the caller sees to it that there is none. O(address spaces, and areas of objects in them).
    pub fn mapped_writable(&self) -> bool {
        let writable = VmaFlags::SHARED.union(VmaFlags::MAY_WRITE);
        self.any_mapping(|vma| vma.flags.contains(writable))
    }

    /// Whether anybody maps it shared. As [`Object::mapped_writable`].
    pub fn mapped_shared(&self) -> bool {
        self.any_mapping(|vma| vma.flags.contains(VmaFlags::SHARED))
    }

    /// Before an address space publishes an area that shows it.
    pub(crate) fn note_mapped(&self) {
        // Mostly it is known: programs map the same files.
        // Relaxed: whoever installs a page has taken the lock of the cache after this, and who cuts takes it before he asks.
        if !self.mapped.load(Ordering::Relaxed) {
            self.mapped.store(true, Ordering::Relaxed);
        }
    }

    /// Whether an address space may show it. Whoever has cut a piece out of the cache before asking, and is told no, need not look for it in
    /// tables: a fault that has found the piece in the cache, under its lock, came after the note.
    pub(super) fn was_mapped(&self) -> bool {
        self.mapped.load(Ordering::Relaxed)
    }

    fn any_mapping(&self, is_it: impl Fn(&Vma) -> bool) -> bool {
        let is_shown = |space: Arc<AddressSpace>| {
            let version = space.vmas();
            let mut from = VirtAddr(0);
            while let Some(vma) = version.view().find_object(self, from) {
                if is_it(vma) {
                    return true;
                }
                from = vma.end();
            }
            false
        };
        self.was_mapped() && self.memory.spaces().any(is_shown)
    }
}
