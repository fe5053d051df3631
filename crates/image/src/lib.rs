#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod archive;
mod program;

pub use program::{Base, Headers, Image, PIE_BASE, PIE_HEAP};
