//! Programs that are executed, and end.

use foldspace_guest_measure::process::{self, Fork};

use super::{Life, tried};
use crate::board::Board;
use crate::sys::{End, wait_for};

/// Status of a program whose loader has given up.
const LOADER_FAILED: i32 = 127;

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    let life = Life::new(board, seed);
    while life.goes_on() {
        match process::fork() {
            Ok(Fork::Child) => {
                let error = process::execute(c"/proc/self/exe", &[c"soak", c"--nothing"]);
                process::exit(if super::out_of_memory(&error) { 0 } else { 1 });
            }
            Ok(Fork::Parent(child)) => match wait_for(child.pid()).1 {
                End::Exited(0) => board.count(1, 0),
                // Its loader says what it could not have.
                End::Exited(LOADER_FAILED) if board.is_scarce() => board.count(0, 1),
                // Beyond the point of no return there is no refusal: the process is killed. What a program needs before it begins, its library aborts
                // without.
                End::Killed(libc::SIGKILL | libc::SIGSEGV | libc::SIGABRT) if board.is_scarce() => board.count(0, 1),
                other => return Err(format!("a program ended with {other:?}")),
            },
            Err(error) => drop(tried("fork", Err(error))?),
        }
    }
    Ok(())
}
