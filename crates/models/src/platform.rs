//! The platform of threads that shuttle schedules.

use std::cell::RefCell;
use std::rc::Rc;

use crossbeam_epoch::{Collector, Guard, LocalHandle};
use foldspace::platform::{Flush, Platform, SpaceId};
use foldspace::sync::hint::spin_loop;
use foldspace_hosted::HostPlatform;

shuttle::thread_local! {
    /// What pins a thread. All threads of an execution are one thread of the host, which cannot tell them apart.
    static PARTICIPANT: RefCell<Option<Rc<LocalHandle>>> = const { RefCell::new(None) };
}

/// [`HostPlatform`], but for what depends on the thread that asks. There is one for each execution, and threads do not outlive it.
pub struct ModelPlatform {
    inner: HostPlatform,
    collector: Collector,
}

impl ModelPlatform {
    pub fn new(inner: HostPlatform) -> ModelPlatform {
        ModelPlatform { inner, collector: Collector::new() }
    }
}

// SAFETY: shootdowns are those of the hosted machine; all guards are of one collector.
unsafe impl Platform for ModelPlatform {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        self.inner.shootdown(space, flush);
    }

    fn pin(&self) -> Guard {
        let known = PARTICIPANT.try_with(|participant| {
            let handle = participant.borrow_mut().get_or_insert_with(|| Rc::new(self.collector.register())).clone();
            // Not borrowed any more: pinning may run what was deferred, and that may pin.
            handle
        });
        known.map_or_else(|_| self.collector.register().pin(), |handle| handle.pin())
    }

    fn wait_for_readers(&self, attempt: u32) -> bool {
        const PATIENCE: u32 = 50;
        spin_loop();
        attempt < PATIENCE
    }

    /// All use the same cache of frames, so that what one gives back is what another takes next.
    fn processor(&self) -> usize {
        0
    }
}
