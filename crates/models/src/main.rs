//! Explores the interleavings of the manager's concurrent protocols: the manager itself, built so that each access to an atomic, each lock and each step
//! of a software processor is a point where [shuttle](https://docs.rs/shuttle) may let another thread run (`crates/foldspace/src/sync.rs`).
//!
//! A model is a list of cases; a case is a few actors that act on a family of address spaces at once. After each schedule the invariants are checked,
//! no processor may remember what the tables do not say, no frame may be lost, and all that was seen must be what some order of the
//! operations, one after the other, would have given.

#[cfg(foldspace_shuttle)]
mod explore;
#[cfg(foldspace_shuttle)]
mod models;
#[cfg(foldspace_shuttle)]
mod op;
#[cfg(foldspace_shuttle)]
mod platform;
#[cfg(foldspace_shuttle)]
mod run;
#[cfg(foldspace_shuttle)]
mod schedule;
#[cfg(foldspace_shuttle)]
mod stage;

#[cfg(foldspace_shuttle)]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(foldspace_shuttle))]
fn main() {
    eprintln!("There is nothing to explore without `--cfg foldspace_shuttle`: use `./x models`.");
    std::process::exit(2);
}
