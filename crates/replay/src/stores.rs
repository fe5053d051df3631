//! Which pages are stored to: what a log of system calls does not say.

use std::collections::{BTreeMap, VecDeque};

use foldspace_classic::{Area, Process};

/// The model. All numbers are pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stores {
    /// Of each new private writable area, spread evenly, its first page among them.
    pub per_area: u64,
    /// By the parent and by the child, after each fork: those that were stored to last.
    pub after_fork: usize,
    /// Of the stack, when a program starts.
    pub of_stack: u64,
}

impl Default for Stores {
    fn default() -> Stores {
        Stores { per_area: 8, after_fork: 4, of_stack: 4 }
    }
}

impl Stores {
    /// The pages of a new area that are stored to.
    pub fn in_area(&self, area: Area) -> impl Iterator<Item = u64> + use<> {
        let count = self.per_area.min(area.pages());
        (0..count).map(move |nth| area.start + nth * area.pages() / count)
    }
}

/// The pages that each process has stored to last.
#[derive(Default)]
pub(crate) struct Recent(BTreeMap<Process, VecDeque<u64>>);

impl Recent {
    /// Notes a store; as many as `keep` are remembered.
    pub fn note(&mut self, process: Process, page: u64, keep: usize) {
        let pages = self.0.entry(process).or_default();
        pages.retain(|other| *other != page);
        pages.push_back(page);
        while pages.len() > keep {
            pages.pop_front();
        }
    }

    /// What a child has stored to is what its parent had.
    pub fn fork(&mut self, parent: Process, child: Process) {
        if let Some(pages) = self.0.get(&parent).cloned() {
            self.0.insert(child, pages);
        }
    }

    pub fn forget(&mut self, process: Process) {
        self.0.remove(&process);
    }

    pub fn of(&self, process: Process) -> Vec<u64> {
        self.0.get(&process).into_iter().flatten().copied().collect()
    }
}
