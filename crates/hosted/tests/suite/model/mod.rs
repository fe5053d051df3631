//! What the manager is compared with: slow, obvious, and without sharing. An address space is a map of areas and a map of pages, fork copies both.

mod content;
mod layout;
mod memory;
mod remap;
pub mod render;

use std::collections::{BTreeMap, BTreeSet};

use foldspace::space::Layout;
use foldspace::vma::VmaFlags;

pub use content::{Dirty, Force, ModelObject, ObjectKind, pattern, reference_content};

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
}

/// One address space.
#[derive(Clone)]
pub struct ModelSpace {
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
}

/// All address spaces and objects.
#[derive(Clone, Default)]
pub struct Model {
    /// In the order of the manager's.
    pub spaces: Vec<ModelSpace>,
    /// In the order of the manager's.
    pub objects: Vec<ModelObject>,
}

impl Model {
    /// The child of a space: a copy of everything but what the parent asked not to hand on.
    pub fn fork(&self, parent: usize) -> ModelSpace {
        let mut child = self.spaces[parent].clone();
        let areas: Vec<(Page, Area)> = child.areas.iter().map(|(start, area)| (*start, *area)).collect();
        for (start, area) in areas {
            if area.flags.contains(VmaFlags::DONT_FORK) {
                child.carve(start, area.end);
            } else if area.flags.contains(VmaFlags::WIPE_ON_FORK) {
                child.private.retain(|page, _| !(start..area.end).contains(page));
                child.guards.retain(|page| !(start..area.end).contains(page));
            }
        }
        for area in child.areas.values_mut() {
            area.flags.remove(VmaFlags::LOCKED);
        }
        child.merge_neighbours();
        child
    }
}
