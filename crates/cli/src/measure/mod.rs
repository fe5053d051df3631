//! `foldspace bench` and `foldspace demo`: a measuring program from `guests/` runs on Foldspace and on Linux, the same
//! file, in the same machine, with a clock that counts instructions; its lines of JSON become a table.

mod bench;
mod demo;
mod goals;
mod guest;
mod latency;
mod profile;
pub mod table;
mod tearing;

pub use bench::bench;
pub use demo::demo;
pub use profile::profile;
