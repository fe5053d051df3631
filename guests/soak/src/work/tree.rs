//! Processes that fork in trees; each writes to some of what it has inherited, and finds all else as it was.

use foldspace_guest_measure::process::{self, Fork};

use super::{Done, Life, tried};
use crate::board::Board;
use crate::sys::{End, PAGE, Place, RW, wait_for};

/// Pages that are inherited, over several tables.
const PAGES: usize = 3000;
const BASE: Place = Place(0x2100_0000_0000 - 700 * PAGE);
const DEPTH: usize = 3;

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    let mut life = Life::new(board, seed);
    if tried("mmap", BASE.map(PAGES, RW))? == Done::Refused {
        return Ok(());
    }
    let mut words = vec![0; PAGES];
    fill(&mut life, &mut words, 1);
    while life.goes_on() {
        generation(&mut life, &mut words, DEPTH)?;
        board.count(1, 0);
    }
    Ok(())
}

/// Writes to every `step`-th page or so.
fn fill(life: &mut Life<'_>, words: &mut [u64], step: usize) {
    let mut page = life.roll(step);
    while page < PAGES {
        words[page] = life.random.next_number();
        BASE.page(page).store(words[page]);
        page += 1 + life.roll(2 * step);
    }
}

fn verify(words: &[u64]) -> Result<(), String> {
    match (0..PAGES).find(|page| BASE.page(*page).load() != words[*page]) {
        Some(page) => Err(format!("page {page} has {:#x}, not {:#x}", BASE.page(page).load(), words[page])),
        None => Ok(()),
    }
}

/// Two children that have children, while this process writes.
fn generation(life: &mut Life<'_>, words: &mut [u64], depth: usize) -> Result<(), String> {
    let mut children = Vec::with_capacity(2);
    for number in 0..2 {
        match process::fork() {
            Ok(Fork::Child) => {
                (0..=number).for_each(|_| _ = life.random.next_number());
                fill(life, words, 40);
                let deeper = if depth > 1 { generation(life, words, depth - 1) } else { Ok(()) };
                let outcome = deeper.and_then(|()| verify(words));
                if let Err(failure) = &outcome {
                    println!("tree, {depth} above the leaves: {failure}");
                }
                process::exit(i32::from(outcome.is_err()));
            }
            Ok(Fork::Parent(child)) => children.push(child),
            Err(error) => drop(tried("fork", Err(error))?),
        }
        fill(life, words, 60);
    }
    for child in children {
        match wait_for(child.pid()).1 {
            End::Exited(0) => {}
            End::Killed(libc::SIGKILL) if life.board.is_scarce() => {}
            other => return Err(format!("a process {depth} above the leaves ended with {other:?}")),
        }
    }
    verify(words)
}
