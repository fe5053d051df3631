//! Measures programs that fork for a living, one line of JSON each; see `bench-basic` for the lines and the options.
//!
//! `bench-apps [--quick] [--wall] [--mode copy|leaf|full] [--list] [ROW...]`
//!
//! - `sqlite_*`: a fuzzer's fork server, by AFL's protocol, over a database in memory.
//! - `store_*`: a key-value store that saves by forking, while a client writes.
//! - `pool_*`: workers that are forked from an initialised Lua interpreter, as serverless runtimes do, and ones that are started anew.

mod pool;
mod sqlite;
mod store;

use std::process::ExitCode;

use foldspace_guest_measure::row;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|first| first == pool::COLD) {
        return pool::cold_worker();
    }
    row::program("bench-apps", [sqlite::rows(), store::rows(), pool::rows()].into_iter().flatten().collect())
}
