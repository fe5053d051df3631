//! When an anon_vma is used again.

use std::fmt;

use crate::anon_vma::AnonVma;

/// One of the published algorithms. They differ in what fork does, and in which VMAs merge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// One more for each VMA at each fork (Linux 2.6.34 to 3.18).
    PerFork,
    /// One may be used again if its children and the VMAs whose own it is are fewer than two together (`degree`, commit 7a3ef208e662).
    Reuse,
    /// Patch 1/2: the same, but never where a VMA is only copied.
    CopiesDoNot,
    /// Patch 2/2: and neighbours that share one in the parent share one in the child.
    Neighbours,
    /// Children and users counted apart (commit 2555283eb40d); patch 2/2 was taken back before.
    Today,
}

/// Why a VMA gets the chain of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// It is a child's.
    Fork,
    /// Split, move, merge: the same pages in another VMA of the same process.
    Copy,
}

impl Rule {
    /// All, in the order in which they were published.
    pub const ALL: [Rule; 5] = [Rule::PerFork, Rule::Reuse, Rule::CopiesDoNot, Rule::Neighbours, Rule::Today];

    /// Whether an anon_vma of the parent's chain, not the parent's own, may become the child's own.
    pub(crate) fn may_reuse(self, candidate: &AnonVma, purpose: Purpose) -> bool {
        let copies = purpose == Purpose::Copy;
        match self {
            Rule::PerFork => false,
            Rule::Reuse => candidate.degree() < 2,
            Rule::CopiesDoNot | Rule::Neighbours => !copies && candidate.degree() < 2,
            Rule::Today => !copies && candidate.children < 2 && candidate.users == 0,
        }
    }

    /// Whether a child's VMA takes the anon_vma of the one below it where the parent's two share one.
    pub(crate) fn follows_neighbours(self) -> bool {
        self == Rule::Neighbours
    }

    /// Whether a VMA that has no anon_vma may be extended over one that has (since Linux 6.16; before, only the other way round).
    pub(crate) fn merges_into_unfaulted(self) -> bool {
        self == Rule::Today
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Rule::PerFork => "one per fork",
            Rule::Reuse => "before the series",
            Rule::CopiesDoNot => "with patch 1/2",
            Rule::Neighbours => "with both patches",
            Rule::Today => "today",
        })
    }
}
