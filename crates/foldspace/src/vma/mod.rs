//! Virtual memory areas: what is mapped where, and the persistent tree that holds it.

mod area;
mod name;
mod tree;

pub use area::{Backing, ProtectionKey, Tag, Vma, VmaFlags, Watcher};
pub use name::Name;
pub use tree::{
    GapRequest, Iter, Neighbours, PageCounts, Summary, Totals, Version, VersionRef, VmaChange, free_spare_nodes,
};
// Not for other crates: a cell relies on all guards being of one collector.
pub(crate) use tree::{Change, VersionCell};
