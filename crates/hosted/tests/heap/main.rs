//! The heap runs out: at the first allocation of an operation, at the second, and so on. The operation must say so, change nothing, and leak nothing.
//!
//! An allocation that cannot fail, only abort, ends the process; so each attempt runs in a process of its own, which is this test binary again.

mod allocator;
mod many;
mod operations;

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use operations::{OPERATIONS, Outcome};

const OPERATION: &str = "FOLDSPACE_HEAP_OPERATION";
const POINT: &str = "FOLDSPACE_HEAP_POINT";
/// Allocations that end the process instead of the operation, and why: what is not ours to change. By operation, and the number of its allocation.
const ABORTS: &[(&str, u64)] = &[
    // `Arc::new`, which cannot fail on stable Rust: of an address space only if the memory that was there a moment before has gone.
    ("new space", 2),
    ("new file", 0),
    ("new shared memory", 0),
    ("fork", 2),
    ("fork, last level", 2),
    // Out of memory, the operation reclaims, and crossbeam-epoch allocates to queue what is to be freed.
    ("fork, last level", 3),
    ("fork, copying", 2),
    ("fork, copying", 3),
];
/// No operation allocates more often than this.
const MOST_POINTS: u64 = 200;

/// The part that the processes of [`each_operation_survives_each_point`] play.
#[test]
fn attempt() {
    let (Ok(operation), Ok(point)) = (env::var(OPERATION), env::var(POINT)) else { return };
    let point = point.parse().expect("a number");
    let operation = OPERATIONS.iter().find(|candidate| candidate.name == operation).expect("a known operation");
    match operation.attempt(point) {
        Outcome::Done => println!("[outcome: done]"),
        Outcome::Refused => println!("[outcome: refused]"),
    }
}

fn run(operation: &str, point: u64) -> Output {
    let binary = env::current_exe().expect("this binary has a path");
    Command::new(binary)
        .args(["--exact", "attempt", "--nocapture", "--test-threads=1"])
        .envs([(OPERATION, operation), (POINT, &point.to_string())])
        .output()
        .expect("this binary runs again")
}

#[test]
fn each_operation_survives_each_point() {
    let mut aborts = Vec::new();
    for operation in OPERATIONS {
        let mut refused = 0;
        let mut done = false;
        for point in 0..MOST_POINTS {
            let output = run(operation.name, point);
            let text = String::from_utf8_lossy(&output.stdout);
            // SIGABRT: an allocation that cannot fail.
            if output.status.signal() == Some(6) {
                aborts.push((operation.name, point));
            } else if text.contains("[outcome: refused]") && output.status.success() {
                refused += 1;
            } else if text.contains("[outcome: done]") && output.status.success() {
                done = true;
                break;
            } else {
                let errors = String::from_utf8_lossy(&output.stderr);
                panic!("{} fails at allocation {point}: {text}{errors}", operation.name);
            }
        }
        assert!(done, "{} needs endlessly many allocations", operation.name);
        println!("{}: refused at {refused} points", operation.name);
    }
    assert_eq!(aborts, ABORTS, "allocations that abort instead of failing");
}
