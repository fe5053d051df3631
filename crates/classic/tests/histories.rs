//! Random histories: the counts are right, and no mapping is missed.

use foldspace_classic::{Area, Backing, Operation, Process, Refusal, Rule, VmaFlags, World};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Pages that everything happens in.
const WINDOW: u64 = 24;

/// A step, before it is known which processes there are.
#[derive(Clone, Debug)]
enum Step {
    Map { who: u8, start: u64, pages: u64, file: bool, flags: u8 },
    Unmap { who: u8, start: u64, pages: u64 },
    Change { who: u8, start: u64, pages: u64, write: bool },
    Move { who: u8, start: u64, pages: u64, to: u64 },
    Grow { who: u8, end: u64, pages: u64 },
    Store { who: u8, page: u64 },
    Discard { who: u8, start: u64, pages: u64 },
    Fork { who: u8 },
    Exit { who: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let area = || (any::<u8>(), 0..WINDOW, 1..8u64);
    prop_oneof![
        3 => (area(), any::<bool>(), any::<u8>())
            .prop_map(|((who, start, pages), file, flags)| Step::Map { who, start, pages, file, flags }),
        2 => area().prop_map(|(who, start, pages)| Step::Unmap { who, start, pages }),
        3 => (area(), any::<bool>()).prop_map(|((who, start, pages), write)| Step::Change { who, start, pages, write }),
        2 => (area(), 0..WINDOW).prop_map(|((who, start, pages), to)| Step::Move { who, start, pages, to }),
        1 => (any::<u8>(), 1..WINDOW, 1..5u64).prop_map(|(who, end, pages)| Step::Grow { who, end, pages }),
        8 => (any::<u8>(), 0..WINDOW).prop_map(|(who, page)| Step::Store { who, page }),
        1 => area().prop_map(|(who, start, pages)| Step::Discard { who, start, pages }),
        4 => any::<u8>().prop_map(|who| Step::Fork { who }),
        3 => any::<u8>().prop_map(|who| Step::Exit { who }),
    ]
}

/// Gives the steps to living processes; at most six live at a time.
fn operations(steps: &[Step]) -> Vec<Operation> {
    let mut living = vec![Process(1)];
    let mut next = 2;
    let mut all = vec![Operation::Start { process: Process(1) }];
    for step in steps {
        let one = |who: u8| living[usize::from(who) % living.len()];
        let area = |start: u64, pages: u64| Area { start, end: start + pages };
        all.push(match *step {
            Step::Map { who, start, pages, file, flags } => {
                let backing = if file { Backing::File { file: 1, offset: start } } else { Backing::Anonymous };
                let mut vma_flags = VmaFlags::READ | VmaFlags::WRITE;
                vma_flags.set(VmaFlags::DONT_FORK, flags.is_multiple_of(16));
                vma_flags.set(VmaFlags::SHARED, file && flags.is_multiple_of(5));
                Operation::Map { process: one(who), area: area(start, pages), backing, flags: vma_flags }
            }
            Step::Unmap { who, start, pages } => Operation::Unmap { process: one(who), area: area(start, pages) },
            Step::Change { who, start, pages, write } => {
                let (clear, set) = match write {
                    true => (VmaFlags::empty(), VmaFlags::WRITE),
                    false => (VmaFlags::WRITE, VmaFlags::empty()),
                };
                Operation::Change { process: one(who), area: area(start, pages), clear, set }
            }
            Step::Move { who, start, pages, to } => {
                Operation::Move { process: one(who), from: area(start, pages), to: to + 2 * WINDOW }
            }
            Step::Grow { who, end, pages } => Operation::Grow { process: one(who), end, pages },
            Step::Store { who, page } => Operation::Store { process: one(who), page },
            Step::Discard { who, start, pages } => Operation::Discard { process: one(who), area: area(start, pages) },
            Step::Fork { who } if living.len() < 6 => {
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
            Step::Fork { who } | Step::Exit { who } => Operation::Store { process: one(who), page: 0 },
        });
    }
    all
}

/// Carries a history out, looking after each step.
fn live(rule: Rule, steps: &[Step]) -> Result<World, String> {
    let mut world = World::new(rule);
    for operation in operations(steps) {
        match world.apply(&operation) {
            Ok(()) | Err(Refusal::CannotMove | Refusal::CannotGrow) => {}
            Err(refusal) => return Err(format!("{operation:?}: {refusal}")),
        }
        let checked = world.check().and_then(|()| world.check_reverse());
        checked.map_err(|wrong| format!("after {operation:?}: {wrong}"))?;
    }
    Ok(world)
}

/// A runner that tries the same histories each time.
fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4096, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

fn histories() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..120)
}

#[test]
fn rules_that_count_right_miss_no_mapping() {
    for rule in [Rule::PerFork, Rule::Today] {
        let all = runner(1500).run(&histories(), |steps| live(rule, &steps).map(|_| ()).map_err(TestCaseError::fail));
        all.unwrap_or_else(|wrong| panic!("{rule}: {wrong}"));
    }
}

#[test]
fn all_rules_give_the_same_pages_to_the_same_places() {
    let all = runner(300).run(&histories(), |steps| {
        let operations = operations(&steps);
        let mut worlds: Vec<World> = Rule::ALL.into_iter().map(World::new).collect();
        for operation in &operations {
            let results: Vec<_> = worlds.iter_mut().map(|world| world.apply(operation).is_ok()).collect();
            // What lies in one VMA is the rule's to decide: a move, or growth, may be refused by some.
            if !matches!(operation, Operation::Move { .. } | Operation::Grow { .. }) {
                prop_assert!(results.iter().all(|done| *done));
            } else if !results.iter().all(|done| *done == results[0]) {
                return Ok(());
            }
        }
        let places = |world: &World| {
            let mut places: Vec<_> = world.walk().into_values().collect();
            places.sort();
            places
        };
        for world in &worlds[1..] {
            prop_assert_eq!(places(world), places(&worlds[0]));
        }
        Ok(())
    });
    all.unwrap();
}
