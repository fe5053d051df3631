//! What the series, and the bugs that they mend, say of each rule.

use foldspace_classic::{Area, Backing, Operation, Process, Rule, Tally, VmaFlags, World};

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE);

fn world(rule: Rule, operations: &[Operation]) -> World {
    let mut world = World::new(rule);
    for operation in operations {
        world.apply(operation).unwrap();
    }
    world
}

/// A process with one VMA of `pages` pages, the first of them stored to.
fn begin(pages: u64) -> Vec<Operation> {
    let process = Process(0);
    let area = Area { start: 16, end: 16 + pages };
    vec![
        Operation::Start { process },
        Operation::Map { process, area, backing: Backing::Anonymous, flags: RW },
        Operation::Store { process, page: 16 },
    ]
}

fn fork(parent: u32, child: u32) -> Operation {
    Operation::Fork { parent: Process(parent), child: Process(child) }
}

fn exit(process: u32) -> Operation {
    Operation::Exit { process: Process(process) }
}

/// Each forks, its parent exits, it stores: `generations` times.
fn chain(rule: Rule, generations: u32) -> Tally {
    let mut operations = begin(4);
    for parent in 0..generations {
        let store = Operation::Store { process: Process(parent + 1), page: 17 };
        operations.extend([fork(parent, parent + 1), exit(parent), store]);
    }
    let world = world(rule, &operations);
    world.check().unwrap();
    world.check_reverse().unwrap();
    world.tally()
}

/// The bug of 2012: the hierarchy grew with each generation. And its cure, in every rule since.
#[test]
fn a_chain_of_forks_grows_without_reuse_and_stays_short_with_it() {
    assert_eq!(chain(Rule::PerFork, 1000).longest_chain, 1001);
    for rule in [Rule::Reuse, Rule::CopiesDoNot, Rule::Neighbours, Rule::Today] {
        let tally = chain(rule, 10_000);
        assert!(tally.longest_chain <= 3 && tally.anon_vmas <= 3, "{rule}: {tally:?}");
    }
}

/// A leaf that one VMA has as its own counts one, and looks unused where both kinds are counted together (commit 2555283eb40d).
#[test]
fn one_counter_gives_an_anon_vma_to_two_processes() {
    let mut operations = begin(4);
    // 1's is left with one child; 3 takes it. 2's is left with none; 4 takes it. 3's next child takes it once more.
    operations.extend([fork(0, 1), fork(1, 2), exit(1), fork(2, 3), exit(2), fork(3, 4), fork(3, 5)]);
    let before = world(Rule::Reuse, &operations).tally();
    let today = world(Rule::Today, &operations).tally();
    assert!(before.anon_vmas < today.anon_vmas, "{before:?} {today:?}");
}

/// Patch 2/2: what a parent's neighbours share, a child's share.
#[test]
fn neighbours_share_in_the_child_what_they_share_in_the_parent() {
    let process = Process(0);
    let mut operations = begin(64);
    // Every second page read-only: 64 VMAs with one anon_vma.
    operations.extend((0..32).map(|pair| Operation::Change {
        process,
        area: Area { start: 17 + 2 * pair, end: 18 + 2 * pair },
        clear: VmaFlags::WRITE,
        set: VmaFlags::empty(),
    }));
    operations.push(fork(0, 1));
    assert_eq!(world(Rule::Today, &operations).tally().anon_vmas, 1 + 64);
    let both = world(Rule::Neighbours, &operations);
    both.check().unwrap();
    assert_eq!(both.tally().anon_vmas, 1 + 1);
}

/// The series' reviewer asked what becomes of a child's VMA whose predecessor it did not inherit.
#[test]
fn a_predecessor_that_was_not_inherited_is_not_followed() {
    let process = Process(0);
    let mut operations = begin(3);
    let area = |page| Area { start: page, end: page + 1 };
    let all = VmaFlags::empty();
    operations.extend([
        Operation::Store { process, page: 17 },
        Operation::Store { process, page: 18 },
        Operation::Change { process, area: area(17), clear: all, set: VmaFlags::DONT_FORK },
        fork(0, 1),
    ]);
    let world = world(Rule::Neighbours, &operations);
    world.check().unwrap();
    world.check_reverse().unwrap();
    assert_eq!(world.areas(Process(1)), [area(16), area(18)]);
    assert_eq!(world.tally().anon_vmas, 3);
}

/// A look-up of a page visits every VMA that may have inherited it, although none of them has it.
#[test]
fn candidates_are_all_relatives() {
    let mut operations = begin(1);
    for child in 1..=1000 {
        operations.extend([fork(0, child), Operation::Store { process: Process(child), page: 16 }]);
    }
    let world = world(Rule::Today, &operations);
    let visits = |process: u32| {
        let lookup = world.look_up(world.page_at(Process(process), 16).unwrap());
        assert_eq!(lookup.found.len(), 1);
        lookup.candidates.len()
    };
    assert_eq!(visits(0), 1001, "the parent's page may be anybody's");
    assert_eq!(visits(500), 1, "a child's own page is its own");
}

/// Memory that was never stored to takes the name of where it goes: back in the middle of what it was cut out of, all of it is one VMA again.
#[test]
fn memory_moves_within_its_own_vma() {
    let process = Process(0);
    let area = Area { start: 16, end: 32 };
    let operations = [
        Operation::Start { process },
        Operation::Map { process, area, backing: Backing::Anonymous, flags: RW },
        Operation::Move { process, from: Area { start: 28, end: 29 }, to: 17 },
        Operation::Store { process, page: 17 },
        fork(0, 1),
    ];
    for rule in Rule::ALL {
        let world = world(rule, &operations);
        assert_eq!(world.areas(process), [Area { start: 16, end: 28 }, Area { start: 29, end: 32 }], "{rule}");
        world.check().unwrap();
        world.check_reverse().unwrap();
    }
}
