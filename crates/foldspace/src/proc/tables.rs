//! The tables of an address space, for who wants to look at them: pictures of what is shared.

use crate::addr::{ENTRIES, Level};
use crate::frame::Frame;
use crate::space::AddressSpace;
use crate::sync::atomic::AtomicU64;
use crate::table::{Entry, for_each_used};

/// A table, looked at while others may change it.
#[derive(Clone, Copy)]
pub struct TableView<'a> {
    space: &'a AddressSpace,
    /// Which frame it is.
    pub frame: Frame,
    /// At which level it is.
    pub level: Level,
    /// How many slots link it.
    pub refs: u32,
    /// The number of its lineage, if it has been copied or is a copy.
    pub lineage: Option<u32>,
}

/// What a slot of a table holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotView {
    /// Which slot, 0 to 511.
    pub index: u16,
    /// What it refers to.
    pub target: Target,
    /// The frame that it refers to; frame 0 for a guard.
    pub frame: Frame,
    /// How many slots refer to that.
    pub refs: u32,
    /// Whether a processor may store through it, as far as this slot decides.
    pub writable: bool,
}

/// The kinds of what slots refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// A table of address spaces.
    Table,
    /// A table that an object owns.
    ObjectTable,
    /// A page of address spaces.
    Page,
    /// A page of an object: a file, or shared memory.
    ObjectPage,
    /// A page, or a table, that shows a reference page over and over.
    Reference,
    /// Nothing: what forbids access.
    Guard,
}

/// Slots in a row that are alike, and that refer to frames in a row; of a reference page to the same one over and over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotRun {
    /// The first.
    pub slot: SlotView,
    /// How many.
    pub count: u16,
}

impl SlotRun {
    fn continues_with(&self, next: &SlotView) -> bool {
        let SlotView { index, target, frame, refs, writable } = self.slot;
        let step = if matches!(target, Target::Reference | Target::Guard) { 0 } else { u32::from(self.count) };
        index + self.count == next.index
            && (target, refs, writable) == (next.target, next.refs, next.writable)
            && frame.0 + step == next.frame.0
    }
}

impl Target {
    /// In a word, for files and pictures.
    pub fn word(self) -> &'static str {
        match self {
            Target::Table => "table",
            Target::ObjectTable => "object-table",
            Target::Page => "page",
            Target::ObjectPage => "object",
            Target::Reference => "reference",
            Target::Guard => "guard",
        }
    }
}

impl AddressSpace {
    /// Visits the root and all tables below it, each before those below it. `visit` says whether what is below shall be visited, too: who draws
    /// a shared table once says no the second time. What changes meanwhile may be seen before or after. O(tables visited).
    pub fn for_each_table(&self, mut visit: impl FnMut(TableView<'_>) -> bool) {
        // A table that is taken out meanwhile stays a table until the pin goes.
        let _pin = self.memory().pin();
        self.visit_table(self.root(), Level::L4, &mut visit);
    }

    fn visit_table(&self, frame: Frame, level: Level, visit: &mut dyn FnMut(TableView<'_>) -> bool) {
        let record = self.memory().record(frame);
        let lineage = record.lineage().map(|id| id.0);
        let view = TableView { space: self, frame, level, refs: record.refs(), lineage };
        if !visit(view) {
            return;
        }
        let Some(below) = level.below() else { return };
        for_each_used(view.slots(), |_, entry| {
            if entry.is_present() && !entry.is_reference() {
                self.visit_table(entry.frame(), below, visit);
            }
        });
    }
}

impl<'a> TableView<'a> {
    fn slots(&self) -> &'a [AtomicU64] {
        let entries = &self.space.memory().entries(self.frame)[..];
        // The rest of a root is the kernel's.
        if self.level == Level::L4 { &entries[..ENTRIES / 2] } else { entries }
    }

    /// Its slots that are not empty, in order; of a root those for user memory.
    pub fn for_each_slot(&self, mut visit: impl FnMut(SlotView)) {
        let memory = self.space.memory();
        for_each_used(self.slots(), |index, entry| {
            let target = target(entry, self.level);
            let frame = if target == Target::Guard { Frame(0) } else { entry.frame() };
            let refs = if target == Target::Guard { 0 } else { memory.record(frame).refs() };
            visit(SlotView { index: index.get() as u16, target, frame, refs, writable: entry.is_writable() });
        });
    }

    /// The same in runs.
    pub fn for_each_run(&self, mut visit: impl FnMut(&SlotRun)) {
        let mut run: Option<SlotRun> = None;
        self.for_each_slot(|slot| match &mut run {
            Some(run) if run.continues_with(&slot) => run.count += 1,
            run => {
                if let Some(ended) = run.replace(SlotRun { slot, count: 1 }) {
                    visit(&ended);
                }
            }
        });
        if let Some(last) = run {
            visit(&last);
        }
    }

    /// Whether it is an object's.
    pub fn is_of_object(&self) -> bool {
        self.space.memory().record(self.frame).is_pinned()
    }
}

fn target(entry: Entry, level: Level) -> Target {
    match (entry.is_present(), entry.is_reference(), entry.is_object(), level) {
        (false, ..) => Target::Guard,
        (_, true, ..) => Target::Reference,
        (.., true, Level::L1) => Target::ObjectPage,
        (.., false, Level::L1) => Target::Page,
        (.., true, _) => Target::ObjectTable,
        (.., false, _) => Target::Table,
    }
}
