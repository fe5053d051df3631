#![doc = include_str!("../README.md")]

mod anon_vma;
mod check;
mod operation;
mod page;
mod reverse;
mod rule;
mod tally;
mod vma;
mod world;

pub use operation::{Area, Backing, Operation, Process, VmaFlags};
pub use page::PageId;
pub use reverse::{Lookup, Mapping};
pub use rule::Rule;
pub use tally::Tally;
pub use world::{Refusal, World};
