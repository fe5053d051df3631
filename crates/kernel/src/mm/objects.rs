//! Which objects (files' pages, shared memory) exist: the manager's checker wants to see them all. Kept only where it will run.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use crate::sync::Mutex;
use foldspace::Object;
use spin::Once;

use crate::power;

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

/// All that are alive.
pub fn all() -> Vec<Arc<Object>> {
    OBJECTS.lock().iter().filter_map(Weak::upgrade).collect()
}
