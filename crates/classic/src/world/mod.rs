//! Address spaces under one rule, and what each operation does to them.
//!
//! One file per operation, as in the manager.

mod change;
mod discard;
mod exit;
mod fork;
mod grow;
mod map;
mod relocate;
mod store;
mod unmap;

use std::collections::BTreeMap;

use slab::Slab;
use thiserror::Error;

use crate::anon_vma::{AnonVmaId, AnonVmas};
use crate::operation::{Area, Operation, Process};
use crate::page::{Page, PageId};
use crate::rule::{Purpose, Rule};
use crate::tally::Tally;
use crate::vma::{Vma, VmaId};

/// An operation that makes no sense where it comes. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Error, Debug)]
pub enum Refusal {
    /// Nobody has that number.
    #[error("there is no process {}", .0.0)]
    NoProcess(Process),
    /// Somebody has that number.
    #[error("there is a process {} already", .0.0)]
    ProcessExists(Process),
    /// What is to be moved is not in one VMA, or overlaps where it is to go.
    #[error("the area to be moved is not in one VMA, or overlaps its new place")]
    CannotMove,
    /// Nothing ends where something is to grow.
    #[error("no VMA ends where one is to grow")]
    CannotGrow,
}

/// One address space.
#[derive(Default)]
pub(crate) struct Space {
    /// By their first page.
    vmas: BTreeMap<u64, VmaId>,
    /// Its anonymous pages, by where they are.
    pub(crate) pages: BTreeMap<u64, PageId>,
}

/// All processes, their VMAs and pages, with the reverse map of one rule.
pub struct World {
    rule: Rule,
    pub(crate) anon_vmas: AnonVmas,
    vmas: Slab<Vma>,
    pub(crate) pages: Slab<Page>,
    pub(crate) spaces: BTreeMap<Process, Space>,
}

impl World {
    /// One without processes.
    pub fn new(rule: Rule) -> World {
        World { rule, anon_vmas: AnonVmas::default(), vmas: Slab::new(), pages: Slab::new(), spaces: BTreeMap::new() }
    }

