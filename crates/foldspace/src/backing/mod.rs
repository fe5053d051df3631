//! What mappings show: objects (files, shared anonymous memory) and reference pages.

mod object;
mod reference;

pub use object::{Identity, Object, Source};
pub use reference::Reference;
pub(crate) use reference::{ReferenceTables, References};
