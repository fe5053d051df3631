//! The manager, hosted, against a model and against itself.

mod life;
mod model;
mod ops;
mod world;
