//! What the manager asks of its embedder, answered by threads and software processors.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crossbeam_epoch::{Collector, Guard, LocalHandle};
use foldspace::platform::{Flush, Platform, SpaceId};

use crate::arena::Arena;
use crate::guest::line::{Line, barrier};
use crate::mmu::SharedCaches;
use crate::sync::Mutex;

/// [`Platform`] of a hosted machine: a shootdown reaches the caches of every processor that lives, an epoch is a thread's.
///
/// It holds the arena, so the frames live as long as the memory that owns the platform.
pub struct HostPlatform {
    machine: Arc<Machine>,
}

/// What processors and the platform share.
pub(crate) struct Machine {
    pub(crate) arena: Arc<Arena>,
    collector: Collector,
    processors: Mutex<Vec<Weak<SharedCaches>>>,
    /// Of processors of guests.
    lines: Mutex<Vec<Arc<Line>>>,
}

impl Machine {
    pub(crate) fn new(arena: Arc<Arena>) -> Arc<Machine> {
        Arc::new(Machine {
            arena,
            collector: Collector::new(),
            processors: Mutex::new(Vec::new()),
            lines: Mutex::new(Vec::new()),
        })
    }

    /// From now on shootdowns reach `caches`, until it is dropped.
    pub(crate) fn join(&self, caches: &Arc<SharedCaches>) {
        let mut processors = self.processors.lock();
        processors.retain(|processor| processor.strong_count() > 0);
        processors.push(Arc::downgrade(caches));
    }

    /// From now on shootdowns reach the guest's processor with this line.
    pub(crate) fn join_line(&self, line: &Arc<Line>) {
        self.lines.lock().push(line.clone());
    }

    /// Ends that.
    pub(crate) fn leave_line(&self, line: &Arc<Line>) {
        self.lines.lock().retain(|other| !Arc::ptr_eq(other, line));
    }

    /// Makes the processors of guests that run `space` forget, and waits until none of them uses what it is to forget.
    fn shoot_lines(&self, space: SpaceId, flush: Flush) {
        let lines = self.lines.lock();
        // Not `any`: all of them are asked before the one barrier.
        if lines.iter().filter(|line| line.ask(space, flush)).count() > 0 {
            barrier();
            lines.iter().for_each(|line| line.wait());
        }
    }

    /// The caches of every processor that lives.
    pub(crate) fn caches(&self) -> Vec<Arc<SharedCaches>> {
        let processors = self.processors.lock();
        processors.iter().filter_map(Weak::upgrade).collect()
    }
}

impl HostPlatform {
    pub(crate) fn new(machine: Arc<Machine>) -> HostPlatform {
        HostPlatform { machine }
    }

    /// Half of a shootdown: translations to data frames go, upper levels stay. With [`HostPlatform::forget_uppers`] it makes a whole one; alone it is
    /// what a careless platform does, for tests that prove that this is noticed.
    pub fn forget_leaves(&self, space: SpaceId, flush: Flush) {
        for caches in self.machine.caches() {
            caches.lock().flush_leaves(space, flush);
        }
    }

    /// The other half: upper levels go.
    pub fn forget_uppers(&self, space: SpaceId) {
        for caches in self.machine.caches() {
            caches.lock().flush_uppers(space);
        }
    }
}

// SAFETY:
// - A processor holds the lock of its caches from the look-up of a translation to the end of the access that uses it. A shootdown takes each
//   processor's lock, so when it returns no access uses what it dropped, and none will. For processors of guests: see `guest::line`.
// - All guards are of the one collector of this machine.
unsafe impl Platform for HostPlatform {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        for caches in self.machine.caches() {
            let mut caches = caches.lock();
            caches.flush_uppers(space);
            caches.flush_leaves(space, flush);
        }
        self.machine.shoot_lines(space, flush);
    }

    fn pin(&self) -> Guard {
        pin(&self.machine)
    }

    fn wait_for_readers(&self, attempt: u32) -> bool {
        // A pinned thread that the host has preempted comes back within some of its time slices.
        const PATIENCE: u32 = 500;
        thread::sleep(Duration::from_millis(1));
        attempt < PATIENCE
    }

    fn processor(&self) -> usize {
        thread_number()
    }
}

/// Pins this thread's participant of the machine's collector, which is registered at the first use.
fn pin(machine: &Arc<Machine>) -> Guard {
    thread_local! {
        /// The machines that this thread has worked for: few, so a list is searched.
        static PARTICIPANTS: RefCell<Vec<(Weak<Machine>, Rc<LocalHandle>)>> = const { RefCell::new(Vec::new()) };
    }
    // Pinning may run what was deferred, and that may pin: the list is complete by then, and not borrowed.
    let known = PARTICIPANTS.try_with(|participants| {
        let is_ours = |(of, _): &&(Weak<Machine>, _)| Weak::as_ptr(of) == Arc::as_ptr(machine);
        if let Some((_, handle)) = participants.borrow().iter().find(is_ours) {
            return Rc::clone(handle);
        }
        let handle = Rc::new(machine.collector.register());
        let mut list = participants.borrow_mut();
        let (mut living, gone): (Vec<_>, Vec<_>) = list.drain(..).partition(|(of, _)| of.strong_count() > 0);
        living.push((Arc::downgrade(machine), Rc::clone(&handle)));
        *list = living;
        // A handle that goes may run what was deferred, too.
        drop(list);
        drop(gone);
        handle
    });
    // While the thread's own storage is being torn down there is nowhere to keep a handle: a guard keeps its participant alive by itself.
    known.map_or_else(|_| machine.collector.register().pin(), |handle| handle.pin())
}

/// Numbers threads in the order in which they first ask.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    let number = NUMBER.try_with(|number| match number.get() {
        Some(known) => known,
        None => {
            let new = NEXT.fetch_add(1, Ordering::Relaxed);
            number.set(Some(new));
            new
        }
    });
    number.unwrap_or(0)
}

/// membarrier(2): a barrier on every thread of this process that runs, for who calls it.
pub(crate) mod membarrier {
    /// From `linux/membarrier.h`.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn call(command: libc::c_int) -> bool {
        // SAFETY: the call takes no pointers and changes nothing but the order in which memory is seen.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Whether there is such a call, and this process may use it from now on.
    pub(crate) fn register() -> bool {
        call(REGISTER_PRIVATE_EXPEDITED)
    }

    /// The barrier.
    ///
    /// # Panics
    /// If the call fails though it was registered for: translations would be used that must not be.
    pub(crate) fn run() {
        assert!(call(PRIVATE_EXPEDITED), "membarrier works once it is registered for");
    }
}
