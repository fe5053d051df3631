//! Locks of threads and of processes: what is done under one is done once, and who waits is woken.

use std::sync::{Barrier, Condvar, Mutex};
use std::time::Duration;

use foldspace_guest_measure::process::{self, Fork};

use super::{Life, tried};
use crate::board::Board;
use crate::sys::{End, Place, shared_pages, wait_for};

const THREADS: usize = 4;
const ROUNDS: u64 = 300;
const PATIENCE: Duration = Duration::from_secs(100);

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    let life = Life::new(board, seed);
    while life.goes_on() {
        threads()?;
        processes(board)?;
        board.count(ROUNDS * (THREADS as u64 + 2), 0);
    }
    Ok(())
}

/// A sum under a lock, a ball that is passed on by a condition, a barrier at the end.
fn threads() -> Result<(), String> {
    let (sum, ball, pass, end) = (Mutex::new(0), Mutex::new(0), Condvar::new(), Barrier::new(THREADS));
    let started = Barrier::new(THREADS);
    let work = |number: usize| {
        started.wait();
        for round in 0..ROUNDS {
            *sum.lock().map_err(|_| "a lock is poisoned")? += 1;
            if round % 10 == 0 {
                let turn = |holder: &mut u64| *holder % THREADS as u64 != number as u64;
                let held = ball.lock().map_err(|_| "a lock is poisoned")?;
                let (mut held, late) =
                    pass.wait_timeout_while(held, PATIENCE, turn).map_err(|_| "a lock is poisoned")?;
                if late.timed_out() {
                    return Err("nobody passes the ball on".to_owned());
                }
                *held += 1;
                pass.notify_all();
            }
        }
        end.wait();
        Ok(())
    };
    // All or none: a barrier waits for all.
    let all = std::thread::scope(|scope| {
        let mut spawned = Vec::new();
        for number in 1..THREADS {
            match std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, move || work_of(&work, number)) {
                Ok(thread) => spawned.push(thread),
                // There is no memory for a thread, and those that there are wait for it: as if it had been killed for that.
                Err(_) => process::exit(0),
            }
        }
        let own = work(0);
        spawned.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)?;
        own
    });
    all?;
    let sum = *sum.lock().map_err(|_| "a lock is poisoned")?;
    if sum != ROUNDS * THREADS as u64 {
        Err(format!("{sum} under a lock that was taken {} times", ROUNDS * THREADS as u64))
    } else {
        Ok(())
    }
}

fn work_of(work: &impl Fn(usize) -> Result<(), String>, number: usize) -> Result<(), String> {
    work(number)
}

/// A lock in shared memory, and a word that is only ever changed under it.
fn processes(board: &Board) -> Result<(), String> {
    let shared = match shared_pages(2) {
        Ok(shared) => shared,
        Err(error) => return tried("mmap", Err(error)).map(drop),
    };
    let word = Place(shared.page(1).0 + 16);
    let count = || -> Result<(), String> {
        for _ in 0..ROUNDS {
            shared.lock(PATIENCE)?;
            word.store(word.load() + 1);
            shared.unlock();
        }
        Ok(())
    };
    let child = match process::fork() {
        Ok(Fork::Child) => process::exit(i32::from(count().is_err())),
        Ok(Fork::Parent(child)) => child,
        Err(error) => {
            return tried("fork", Err(error)).map(drop).and_then(|()| tried("munmap", shared.unmap(2)).map(drop));
        }
    };
    let own = count();
    match wait_for(child.pid()).1 {
        End::Exited(0) => {
            own?;
            let counted = word.load();
            if counted != 2 * ROUNDS {
                return Err(format!("{counted} under a lock between processes, not {}", 2 * ROUNDS));
            }
        }
        // It may have had the lock.
        End::Killed(libc::SIGKILL) if board.is_scarce() => {}
        other => return Err(format!("the other process ended with {other:?}")),
    }
    tried("munmap", shared.unmap(2)).map(drop)
}
