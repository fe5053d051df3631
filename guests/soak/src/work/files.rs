//! A file that two processes map, shared and private, while it is cut, punched and written to. Each word says which page it is of.

use std::sync::atomic::{AtomicU64, Ordering};

use foldspace_guest_measure::process::{self, Fork};

use super::{Life, NO_MEMORY, tried};
use crate::board::Board;
use crate::sys::{self, End, PAGE, Place, RW, memory_file, wait_for};

const PAGES: usize = 600;
const SHARED: Place = Place(0x2200_0000_0000);
const PRIVATE: Place = Place(0x2200_4000_0000);

/// Faults beyond the end that were mended.
static MENDED: AtomicU64 = AtomicU64::new(0);

/// Puts a page of zeros where the file has none any more.
extern "C" fn mend(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    MENDED.fetch_add(1, Ordering::Relaxed);
    if sys::fault_page(info).map(1, RW).is_err() {
        // No memory: as if it had been killed for that.
        process::exit(NO_MEMORY);
    }
}

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    sys::handle(libc::SIGBUS, mend);
    let file = match memory_file(PAGES) {
        Ok(file) => file,
        Err(error) => return tried("memfd_create", Err(error)).map(drop),
    };
    let child = match process::fork() {
        Ok(Fork::Child) => {
            let outcome = party(&mut Life::new(board, seed ^ 0xffff), file);
            if let Err(failure) = &outcome {
                println!("files, the other process: {failure}");
            }
            process::exit(i32::from(outcome.is_err()));
        }
        Ok(Fork::Parent(child)) => child,
        Err(error) => return tried("fork", Err(error)).map(drop),
    };
    let outcome = party(&mut Life::new(board, seed), file);
    match wait_for(child.pid()).1 {
        End::Exited(0) => outcome,
        End::Exited(NO_MEMORY) | End::Killed(libc::SIGKILL) if board.is_scarce() => outcome,
        other => Err(format!("the other process ended with {other:?}")),
    }
}

fn party(life: &mut Life<'_>, file: i32) -> Result<(), String> {
    let mut done = 0;
    while life.goes_on() {
        let (page, pages) = (life.roll(PAGES), 1 + life.roll(40));
        let part = pages.min(PAGES - page);
        match life.roll(12) {
            // Not in the middle of a word: what is left of it would be of no page.
            0 => drop(tried("ftruncate", sys::truncate(file, life.roll(PAGES + 1) * PAGE + life.roll(PAGE / 8) * 8))?),
            1 => drop(tried("fallocate", sys::punch(file, page, part))?),
            2 => {
                tried("mmap", SHARED.page(page).map_file(part, RW, libc::MAP_SHARED, file, page * PAGE))?;
                tried("mmap", PRIVATE.page(page).map_file(part, RW, libc::MAP_PRIVATE, file, page * PAGE))?;
            }
            3 => drop(tried("pwrite", sys::write_word(file, page * PAGE + 8, word(page, life)))?),
            4 => {
                tried("mmap", SHARED.map_file(PAGES, RW, libc::MAP_SHARED, file, 0))?;
                tried("mmap", PRIVATE.map_file(PAGES, RW, libc::MAP_PRIVATE, file, 0))?;
            }
            _ if done == 0 => continue,
            number => {
                let base = if number % 2 == 0 { SHARED } else { PRIVATE };
                for page in page..page + part {
                    let at = Place(base.page(page).0 + 8);
                    let seen = at.load();
                    if seen != 0 && seen >> 32 != page as u64 + 1 {
                        return Err(format!("page {page} of the file shows {seen:#x}"));
                    }
                    if number > 8 {
                        at.store(word(page, life));
                    }
                }
            }
        }
        if done == 0 {
            // Both are mapped from now on.
            let mapped = SHARED.map_file(PAGES, RW, libc::MAP_SHARED, file, 0);
            let both = mapped.and_then(|()| PRIVATE.map_file(PAGES, RW, libc::MAP_PRIVATE, file, 0));
            if tried("mmap", both)? == super::Done::Refused {
                return Ok(());
            }
        }
        done += 1;
    }
    life.board.count(done + MENDED.load(Ordering::Relaxed), 0);
    Ok(())
}

/// A word that says which page it belongs in.
fn word(page: usize, life: &mut Life<'_>) -> u64 {
    (page as u64 + 1) << 32 | life.roll(1 << 30) as u64
}
