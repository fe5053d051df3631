//! What the page is given: the trees of all processes after each step, as what has changed since the step before.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use foldspace::AddressSpace;
use foldspace::proc::SlotRun;
use foldspace::vma::VmaFlags;
use foldspace_classic::{Operation, Process};
use foldspace_replay::Manager;
use foldspace_wire::MomentSlots;
use serde::{Deserialize, Serialize};

/// A whole sequence.
#[derive(Serialize, Deserialize)]
pub struct Recording {
    /// Where it comes from.
    pub source: String,
    pub steps: Vec<Step>,
}

/// One step, and what it changed.
#[derive(Default, Serialize, Deserialize)]
pub struct Step {
    pub what: String,
    /// Tables and pages that there are afterwards, and how many of them were not there before.
    pub tables: usize,
    pub pages: u64,
    pub tables_added: i64,
    pub pages_added: i64,
    /// Processes that are new or have changed, by their names.
    pub spaces: BTreeMap<String, Space>,
    pub spaces_gone: Vec<String>,
    /// Tables that are new or have changed, by their frames.
    pub nodes: BTreeMap<u32, Node>,
    pub nodes_gone: Vec<u32>,
}

/// A process.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Space {
    pub parent: Option<String>,
    pub root: u32,
    pub vmas: Vec<Vma>,
}

/// A VMA: first address, one past the last, permissions, what is behind it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Vma(pub u64, pub u64, pub String, pub String);

/// A table.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub level: u8,
    pub refs: u32,
    pub lineage: Option<u32>,
    pub slots: Vec<MomentSlots>,
}

/// What there is at a moment.
#[derive(Default, Clone)]
pub struct State {
    pub spaces: BTreeMap<String, Space>,
    pub nodes: BTreeMap<u32, Node>,
    pub pages: u64,
}

/// Takes operations, and notes what each changes.
pub struct Recorder {
    manager: Manager,
    parents: BTreeMap<Process, Process>,
    state: State,
    steps: Vec<Step>,
    /// Operations before the first that is shown.
    skip: u64,
    limit: usize,
}

impl Recorder {
    pub fn new(manager: Manager, skip: u64, limit: usize) -> Recorder {
        Recorder { manager, parents: BTreeMap::new(), state: State::default(), steps: Vec::new(), skip, limit }
    }

    pub fn is_full(&self) -> bool {
        self.steps.len() >= self.limit
    }

    /// Stores of a process in a row are one step.
    pub fn take(&mut self, operations: &[Operation]) -> Result<()> {
        let of = |operation: &Operation| match operation {
            Operation::Store { process, .. } => Some(*process),
            _ => None,
        };
        for group in operations.chunk_by(|a, b| of(a).is_some() && of(a) == of(b)) {
            if self.is_full() {
                break;
            }
            for operation in group {
                if let Operation::Fork { parent, child } = operation {
                    self.parents.insert(*child, *parent);
                }
                self.manager.apply(operation)?;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            let what = match (group.len(), of(&group[0])) {
                (1, Some(process)) => format!("P{} stores to a page", process.0),
                (count, Some(process)) => format!("P{} stores to {count} pages", process.0),
                _ => super::words(&group[0]),
            };
            let state = self.look();
            self.steps.push(Step::between(what, &self.state, &state));
            self.state = state;
        }
        Ok(())
    }

    pub fn finish(self, source: &str) -> Result<Recording> {
        self.manager.check().map_err(anyhow::Error::msg).context("an invariant does not hold at the end")?;
        Ok(Recording { source: source.to_owned(), steps: self.steps })
    }

    fn look(&self) -> State {
        let mut state = State::default();
        for (process, space) in self.manager.spaces() {
            let parent = self.parents.get(&process).map(|parent| format!("P{}", parent.0));
            state.add(format!("P{}", process.0), parent, space);
        }
        state.pages = self.manager.pages();
        state
    }
}

impl State {
    fn add(&mut self, name: String, parent: Option<String>, space: &AddressSpace) {
        let version = space.vmas();
        let view = version.view();
        let vmas = view.iter().map(|vma| {
            let letter = |flag, letter| if vma.flags.contains(flag) { letter } else { '-' };
            let access = [
                letter(VmaFlags::READ, 'r'),
                letter(VmaFlags::WRITE, 'w'),
                letter(VmaFlags::EXEC, 'x'),
                if vma.flags.contains(VmaFlags::SHARED) { 's' } else { 'p' },
            ];
            let behind = if matches!(vma.backing, foldspace::vma::Backing::Anonymous) { "anonymous" } else { "file" };
            Vma(vma.range.start().0, vma.range.end().0, access.iter().collect(), behind.to_owned())
        });
        let vmas = vmas.collect();
        self.spaces.insert(name, Space { parent, root: space.root().0, vmas });
        space.for_each_table(|table| {
            if self.nodes.contains_key(&table.frame.0) {
                return false;
            }
            let mut slots = Vec::new();
            table.for_each_run(|SlotRun { slot, count }| {
                let word = slot.target.word().to_owned();
                slots.push(MomentSlots(slot.index, *count, word, slot.frame.0, slot.refs, u8::from(slot.writable)));
            });
            let node = Node { level: table.level as u8, refs: table.refs, lineage: table.lineage, slots };
            self.nodes.insert(table.frame.0, node);
            true
        });
    }

    /// How many pages the tables lead to, those of reference pages left out.
    pub fn pages_in_tables(&self) -> u64 {
        let runs = self.nodes.values().flat_map(|node| &node.slots);
        let pages = runs.filter(|MomentSlots(_, _, kind, ..)| kind == "page" || kind == "object");
        let frames = pages.flat_map(|MomentSlots(_, count, _, first, ..)| *first..*first + u32::from(*count));
        frames.collect::<BTreeSet<u32>>().len() as u64
    }
}

impl Step {
    pub fn between(what: String, old: &State, new: &State) -> Step {
        let changed =
            |(frame, node): (&u32, &Node)| (old.nodes.get(frame) != Some(node)).then(|| (*frame, node.clone()));
        let space = |(name, space): (&String, &Space)| {
            (old.spaces.get(name) != Some(space)).then(|| (name.clone(), space.clone()))
        };
        Step {
            what,
            tables: new.nodes.len(),
            pages: new.pages,
            tables_added: new.nodes.len() as i64 - old.nodes.len() as i64,
            pages_added: new.pages as i64 - old.pages as i64,
            spaces: new.spaces.iter().filter_map(space).collect(),
            spaces_gone: old.spaces.keys().filter(|name| !new.spaces.contains_key(*name)).cloned().collect(),
            nodes: new.nodes.iter().filter_map(changed).collect(),
            nodes_gone: old.nodes.keys().filter(|frame| !new.nodes.contains_key(frame)).copied().collect(),
        }
    }
}
