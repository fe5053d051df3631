//! The manager, hosted, against a model and against itself.

mod chaos;
mod checker;
mod cost;
mod interleave;
mod isolation;
mod life;
mod model;
mod ops;
mod regressions;
mod shootdown;
mod threads;
mod world;
