//! In what the private pages of two address spaces differ: what they share is passed over, whole subtrees at a time.

use super::{Entry, Root};
use crate::addr::{ENTRIES, Index, Level, PAGE_SIZE, PageRange, VirtAddr};
use crate::frame::Frame;

/// What an address space has of its own at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageState {
    /// Nothing: the page is what its VMA shows where nothing was stored, be it read already or not.
    Untouched = 0,
    /// A page of its own, which others may share.
    Private = 1,
    /// A guard: it cannot be accessed.
    Guard = 2,
    /// A page of its own of which the memory has failed.
    Lost = 4,
}

/// A row of pages that differ alike.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    states: (PageState, PageState),
}

/// Collects rows.
struct Runs<'v> {
    open: Option<Run>,
    visit: &'v mut dyn FnMut(PageRange, PageState, PageState),
}

impl Runs<'_> {
    fn add(&mut self, at: u64, states: (PageState, PageState)) {
        match &mut self.open {
            Some(run) if run.end == at && run.states == states => run.end += PAGE_SIZE,
            _ => {
                self.finish();
                self.open = Some(Run { start: at, end: at + PAGE_SIZE, states });
            }
        }
    }

    fn finish(&mut self) {
        if let Some(run) = self.open.take() {
            if let Some(range) = PageRange::new(VirtAddr(run.start), VirtAddr(run.end)) {
                (self.visit)(range, run.states.0, run.states.1);
            }
        }
    }
}

impl Root<'_> {
    /// Calls `visit` for rows of pages at which the two have different private pages, or one has none, or a guard; upwards. Takes no lock; the caller
    /// is pinned.
    pub(crate) fn diff(&self, other: &Root<'_>, visit: &mut dyn FnMut(PageRange, PageState, PageState)) {
        let mut runs = Runs { open: None, visit };
        self.diff_below(Some(self.frame), Some(other.frame), Level::L4, 0, &mut runs);
        runs.finish();
    }

    fn diff_below(&self, a: Option<Frame>, b: Option<Frame>, level: Level, base: u64, runs: &mut Runs<'_>) {
        let entry = |table: Option<Frame>, index| table.map_or(Entry::NONE, |table| self.glance(table, index));
        let used = if level == Level::L4 { ENTRIES / 2 } else { ENTRIES };
        for index in Index::all().take(used) {
            let (mine, other) = (entry(a, index), entry(b, index));
            if mine == other {
                continue;
            }
            let at = base + index.get() as u64 * level.entry_span();
            match level.below() {
                Some(below) => {
                    let (mine, other) = (table(mine), table(other));
                    if mine != other {
                        self.diff_below(mine, other, below, at, runs);
                    }
                }
                None => {
                    let states = (state(mine), state(other));
                    if states.0 != states.1 || states.0 == PageState::Private && mine.frame() != other.frame() {
                        runs.add(at, states);
                    }
                }
            }
        }
    }
}

/// The table below, if private pages can be below it.
fn table(entry: Entry) -> Option<Frame> {
    (entry.is_tracked() && !entry.is_object()).then(|| entry.frame())
}

fn state(entry: Entry) -> PageState {
    if entry.is_private() {
        PageState::Private
    } else if entry.is_guard() {
        PageState::Guard
    } else if entry.is_poison() {
        PageState::Lost
    } else {
        PageState::Untouched
    }
}
