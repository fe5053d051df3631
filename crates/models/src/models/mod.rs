//! What is explored.

mod faults;
mod kernel;
mod layout;
mod lifetimes;
mod migration;
mod moved;
mod pairs;
mod restore;

use foldspace::space::ForkMode;

use crate::explore::{Actor, Case, Rule};
use crate::op::Op;
use crate::stage::{Family, Who};

/// A list of cases about one thing.
pub struct Model {
    pub name: &'static str,
    pub about: &'static str,
    /// What a case gets of the effort: one part in so many, where cases are many and simple.
    pub share: usize,
    pub cases: fn() -> Vec<Case>,
}

/// All of them, the quick ones first.
pub const MODELS: &[Model] = &[
    faults::FAULT,
    faults::UNSHARE,
    faults::FORK,
    faults::SHOOTDOWN,
    lifetimes::EXIT,
    lifetimes::LINEAGE,
    lifetimes::MEMORY,
    kernel::KERNEL,
    migration::MIGRATE,
    layout::MUNMAP,
    layout::MPROTECT,
    layout::MREMAP,
    moved::MOVED,
    restore::RESTORE,
    layout::TRUNCATE,
    layout::MAPS,
    pairs::PAIRS,
];

const MODES: [ForkMode; 3] = [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy];

/// What a thread does in an address space, and what its processors did before.
fn actor(who: Who, warm: &[Op], ops: &[Op]) -> Actor {
    Actor { who, warm: warm.to_vec(), ops: ops.to_vec() }
}

/// Actors whose outcome must be that of one operation after the other.
fn case(family: Family, mode: ForkMode, actors: &[Actor]) -> Case {
    Case { family, mode, actors: actors.to_vec(), rule: Rule::Serial }
}

/// The same in each mode of fork.
fn in_all_modes(cases: impl Fn(ForkMode) -> Vec<Case>) -> Vec<Case> {
    MODES.into_iter().flat_map(cases).collect()
}
