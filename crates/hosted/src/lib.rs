#![doc = include_str!("../README.md")]

mod arena;
pub mod export;
mod guest;
mod host;
mod layouts;
mod mmu;
mod platform;
mod sync;

pub use arena::Arena;
pub use guest::{Cpu, Guest, Heed, Permissions, Reason, Stop};
pub use host::{Host, HostError};
pub use layouts::Layouts;
pub use mmu::{
    AccessError, CacheSize, Cause, Leaf, PageFault, Processor, ProcessorStats, Refusal, Rights, Stale, Translation,
};
pub use platform::HostPlatform;
