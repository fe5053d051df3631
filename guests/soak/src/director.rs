//! Starts the children, replaces those that are done, and says how it went.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use foldspace_guest_measure::{figures, process};

use crate::board::{Board, CHILDREN};
use crate::sys::{self, End};
use crate::work::{KINDS, Kind, NO_MEMORY};

/// Who is at work at any time, by the index of its kind.
const PLACES: [usize; 12] = [0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 0, 8];
const _: () = assert!(PLACES.len() <= CHILDREN);

/// How long a child may take to come to its end when all are told to. Software emulation of several processors on a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(240);
const PROGRESS: Duration = Duration::from_secs(10);

/// What the kernel may have kept for later, in KiB.
const KEPT_KIB: u64 = 6 << 10;

#[derive(Default, Clone, Copy)]
struct Tally {
    done: u64,
    out_of_memory: u64,
}

/// A child at its place.
struct Place {
    kind: usize,
    pid: i32,
}

/// Keeps children at work for so long, of one kind only if one is named.
pub fn run(length: Duration, seed: u64, only: Option<&str>) -> Result<(), String> {
    let wanted = |kind: &usize| only.is_none_or(|name| name == KINDS[*kind].name);
    if !(0..KINDS.len()).any(|kind| wanted(&kind)) {
        return Err(format!(
            "no work is called {}; there are: {}",
            only.unwrap_or(""),
            KINDS.map(|kind| kind.name).join(", ")
        ));
    }
    let board = Board::new().map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let (mut started, mut tallies, mut shown) = (0, [Tally::default(); KINDS.len()], begin);
    // One of each kind first, one after the other: what they make the kernel keep is no leak.
    for kind in (0..KINDS.len()).filter(wanted) {
        let pid = start(&board, kind, seed, &mut started)?;
        note(&KINDS[kind], &mut tallies[kind], sys::wait_for(pid).1, &board)?;
    }
    let before = settled_free_kib()?;
    let mut places = Vec::new();
    for (place, &kind) in PLACES.iter().filter(|kind| wanted(kind)).enumerate() {
        let pid = start(&board, kind, seed, &mut started)?;
        board.set_child(place, pid);
        places.push(Place { kind, pid });
    }
    while begin.elapsed() < length {
        let Some((pid, end)) = sys::wait_for_any() else {
            std::thread::sleep(Duration::from_millis(20));
            if shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                progress(begin, &board, &tallies);
            }
            continue;
        };
        let Some(place) = places.iter().position(|place| place.pid == pid) else { continue };
        let kind = places[place].kind;
        note(&KINDS[kind], &mut tallies[kind], end, &board)?;
        places[place].pid = start(&board, kind, seed, &mut started)?;
        board.set_child(place, places[place].pid);
    }
    board.end();
    finish(&board, &mut places, &mut tallies)?;
    progress(begin, &board, &tallies);
    let after = settled_free_kib()?;
    println!("free memory at first {before} KiB, at the end {after} KiB");
    if after + KEPT_KIB < before {
        return Err(format!("{} KiB are missing", before - after));
    }
    Ok(())
}

/// Starts a child of a kind.
fn start(board: &Board, kind: usize, seed: u64, started: &mut u64) -> Result<i32, String> {
    *started += 1;
    let seed = (seed << 32 | *started).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    // There may be no memory for a while.
    for _ in 0..2000 {
        match sys::fork() {
            Ok(0) => {
                let outcome = (KINDS[kind].work)(board, seed);
                if let Err(failure) = &outcome {
                    println!("{} (seed {seed:#x}): {failure}", KINDS[kind].name);
                    let _ = std::io::stdout().flush();
                }
                process::exit(i32::from(outcome.is_err()));
            }
            Ok(pid) => return Ok(pid),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    Err(format!("{} cannot be started: fork fails for 20 seconds", KINDS[kind].name))
}

/// Counts how a child ended.
fn note(kind: &Kind, tally: &mut Tally, end: End, board: &Board) -> Result<(), String> {
    match end {
        End::Exited(0) => tally.done += 1,
        // Rust's allocator aborts where there is no memory.
        End::Killed(libc::SIGKILL | libc::SIGABRT) | End::Exited(NO_MEMORY) if board.is_scarce() => {
            tally.out_of_memory += 1;
        }
        other => return Err(format!("{} ended with {other:?}", kind.name)),
    }
    // Who took the memory says when it has given it back, unless it was killed.
    if kind.takes_memory {
        board.memory_is_back();
    }
    Ok(())
}

/// Waits for all.
fn finish(board: &Board, places: &mut Vec<Place>, tallies: &mut [Tally]) -> Result<(), String> {
    let begin = Instant::now();
    while !places.is_empty() {
        let Some((pid, end)) = sys::wait_for_any() else {
            if begin.elapsed() > PATIENCE {
                let late: Vec<&str> = places.iter().map(|place| KINDS[place.kind].name).collect();
                return Err(format!("after {} seconds there are still: {}", PATIENCE.as_secs(), late.join(", ")));
            }
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let Some(place) = places.iter().position(|place| place.pid == pid) else { continue };
        let kind = places.swap_remove(place).kind;
        note(&KINDS[kind], &mut tallies[kind], end, board)?;
    }
    Ok(())
}

fn progress(begin: Instant, board: &Board, tallies: &[Tally]) {
    let (operations, refused) = board.counted();
    let kinds: Vec<String> =
        KINDS.iter().zip(tallies).map(|(kind, tally)| format!("{} {}", kind.name, tally.done)).collect();
    let killed: u64 = tallies.iter().map(|tally| tally.out_of_memory).sum();
    println!(
        "{:5} s: {operations} operations, {refused} refused, {killed} killed for want of memory, {} frames moved; children done: {}",
        begin.elapsed().as_secs(),
        frames_moved(),
        kinds.join(", ")
    );
}

/// Frames whose content was moved elsewhere since the machine has been running.
fn frames_moved() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let moved = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
    moved.and_then(|moved| moved.parse().ok()).unwrap_or(0)
}

/// Free memory when what was freed has arrived: the highest of some looks, with processes that come and go in between. What the kernel's heap has
/// grown by for a while, and cannot give back for a few blocks that lie in it, is free to the kernel, and lost to nobody.
fn settled_free_kib() -> Result<u64, String> {
    let mut most = 0;
    for _ in 0..20 {
        // The heap gives back what it can.
        fs::write("/proc/sys/vm/compact_memory", "1").map_err(|error| format!("compact_memory: {error}"))?;
        let _ = process::in_child(|| Ok(()));
        std::thread::sleep(Duration::from_millis(20));
        let free = figures::free_kib().and_then(|free| Ok(free + figures::idle_heap_kib()?));
        most = most.max(free.map_err(|error| error.to_string())?);
    }
    Ok(most)
}
