//! Memory is compacted again and again, beside one who stores to it all the time and children who have it, too: nobody may notice.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldspace_guest_measure::process::{self, Fork};

use super::{Done, Life, tried};
use crate::board::Board;
use crate::sys::{End, PAGE, Place, RW, wait_for};

const PAGES: usize = 256;
/// The lower half is stored to while memory is compacted, the upper half in between.
const HALF: usize = PAGES / 2;
const BASE: Place = Place(0x2200_0000_0000 - 100 * PAGE);
/// Compactions between two children.
const APART: usize = 4;

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    let mut life = Life::new(board, seed);
    if tried("mmap", BASE.map(PAGES, RW))? == Done::Refused {
        return Ok(());
    }
    let (over, stores) = (AtomicBool::new(false), AtomicU64::new(0));
    let busy = || store_all_the_time(&over, &stores);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, busy);
        // Without memory for a thread it is compacted all the same.
        let compacted = compact(&mut life, board, &stores);
        over.store(true, Ordering::Relaxed);
        compacted?;
        thread.map_or(Ok(()), |thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}

/// Each page has a word at its beginning and at its end, which are the same.
fn store(page: usize, word: u64) {
    BASE.page(page).store(word);
    Place(BASE.page(page).0 + PAGE - 8).store(word);
}

fn verify(page: usize, word: u64) -> Result<(), String> {
    let (first, last) = (BASE.page(page).load(), Place(BASE.page(page).0 + PAGE - 8).load());
    if (first, last) == (word, word) {
        return Ok(());
    }
    Err(format!("page {page} of {PAGES} has {first:#x} and {last:#x}, not {word:#x}: it has changed under compaction"))
}

fn store_all_the_time(over: &AtomicBool, stores: &AtomicU64) -> Result<(), String> {
    let mut round = 0;
    while !over.load(Ordering::Relaxed) {
        round += 1;
        (0..HALF).for_each(|page| store(page, round << 16 | page as u64));
        (0..HALF).try_for_each(|page| verify(page, round << 16 | page as u64))?;
        stores.fetch_add(HALF as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn compact(life: &mut Life<'_>, board: &Board, stores: &AtomicU64) -> Result<(), String> {
    let mut words = [0_u64; PAGES];
    let mut turn = 0;
    while life.goes_on() {
        turn += 1;
        for _ in 0..16 {
            let page = HALF + life.roll(HALF);
            words[page] = life.random.next_number();
            store(page, words[page]);
        }
        if turn % APART == 0 {
            in_a_child(life, board, &mut words)?;
        } else if !compacted()? {
            board.count(0, 1);
            continue;
        }
        (HALF..PAGES).try_for_each(|page| verify(page, words[page]))?;
        board.count(1 + 16 + stores.swap(0, Ordering::Relaxed), 0);
    }
    Ok(())
}

/// Whether there was heap for it, where memory is short.
fn compacted() -> Result<bool, String> {
    tried("compacting", fs::write("/proc/sys/vm/compact_memory", "1")).map(|done| done == Done::Yes)
}

/// Both have the upper half, each stores to some of it, and memory is compacted by the one or by the other.
fn in_a_child(life: &mut Life<'_>, board: &Board, words: &mut [u64; PAGES]) -> Result<(), String> {
    let (by_child, own) = (life.roll(2) == 0, HALF + life.roll(HALF));
    let child = match process::fork() {
        Ok(Fork::Parent(child)) => child,
        Ok(Fork::Child) => {
            // The other thread, which the child does not have, holds no lock of the library.
            let mut outcome = Ok(());
            store(own, !words[own]);
            if by_child {
                outcome = compacted().map(drop);
            }
            let wanted = |page: usize| if page == own { !words[page] } else { words[page] };
            let outcome = outcome.and_then(|()| (HALF..PAGES).try_for_each(|page| verify(page, wanted(page))));
            if let Err(failure) = &outcome {
                println!("compacting, a child: {failure}");
            }
            process::exit(i32::from(outcome.is_err()))
        }
        // Refused, where memory is short.
        Err(_) => return Ok(()),
    };
    if !by_child {
        compacted()?;
    }
    let page = HALF + life.roll(HALF);
    words[page] = life.random.next_number();
    store(page, words[page]);
    match wait_for(child.pid()).1 {
        End::Exited(0) => Ok(()),
        End::Killed(libc::SIGKILL) if board.is_scarce() => Ok(()),
        other => Err(format!("a child beside compaction ended with {other:?}")),
    }
}
