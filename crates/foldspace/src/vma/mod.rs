//! Virtual memory areas: what is mapped where, and the persistent tree that holds it.

mod area;

pub use area::{Backing, Name, Vma, VmaFlags};
