//! Which objects (files' pages, shared memory) exist: the manager's checker wants to see them all. Kept only where it will run.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use foldspace::Object;
use foldspace::vma::{Backing, Vma, VmaFlags};
use spin::{Mutex, Once};

use crate::power;
use crate::process::tree;

static OBJECTS: Mutex<Vec<Weak<Object>>> = Mutex::new(Vec::new());

/// Whoever makes an object calls this.
pub fn made(object: &Arc<Object>) {
    static WANTED: Once<bool> = Once::new();
    if !*WANTED.call_once(power::checks_at_end) {
        return;
    }
    let mut objects = OBJECTS.lock();
    if objects.len() == objects.capacity() {
        objects.retain(|object| object.strong_count() > 0);
    }
    objects.push(Arc::downgrade(object));
}

/// Whether a shared mapping of an object is writable or may become so. O(VMAs of all processes).
pub fn is_mapped_writable(object: &Arc<Object>) -> bool {
    let writable = VmaFlags::SHARED | VmaFlags::MAY_WRITE;
    let is_it = |vma: &Vma| {
        vma.flags.contains(writable) && matches!(&vma.backing, Backing::Object(other) if Arc::ptr_eq(other, object))
    };
    tree::all().iter().filter_map(|task| task.live_space()).any(|space| space.vmas().view().iter().any(is_it))
}

/// All that are alive.
pub fn all() -> Vec<Arc<Object>> {
    OBJECTS.lock().iter().filter_map(Weak::upgrade).collect()
}
