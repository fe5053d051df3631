//! The manager, hosted, against a model and against itself.

mod chaos;
mod checker;
mod contents;
mod cost;
mod frames;
mod guards;
mod guards_linux;
mod interleave;
mod isolation;
mod life;
mod linux;
mod merges;
mod model;
mod object_tables;
mod ops;
mod pages;
mod populate;
mod references;
mod registry;
mod regressions;
mod remap;
mod shootdown;
mod sizes;
mod threads;
mod truncation;
mod world;
