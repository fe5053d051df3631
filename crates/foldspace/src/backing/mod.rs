//! What mappings show: objects (files, shared anonymous memory) and reference pages.

mod object;
mod objects;
mod reference;

pub(crate) use object::{Block, Pages, Shown};
pub use object::{Identity, Object, Source};
pub(crate) use objects::Objects;
pub use reference::Reference;
pub(crate) use reference::{ReferenceTables, References};
