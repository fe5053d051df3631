//! A software MMU with the rules of an x86-64 processor (Intel SDM vol. 3, chapters 5.5 to 5.10 of 2024, 4.5 to 4.10 before).

mod caches;
mod processor;
pub(crate) mod walk;

pub(crate) use caches::SharedCaches;
pub use caches::{CacheSize, Stale};
pub use processor::{AccessError, Processor, ProcessorStats, Refusal};
pub use walk::{Cause, Leaf, PageFault, Rights, Translation};
pub(crate) use walk::{Upper, leaves, translate};
