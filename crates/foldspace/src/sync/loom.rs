//! The same operations as loom's, which explores the orders that weak memory allows, too.
//!
//! Only for what lies in memory of Rust's own: frames are not made of loom's atomics, so nothing that needs a [`crate::Memory`] runs with these.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
pub use loom::{hint, sync::atomic as watched};

use super::Word;

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }
}

/// See [`super::Content`] in an ordinary build.
#[derive(Debug, Default)]
pub struct Content(UnsafeCell<()>);

// SAFETY: nothing is in it; loom itself says who may not have accessed it.
unsafe impl Sync for Content {}

#[allow(missing_docs)]
impl Content {
    pub fn new() -> Content {
        Content(UnsafeCell::new(()))
    }
    pub fn read(&self) {
        self.0.with(|_| ());
    }
    pub fn write(&self) {
        self.0.with_mut(|_| ());
    }
}

/// Explores all orders of what `threads` do, built anew for each; each says what came of it, and all that may come of it must have been seen.
/// (Loom 0.7 leaves schedules out unless every racing thread is spawned and begins with a read-modify-write of something that all share:
/// tokio-rs/loom#166, #392. So outcomes are compared with a list.)
#[cfg(test)]
pub fn explore<const N: usize>(
    threads: impl Fn() -> [std::boxed::Box<dyn FnOnce() -> &'static str + Send>; N] + Sync + Send + 'static,
    outcomes: &[[&'static str; N]],
) {
    explore_with(&loom::model::Builder::new(), threads, outcomes);
}

/// As [`explore`], of orders in which threads are interrupted so many times at most, all together: for those who go round until others are done. What
/// loads may see of weak memory is all explored.
#[cfg(test)]
pub fn explore_within<const N: usize>(
    preemptions: usize,
    threads: impl Fn() -> [std::boxed::Box<dyn FnOnce() -> &'static str + Send>; N] + Sync + Send + 'static,
    outcomes: &[[&'static str; N]],
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    explore_with(&model, threads, outcomes);
}

#[cfg(test)]
fn explore_with<const N: usize>(
    model: &loom::model::Builder,
    threads: impl Fn() -> [std::boxed::Box<dyn FnOnce() -> &'static str + Send>; N] + Sync + Send + 'static,
    outcomes: &[[&'static str; N]],
) {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};
    let seen: Arc<Mutex<BTreeSet<[&'static str; N]>>> = Arc::default();
    let found = seen.clone();
    model.check(move || {
        let gate = loom::sync::Arc::new(watched::AtomicUsize::new(0));
        let running = threads().map(|thread| {
            let gate = gate.clone();
            loom::thread::spawn(move || {
                gate.fetch_add(1, Ordering::Relaxed);
                thread()
            })
        });
        let outcome = running.map(|thread| thread.join().expect("it ends"));
        found.lock().expect("nobody panicked with it").insert(outcome);
    });
    let seen = seen.lock().expect("nobody panicked with it");
    assert_eq!(*seen, outcomes.iter().copied().collect::<BTreeSet<_>>());
}
