//! Page tables: trees of nodes that are shared until written.
//!
//! Read from here: [`Entry`] is what a slot holds; [`Exclusive`] is the right to change the slots of one table; `path` finds and makes
//! exclusive paths (unsharing); `drop` takes subtrees apart.
//!
//! Locks: each table has a bit lock in its record. A slot changes only under the lock of the table that holds it; a table's entries are
//! copied only under its own lock; a node's references grow only under the lock of a table that has a slot to it. So who holds a table's
//! lock and sees a child with one reference knows that it stays so. Parents are locked before children.

mod common;
mod cut;
mod diff;
mod entry;
mod exclusive;
mod guards;
mod path;
mod range;
mod release;
mod relink;
mod relocate;
mod stretch;
mod supply;

pub(crate) use common::Common;
pub(crate) use cut::Copies;
pub use diff::PageState;
pub(crate) use entry::Entry;
pub(crate) use exclusive::Exclusive;
pub(crate) use path::{Leaf, Root};
pub(crate) use range::Touch;
pub(crate) use release::{for_each_of, for_each_used, release_entry, release_table};
pub(crate) use relink::Alike;
pub(crate) use stretch::{Path, Stretch};
pub(crate) use supply::Supply;
