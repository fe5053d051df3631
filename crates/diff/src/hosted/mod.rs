//! Foldspace's side: processes that exist only here, over address spaces of a hosted machine.

mod disturb;
mod file;
mod machine;
mod process;
mod world;

pub use machine::{Machine, MachineError, Ran};
