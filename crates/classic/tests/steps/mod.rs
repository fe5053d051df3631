//! Random histories, for all who replay some: steps that mean something whatever has come before, so that failing ones can be shrunk.

use foldspace_classic::{Area, Backing, Operation, Process, VmaFlags};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Places in a window.
const WINDOW: u64 = 24;
/// Everything happens in four windows, so many pages from each other: as many as a page table has entries, and each window lies on the edge of one.
const STRIDE: u64 = 512;
const FIRST: u64 = 500;
/// Places in all of them.
const PLACES: u64 = 4 * WINDOW;
/// Processes that live at a time.
const MOST: usize = 6;

/// A step, before it is known which processes there are.
#[derive(Clone, Debug)]
pub enum Step {
    Map { who: u8, start: u64, pages: u64, file: bool, flags: u8 },
    Unmap { who: u8, start: u64, pages: u64 },
    Change { who: u8, start: u64, pages: u64, write: bool },
    Move { who: u8, start: u64, pages: u64, to: u64 },
    Grow { who: u8, end: u64, pages: u64 },
    Store { who: u8, page: u64, pages: u64 },
    Discard { who: u8, start: u64, pages: u64 },
    Fork { who: u8 },
    Exit { who: u8 },
}

/// A page, most often in the first window.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..WINDOW, 2 => 0..PLACES].prop_map(|place| FIRST + place / WINDOW * STRIDE + place % WINDOW)
}

/// How many; now and then all that a table maps, and more.
fn pages() -> impl Strategy<Value = u64> {
    prop_oneof![7 => 1..8u64, 1 => STRIDE..STRIDE + WINDOW]
}

fn step() -> impl Strategy<Value = Step> {
    let area = || (any::<u8>(), page(), pages());
    prop_oneof![
        3 => (area(), any::<bool>(), any::<u8>())
            .prop_map(|((who, start, pages), file, flags)| Step::Map { who, start, pages, file, flags }),
        2 => area().prop_map(|(who, start, pages)| Step::Unmap { who, start, pages }),
        3 => (area(), any::<bool>()).prop_map(|((who, start, pages), write)| Step::Change { who, start, pages, write }),
        1 => (area(), page()).prop_map(|((who, start, pages), to)| Step::Move { who, start, pages, to }),
        // Where its tables fit.
        1 => (area(), 1..4u64)
            .prop_map(|((who, start, pages), by)| Step::Move { who, start, pages, to: start + by * STRIDE }),
        1 => (any::<u8>(), page(), 1..5u64).prop_map(|(who, end, pages)| Step::Grow { who, end: end + 1, pages }),
        8 => (any::<u8>(), page(), 1..5u64).prop_map(|(who, page, pages)| Step::Store { who, page, pages }),
        1 => area().prop_map(|(who, start, pages)| Step::Discard { who, start, pages }),
        4 => any::<u8>().prop_map(|who| Step::Fork { who }),
        3 => any::<u8>().prop_map(|who| Step::Exit { who }),
    ]
}

/// Gives the steps to living processes.
pub fn operations(steps: &[Step]) -> Vec<Operation> {
    let mut living = vec![Process(1)];
    let mut next = 2;
    let (process, area) = (Process(1), Area { start: FIRST, end: FIRST + WINDOW });
    let flags = VmaFlags::READ | VmaFlags::WRITE;
    let map = Operation::Map { process, area, backing: Backing::Anonymous, flags };
    let mut all = vec![Operation::Start { process }, map];
    for step in steps {
        let one = |who: u8| living[usize::from(who) % living.len()];
        let area = |start: u64, pages: u64| Area { start, end: start + pages };
        let operation = match *step {
            Step::Map { who, start, pages, file, flags } => {
                let backing = if file { Backing::File { file: 1, offset: start } } else { Backing::Anonymous };
                let mut vma_flags = VmaFlags::READ | VmaFlags::WRITE;
                vma_flags.set(VmaFlags::DONT_FORK, flags.is_multiple_of(16));
                vma_flags.set(VmaFlags::SHARED, file && flags.is_multiple_of(5));
                Operation::Map { process: one(who), area: area(start, pages), backing, flags: vma_flags }
            }
            Step::Unmap { who, start, pages } => Operation::Unmap { process: one(who), area: area(start, pages) },
            Step::Change { who, start, pages, write } => {
                let set = if write { VmaFlags::READ | VmaFlags::WRITE } else { VmaFlags::READ };
                Operation::Change { process: one(who), area: area(start, pages), clear: VmaFlags::ACCESS, set }
            }
            Step::Move { who, start, pages, to } => Operation::Move { process: one(who), from: area(start, pages), to },
            Step::Grow { who, end, pages } => Operation::Grow { process: one(who), end, pages },
            Step::Store { who, page, pages } => {
                let process = one(who);
                all.extend((page + 1..page + pages).map(|page| Operation::Store { process, page }));
                Operation::Store { process, page }
            }
            Step::Discard { who, start, pages } => Operation::Discard { process: one(who), area: area(start, pages) },
            Step::Fork { who } if living.len() < MOST => {
                let (parent, child) = (one(who), Process(next));
                living.push(child);
                next += 1;
                Operation::Fork { parent, child }
            }
            Step::Exit { who } if living.len() > 1 => {
                let process = one(who);
                living.retain(|other| *other != process);
                Operation::Exit { process }
            }
            Step::Fork { who } | Step::Exit { who } => Operation::Store { process: one(who), page: FIRST },
        };
        all.push(operation);
    }
    all
}

/// A runner that tries the same histories each time; more of them, where `FOLDSPACE_CASES` says so.
pub fn runner(cases: u32) -> TestRunner {
    let asked_for = std::env::var("FOLDSPACE_CASES").ok().and_then(|text| text.parse().ok());
    let cases = asked_for.unwrap_or(cases);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4096, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// Up to `most` steps.
pub fn histories(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..most)
}
