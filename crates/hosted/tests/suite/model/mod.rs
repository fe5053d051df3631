//! What the manager is compared with: slow, obvious, and without sharing. An address space is a map of areas and a map of pages, fork copies both.

mod content;
mod layout;
mod limits;
mod memory;
mod modify;
mod remap;
pub mod render;

use std::collections::{BTreeMap, BTreeSet};

use foldspace::Error;
use foldspace::space::Layout;
use foldspace::vma::VmaFlags;

pub use content::{Dirty, Force, ModelObject, ObjectKind, pattern, reference_content};
pub use limits::Policy;

/// A page number.
pub type Page = u64;

/// Bytes in a page.
pub const PAGE: u64 = 4096;

/// Where an area's pages come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Zeros.
    Anonymous,
    /// The object of this number.
    Object(usize),
    /// The reference page of this number: [`reference_content`].
    Reference(u8),
}

/// An area; where it starts is its key in the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Area {
    /// One past its last page.
    pub end: Page,
    /// As given to map, with protect's changes.
    pub flags: VmaFlags,
    /// Where its pages come from.
    pub content: Content,
    /// Page of the object at which it starts.
    pub offset: u64,
    /// Its name, one of [`NAMES`].
    pub name: Option<u8>,
    /// Its protection key.
    pub key: u32,
}

/// Names for memory.
pub const NAMES: [&[u8]; 4] = [b"", b"a name", b"another", &[b'x'; 79]];

/// One address space.
#[derive(Clone)]
pub struct ModelSpace {
    /// All that come from one by fork, snapshot and spawn have the same.
    pub family: usize,
    /// As the manager's.
    pub layout: Layout,
    /// By first page.
    pub areas: BTreeMap<Page, Area>,
    /// Pages that this address space has a copy of its own of, because it stored to them.
    pub private: BTreeMap<Page, Vec<u8>>,
    /// Pages that were freed lazily, and not stored to since. Says nothing of pages that are not in `private`.
    pub lazy: BTreeSet<Page>,
    /// Pages that nobody may access.
    pub guards: BTreeSet<Page>,
    /// Pages of its own that were lost with the memory that held them.
    pub lost: BTreeSet<Page>,
    /// What holds for all address spaces, and what the others have committed.
    pub policy: Policy,
}

/// All address spaces and objects.
#[derive(Clone, Default)]
pub struct Model {
    /// In the order of the manager's.
    pub spaces: Vec<ModelSpace>,
    /// What snapshots hold, in the order of the manager's.
    pub snapshots: Vec<ModelSpace>,
    /// In the order of the manager's.
    pub objects: Vec<ModelObject>,
}

impl Model {
    /// The child of a space: a copy of everything but what the parent asked not to hand on. No areas are joined.
    pub fn fork(&self, parent: usize) -> Result<ModelSpace, Error> {
        let parent = &self.spaces[parent];
        parent.may_fork()?;
        let mut child = parent.clone();
        child.layout.future_lock = VmaFlags::empty();
        for (start, area) in parent.areas.clone() {
            if area.flags.contains(VmaFlags::DONT_FORK) {
                child.carve(start, area.end);
            } else if area.flags.contains(VmaFlags::WIPE_ON_FORK) {
                child.private.retain(|page, _| !(start..area.end).contains(page));
                child.guards.retain(|page| !(start..area.end).contains(page));
                child.lost.retain(|page| !(start..area.end).contains(page));
            }
        }
        for area in child.areas.values_mut() {
            area.flags -= LOCK;
        }
        Ok(child)
    }

    /// Address spaces, then what snapshots hold.
    pub fn all(&self) -> impl Iterator<Item = &ModelSpace> {
        self.spaces.iter().chain(&self.snapshots)
    }

    /// As [`Model::all`], to be changed.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut ModelSpace> {
        self.spaces.iter_mut().chain(&mut self.snapshots)
    }

    /// Tells each space what the others have committed.
    pub fn settle(&mut self, policy: Policy) {
        let objects: u64 = self.objects.iter().map(|object| object.committed).sum();
        let all: u64 = objects + self.all().map(ModelSpace::committed).sum::<u64>();
        for space in self.all_mut() {
            space.policy = Policy { elsewhere: all - space.committed(), ..policy };
        }
    }
}

/// What a lock is made of.
pub const LOCK: VmaFlags = VmaFlags::LOCKED.union(VmaFlags::LOCK_ON_FAULT);
