//! A queue of tasks that needs no memory: the links are in the tasks. Queueing a thread must not fail.

use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ptr;

use super::thread::Thread;
use crate::process::Task;

/// Which of a thread's links a list uses: a thread is in at most one list of each kind.
pub(super) trait Link {
    /// The link.
    fn of(thread: &Thread) -> *mut Option<Arc<Task>>;
}

/// The run queue's link.
pub(super) struct RunLink;
/// The link of the queue that a thread waits in.
pub(super) struct WaitLink;

impl Link for RunLink {
    fn of(thread: &Thread) -> *mut Option<Arc<Task>> {
        thread.run_link.get()
    }
}

impl Link for WaitLink {
    fn of(thread: &Thread) -> *mut Option<Arc<Task>> {
        thread.wait_link.get()
    }
}

/// First in, first out.
///
/// # Invariants
/// Following links from `head` visits each task of the list once and ends at `tail`. The links of its tasks are touched only through `&mut` to it.
pub(super) struct TaskList<L> {
    head: Option<Arc<Task>>,
    tail: *const Task,
    link: PhantomData<fn() -> L>,
}

// SAFETY: it owns its tasks, which can be sent; `tail` points to one of them.
unsafe impl<L> Send for TaskList<L> {}

impl<L: Link> TaskList<L> {
    /// An empty list.
    pub const fn new() -> TaskList<L> {
        TaskList { head: None, tail: ptr::null(), link: PhantomData }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Appends a task, which must be in no list of this kind.
    pub fn push_back(&mut self, task: Arc<Task>) {
        let pointer = Arc::as_ptr(&task);
        let slot = match &self.head {
            None => &raw mut self.head,
            // SAFETY: by the invariants the tail is a task of the list, kept alive by the link to it.
            Some(_) => L::of(unsafe { &(*self.tail).thread }),
        };
        // SAFETY: the list's own slots, and `self` is borrowed mutably.
        unsafe { *slot = Some(task) };
        self.tail = pointer;
    }

    /// Puts a task, which must be in no list of this kind, before the first one for which `before` holds, else at the end; O(tasks before it).
    pub fn insert_before(&mut self, task: Arc<Task>, before: impl Fn(&Task) -> bool) {
        let mut slot = &raw mut self.head;
        // SAFETY: `slot` is the head or the link of a task of the list, and `self` is borrowed mutably.
        while let Some(here) = unsafe { (*slot).as_ref() } {
            if before(here) {
                let own = L::of(&task.thread);
                // SAFETY: as above; the task is in no list, so its link is empty.
                unsafe {
                    *own = (*slot).take();
                    *slot = Some(task);
                }
                return;
            }
            slot = L::of(&here.thread);
        }
        self.push_back(task);
    }

    /// The tasks, first to last.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Task>> {
        let mut next = self.head.as_ref();
        core::iter::from_fn(move || {
            let here = next?;
            // SAFETY: the link of a task of the list, which is borrowed.
            next = unsafe { (*L::of(&here.thread)).as_ref() };
            Some(here)
        })
    }

    /// Takes the first.
    pub fn pop_front(&mut self) -> Option<Arc<Task>> {
        let task = self.head.take()?;
        // SAFETY: as above.
        self.head = unsafe { (*L::of(&task.thread)).take() };
        Some(task)
    }

    /// Takes a task out, wherever it is; O(length).
    pub fn remove(&mut self, task: &Task) -> Option<Arc<Task>> {
        self.take_first(|candidate| ptr::eq(candidate, task))
    }

    /// Takes out the first task that is `wanted`; O(tasks before it).
    pub fn take_first(&mut self, wanted: impl Fn(&Task) -> bool) -> Option<Arc<Task>> {
        let mut slot = &raw mut self.head;
        let mut previous = ptr::null();
        loop {
            // SAFETY: `slot` is the head or the link of a task of the list, and `self` is borrowed mutably.
            let here = unsafe { (*slot).as_ref()? };
            let pointer = Arc::as_ptr(here);
            let link = L::of(&here.thread);
            if wanted(here) {
                // SAFETY: as above; the task is unlinked before its successor is linked in its place.
                let (found, next) = unsafe { ((*slot).take(), (*link).take()) };
                if next.is_none() {
                    self.tail = previous;
                }
                // SAFETY: as above.
                unsafe { *slot = next };
                return found;
            }
            previous = pointer;
            slot = link;
        }
    }
}
