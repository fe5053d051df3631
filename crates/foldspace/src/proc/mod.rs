//! What `/proc/PID` says about memory: the text of `maps`, and the memory lines of `status`.

mod maps;
mod status;

pub use maps::Maps;
