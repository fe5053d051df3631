#![doc = include_str!("../README.md")]
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(any(test, foldspace_shuttle, foldspace_loom, feature = "watch"))]
extern crate std;

pub mod addr;
pub mod backing;
pub mod check;
pub mod error;
pub mod frame;
#[cfg(doc)]
pub mod guide;
pub mod migrate;
#[expect(unsafe_code, reason = "an embedder makes promises that memory safety rests on")]
pub mod platform;
pub mod proc;
pub mod reverse;
pub mod space;
#[cfg(not(any(foldspace_shuttle, feature = "watch")))]
mod sync;
#[cfg(any(foldspace_shuttle, feature = "watch"))]
pub mod sync;
mod table;
pub mod vma;

pub use addr::{PageRange, VirtAddr};
pub use backing::Object;
pub use check::Violation;
pub use error::{Error, Result};
pub use frame::{Frame, Memory};
pub use space::AddressSpace;