    /// Whose rule it follows.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Carries one operation out. O(VMAs and pages that it concerns), fork and exit those of the process.
    ///
    /// # Errors
    /// [`Refusal`]: nothing has changed.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Refusal> {
        match *operation {
            Operation::Start { process } | Operation::Fork { child: process, .. }
                if self.spaces.contains_key(&process) =>
            {
                return Err(Refusal::ProcessExists(process));
            }
            Operation::Start { process } => {
                self.spaces.insert(process, Space::default());
                return Ok(());
            }
            Operation::Map { process, .. }
            | Operation::Unmap { process, .. }
            | Operation::Change { process, .. }
            | Operation::Move { process, .. }
            | Operation::Grow { process, .. }
            | Operation::Store { process, .. }
            | Operation::Discard { process, .. }
            | Operation::Fork { parent: process, .. }
            | Operation::Exit { process }
                if !self.spaces.contains_key(&process) =>
            {
                return Err(Refusal::NoProcess(process));
            }
            Operation::Map { process, area, backing, flags } => self.map(process, area, backing, flags),
            Operation::Unmap { process, area } => self.unmap(process, area),
            Operation::Change { process, area, clear, set } => self.change(process, area, clear, set),
            Operation::Move { process, from, to } => return self.relocate(process, from, to),
            Operation::Grow { process, end, pages } => return self.grow(process, end, pages),
            Operation::Store { process, page } => self.store(process, page),
            Operation::Discard { process, area } => self.discard(process, area),
            Operation::Fork { parent, child } => self.fork(parent, child),
            Operation::Exit { process } => self.exit(process),
        }
        Ok(())
    }

    /// What there is now, and what was made. O(VMAs).
    pub fn tally(&self) -> Tally {
        Tally {
            processes: self.spaces.len() as u64,
            vmas: self.vmas.len() as u64,
            anon_vmas: self.anon_vmas.len() as u64,
            anon_vmas_made: self.anon_vmas.made,
            links: self.anon_vmas.links,
            links_made: self.anon_vmas.links_made,
            longest_chain: self.vmas.iter().map(|(_, vma)| vma.chain.len() as u64).max().unwrap_or(0),
            pages: self.pages.len() as u64,
        }
    }

    /// anon_vmas, and links, that were ever made. O(1).
    pub fn made(&self) -> (u64, u64) {
        (self.anon_vmas.made, self.anon_vmas.links_made)
    }

    /// The areas of a process' VMAs, upwards.
    pub fn areas(&self, process: Process) -> Vec<Area> {
        let ids = self.spaces.get(&process).into_iter().flat_map(|space| space.vmas.values());
        ids.map(|id| self.vma(*id).area).collect()
    }

    pub(crate) fn vma_ids(&self) -> impl Iterator<Item = VmaId> {
        self.vmas.iter().map(|(at, _)| VmaId(at))
    }

    pub(crate) fn vma(&self, id: VmaId) -> &Vma {
        &self.vmas[id.0]
    }

    fn vma_mut(&mut self, id: VmaId) -> &mut Vma {
        &mut self.vmas[id.0]
    }

    fn space_mut(&mut self, process: Process) -> &mut Space {
        self.spaces.get_mut(&process).expect("asked for by `apply`")
    }

    /// The VMA that holds a page.
    fn find(&self, process: Process, page: u64) -> Option<VmaId> {
        let (_, id) = self.spaces.get(&process)?.vmas.range(..=page).next_back()?;
        self.vma(*id).area.contains(page).then_some(*id)
    }

    /// The VMAs that have pages in an area, upwards.
    fn overlapping(&self, process: Process, area: Area) -> Vec<VmaId> {
        let Some(space) = self.spaces.get(&process) else { return Vec::new() };
        let first = self.find(process, area.start).map_or(area.start, |id| self.vma(id).area.start);
        space.vmas.range(first..area.end).map(|(_, id)| *id).collect()
    }

    /// The VMA below and the VMA above a place, with a gap or without.
    fn neighbours(&self, process: Process, area: Area) -> (Option<VmaId>, Option<VmaId>) {
        let Some(space) = self.spaces.get(&process) else { return (None, None) };
        let below = space.vmas.range(..area.start).next_back().map(|(_, id)| *id);
        let above = space.vmas.range(area.end..).next().map(|(_, id)| *id);
        (below, above)
    }

    /// Makes a VMA, without a chain.
    fn insert(&mut self, vma: Vma) -> VmaId {
        let (process, start) = (vma.process, vma.area.start);
        let id = VmaId(self.vmas.insert(Vma { own: None, chain: Vec::new(), ..vma }));
        self.space_mut(process).vmas.insert(start, id);
        id
    }

    /// Takes a VMA out, with its links. Its pages are the caller's to settle.
    fn remove(&mut self, id: VmaId) {
        let (process, start) = (self.vma(id).process, self.vma(id).area.start);
        self.space_mut(process).vmas.remove(&start);
        let vma = self.vmas.remove(id.0);
        for &anon_vma in &vma.chain {
            self.anon_vmas.unlink(anon_vma, id);
        }
        if let Some(own) = vma.own {
            self.anon_vmas.leave(own);
        }
        for anon_vma in vma.chain {
            self.anon_vmas.free_if_unused(anon_vma);
        }
    }

    /// Moves the edges of a VMA; its pages keep what they are called.
    fn resize(&mut self, id: VmaId, area: Area) {
        let vma = self.vma_mut(id);
        let (process, before) = (vma.process, vma.area);
        vma.offset = (vma.offset + area.start).wrapping_sub(before.start);
        vma.area = area;
        let vmas = &mut self.space_mut(process).vmas;
        vmas.remove(&before.start);
        vmas.insert(area.start, id);
    }

    fn link(&mut self, vma: VmaId, anon_vma: AnonVmaId) {
        self.anon_vmas.link(anon_vma, vma);
        self.vma_mut(vma).chain.push(anon_vma);
    }

    /// Makes an anon_vma a VMA's own.
    fn own(&mut self, vma: VmaId, anon_vma: AnonVmaId) {
        self.anon_vmas.get_mut(anon_vma).users += 1;
        self.vma_mut(vma).own = Some(anon_vma);
    }

    /// Links a VMA that has no chain to all that another is linked to (`anon_vma_clone`). A copy has the same anon_vma as its own; a child's VMA gets
    /// one that is used again, or none.
    fn clone_chain(&mut self, to: VmaId, from: VmaId, purpose: Purpose) {
        let (chain, own) = (self.vma(from).chain.clone(), self.vma(from).own);
        let mut chosen = own.filter(|_| purpose == Purpose::Copy);
        for anon_vma in chain {
            self.link(to, anon_vma);
            let may = || self.rule.may_reuse(self.anon_vmas.get(anon_vma), purpose);
            if chosen.is_none() && own != Some(anon_vma) && may() {
                chosen = Some(anon_vma);
            }
        }
        if let Some(chosen) = chosen {
            self.own(to, chosen);
        }
    }

    /// Cuts a VMA in two; returns the upper one, a copy of the lower (`__split_vma`).
    fn split(&mut self, id: VmaId, at: u64) -> VmaId {
        let whole = self.vma(id).clone();
        let (low, high) = (Area { end: at, ..whole.area }, Area { start: at, ..whole.area });
        let upper = Vma { area: high, offset: whole.offset_of(at), ..whole };
        self.resize(id, low);
        let upper = self.insert(upper);
        self.clone_chain(upper, id, Purpose::Copy);
        upper
    }

    /// Cuts at both ends of an area, so that VMAs lie in it or outside it. Returns those in it.
    fn isolate(&mut self, process: Process, area: Area) -> Vec<VmaId> {
        for at in [area.start, area.end] {
            if let Some(id) = self.find(process, at).filter(|id| self.vma(*id).area.start < at) {
                self.split(id, at);
            }
        }
        self.overlapping(process, area)
    }

    /// Drops one mapping of a page.
    fn release(&mut self, page: PageId) {
        let about = &mut self.pages[page.0];
        about.mapped -= 1;
        if about.mapped == 0 {
            self.pages.remove(page.0);
        }
    }

    /// Drops the pages that a process has in an area.
    fn drop_pages(&mut self, process: Process, area: Area) {
        let pages = &mut self.space_mut(process).pages;
        let mut gone = pages.split_off(&area.start);
        pages.append(&mut gone.split_off(&area.end));
        for page in gone.into_values() {
            self.release(page);
        }
    }
}
