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
/// Memory of which one page in four stays, so that there is something to be moved together.
const SCATTERED: Place = Place(0x2300_0000_0000);
const SCATTERED_PAGES: usize = 2048;
const STEP: usize = 4;
/// Compactions between two children.
const APART: u64 = 4;

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    let mut life = Life::new(board, seed);
    if tried("mmap", BASE.map(PAGES, RW))? == Done::Refused {
        return Ok(());
    }
    let (over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let busy = || store_all_the_time(&over, &rounds);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, busy);
        // Without memory for a thread it is compacted all the same.
        let compacted = compact(&mut life, board, &rounds);
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

fn store_all_the_time(over: &AtomicBool, rounds: &AtomicU64) -> Result<(), String> {
    let mut round = 0;
    while !over.load(Ordering::Relaxed) {
        round += 1;
        (0..HALF).for_each(|page| store(page, word_of(round, page)));
        (0..HALF).try_for_each(|page| verify(page, word_of(round, page)))?;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn compact(life: &mut Life<'_>, board: &Board, rounds: &AtomicU64) -> Result<(), String> {
    let mut words = [0_u64; PAGES];
    let mut turn = 0_u64;
    while life.goes_on() {
        turn += 1;
        for _ in 0..16 {
            let page = HALF + life.roll(HALF);
            words[page] = life.random.next_number();
            store(page, words[page]);
        }
        let scattered = scatter(turn)?;
        if turn.is_multiple_of(APART) {
            in_a_child(life, board, &mut words)?;
        } else if !compacted()? {
            board.count(0, 1);
            continue;
        }
        if scattered {
            (0..SCATTERED_PAGES).step_by(STEP).try_for_each(|page| {
                let found = SCATTERED.page(page).load();
                if found == word_of(turn, page) {
                    Ok(())
                } else {
                    Err(format!("a page has {found:#x} after compaction"))
                }
            })?;
        }
        (HALF..PAGES).try_for_each(|page| verify(page, words[page]))?;
        board.count(1 + 16 + rounds.swap(0, Ordering::Relaxed), 0);
    }
    Ok(())
}

/// Stores to many pages and gives three of four back; false if it was refused.
fn scatter(turn: u64) -> Result<bool, String> {
    if tried("mmap", SCATTERED.map(SCATTERED_PAGES, RW))? == Done::Refused {
        return Ok(false);
    }
    (0..SCATTERED_PAGES).for_each(|page| SCATTERED.page(page).store(word_of(turn, page)));
    for page in (0..SCATTERED_PAGES).step_by(STEP) {
        let given_back = SCATTERED.page(page + 1).advise(STEP - 1, libc::MADV_DONTNEED);
        tried("MADV_DONTNEED", given_back)?;
    }
    Ok(true)
}

fn word_of(turn: u64, page: usize) -> u64 {
    turn << 16 | page as u64
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
