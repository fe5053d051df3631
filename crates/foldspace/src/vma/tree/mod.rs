//! The persistent tree of VMAs: a copy-on-write B+tree keyed by address.
//!
//! VMAs are immutable values in the leaves; inner nodes hold children and where each ends. Every node carries a [`Summary`] of what
//! is below it: extent, largest gap, union of flags, sums of pages by kind. A change builds new nodes for the path it touches and publishes
//! a new root in one store; what it does not touch is shared between the old version and the new. Readers pin an epoch and
//! load the root ([`VersionCell::load`]), or hold a version by count ([`VersionCell::hold`]), which is also all that fork does.
//!
//! Nodes that only the current version refers to are not copied reference by reference: their content moves, and their memory is
//! reclaimed after a grace period. Counts are touched only where versions really share.
//!
//! Where things are: `node/` memory, counts and ownership (with `version`, all `unsafe`), `single` and `edit` the common changes of one leaf,
//! `splice` the rebuilding of a tree along the edges of a range, `version` publication and reclamation, `find`, `gap`, `iter` the
//! questions.

mod diff;
mod edit;
mod find;
mod gap;
mod iter;
#[allow(unsafe_code, reason = "memory, counts and ownership of nodes")]
mod node;
mod path;
mod single;
mod splice;
mod summary;
#[allow(unsafe_code, reason = "publication and reclamation of versions")]
mod version;

#[cfg(test)]
mod tests;

pub use diff::VmaChange;
pub use find::Neighbours;
pub use gap::GapRequest;
pub use iter::Iter;
pub use node::free_spare_nodes;
pub use summary::{PageCounts, Summary, Totals};
pub use version::{Change, Version, VersionCell, VersionRef};
