//! Sequences on several pairs of sides at once.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use foldspace_diff::Helper;
use foldspace_diff::campaign::{CampaignError, Counts, Found, Pair};
use foldspace_diff::generate::Menu;
use indicatif::{ProgressBar, ProgressStyle};

/// What is to be done.
pub struct Campaign {
    pub seed: u64,
    /// Operations, at least.
    pub ops: u64,
    /// Number of the first sequence.
    pub first: u64,
    /// Sequences at most.
    pub sequences: u64,
    /// It stops after so many differences.
    pub differences: usize,
    pub jobs: usize,
    pub menu: Menu,
}

/// What came of it.
#[derive(Default)]
pub struct Outcome {
    pub counts: Counts,
    /// By the numbers of their sequences.
    pub found: Vec<Found>,
    pub elapsed: Duration,
}

impl Campaign {
    /// Runs it. This process must have one thread.
    pub fn run(&self) -> Result<Outcome> {
        let helpers: Vec<Helper> = (0..self.jobs).map(|_| Helper::start()).collect::<Result<_, _>>()?;
        let progress = progress(self.ops);
        let began = Instant::now();
        let shared = Shared { next: AtomicU64::new(0), done: AtomicU64::new(0), outcome: Mutex::default() };
        let worked: Vec<Result<(), CampaignError>> = thread::scope(|scope| {
            let workers: Vec<_> = helpers
                .into_iter()
                .map(|helper| {
                    let (shared, progress) = (&shared, &progress);
                    scope.spawn(move || self.work(helper, shared, progress))
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect()
        });
        progress.finish_and_clear();
        worked.into_iter().collect::<Result<Vec<()>, _>>()?;
        let mut outcome = shared.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.found.sort_by_key(|found| found.sequence);
        outcome.elapsed = began.elapsed();
        Ok(outcome)
    }

    fn work(&self, helper: Helper, shared: &Shared, progress: &ProgressBar) -> Result<(), CampaignError> {
        let mut pair = Pair::new(helper)?;
        let mut counts = Counts::default();
        while shared.done.load(Relaxed) < self.ops {
            let number = shared.next.fetch_add(1, Relaxed);
            if number >= self.sequences {
                break;
            }
            let before = counts.ops;
            let found = pair.sequence(self.seed, self.first + number, &self.menu, &mut counts)?;
            shared.done.fetch_add(counts.ops - before, Relaxed);
            progress.inc(counts.ops - before);
            if let Some(found) = found {
                let mut outcome = shared.outcome.lock().unwrap_or_else(PoisonError::into_inner);
                outcome.found.push(found);
                if outcome.found.len() >= self.differences {
                    shared.done.store(u64::MAX / 2, Relaxed);
                }
            }
        }
        shared.outcome.lock().unwrap_or_else(PoisonError::into_inner).counts.add(&counts);
        Ok(())
    }
}

/// What workers share.
struct Shared {
    /// The next sequence, counted from the first.
    next: AtomicU64,
    /// Operations compared.
    done: AtomicU64,
    outcome: Mutex<Outcome>,
}

fn progress(ops: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{bar:40} {human_pos}/{human_len} operations, {per_sec}, {eta} to go";
    let bar = ProgressBar::new(ops).with_style(ProgressStyle::with_template(template).expect("a sound template"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
