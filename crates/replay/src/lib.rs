#![doc = include_str!("../README.md")]

mod families;
mod manager;
mod replay;
mod stores;
pub mod strace;
mod translate;

pub use families::{Brood, Link, LookUp, Size, chain, children};
pub use manager::{Manager, ManagerError};
pub use replay::{Damaged, Figures, Fork, Name, Options, Replay, Report, Variant};
pub use stores::Stores;
pub use translate::{Done, Notes, Translator};
