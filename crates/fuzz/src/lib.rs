//! What is fuzzed: a function of bytes for each, which panics where a promise is broken. Two programs call them: `fuzz/` with libFuzzer (`./x fuzz`), and this
//! crate's test, which replays `fuzz/corpus` and bounded mutations of it on any toolchain.

mod cpio;
mod elf;
mod import;
mod operations;
mod strace;

// The model of the manager and what may happen to it are those of the manager's own tests.
#[allow(dead_code, unused_imports, missing_docs)]
#[path = "../../hosted/tests/suite/life.rs"]
mod life;
#[allow(dead_code, missing_docs)]
#[path = "../../hosted/tests/suite/model/mod.rs"]
mod model;
#[allow(dead_code, missing_docs)]
#[path = "../../hosted/tests/suite/ops.rs"]
mod ops;
#[allow(dead_code, missing_docs)]
#[path = "../../hosted/tests/suite/sizes.rs"]
mod sizes;
#[allow(dead_code, missing_docs)]
#[path = "../../hosted/tests/suite/world/mod.rs"]
mod world;

/// Does something with bytes; panics where a promise is broken.
pub type Target = fn(&[u8]);

/// What is fuzzed, under the names of `fuzz/corpus`.
pub const TARGETS: &[(&str, Target)] = &[
    ("operations", operations::operations),
    ("import", import::import),
    ("strace", strace::strace),
    ("elf", elf::elf),
    ("cpio", cpio::cpio),
];

/// Runs a target.
///
/// # Panics
/// If there is none of the name, and if a promise is broken.
pub fn run(name: &str, bytes: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target of this name");
    target(bytes);
}
