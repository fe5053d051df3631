//! What `/proc/PID` says about memory: the text of `maps`, `smaps`, `smaps_rollup` and `statm`, the memory lines of `status`, the entries of
//! `pagemap`, and the answers to questions about one VMA.

mod frames;
pub(crate) mod mapcount;
mod maps;
mod pagemap;
mod query;
mod smaps;
mod statm;
mod status;
mod tables;
mod text;

pub use frames::{FrameRun, KpageFlags};
pub use maps::Maps;
pub use pagemap::{FrameNumbers, PagemapEntry};
pub use query::{Found, Query, Reach};
pub use smaps::Smaps;
pub use tables::{SlotRun, SlotView, TableView, Target};
