//! What mappings show: objects (files, shared anonymous memory) and reference pages.

mod object;
mod reference;

pub(crate) use object::{Block, Shown};
pub use object::{Identity, Object, Source};
pub use reference::Reference;
pub(crate) use reference::{ReferenceTables, References};
