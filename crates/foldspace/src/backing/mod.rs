//! What mappings show: objects (files, shared anonymous memory) and reference pages.

mod object;

pub use object::{Identity, Object, Source};
