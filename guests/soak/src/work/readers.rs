//! Readers of the maps of everybody: lines in order, whole, without an address twice; questions that are answered with what was asked for.

use std::fs::File;
use std::io::Read;

use foldspace_guest_measure::maps::{Maps, in_order};

use super::Life;
use crate::board::{Board, CHILDREN};

const PIECES: [usize; 5] = [1, 7, 64, 1000, 1 << 16];

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    let mut life = Life::new(board, seed);
    while life.goes_on() {
        let Some(pid) = board.child(life.roll(CHILDREN)) else { continue };
        // It may be gone at any moment, or be replaced by another program: then there is less to see, but nothing wrong.
        let Ok(mut maps) = Maps::of(&pid.to_string()) else { continue };
        for _ in 0..8 {
            let piece = PIECES[life.roll(PIECES.len())];
            let Ok(text) = maps.read(piece) else { break };
            in_order(text).map_err(|failure| format!("maps of {pid}, {piece} bytes at a time: {failure}"))?;
            questions(&mut life, &maps)?;
            board.count(1, 0);
        }
        others(&mut life, pid)?;
    }
    Ok(())
}

/// From a random address on, one area after the other.
fn questions(life: &mut Life<'_>, maps: &Maps) -> Result<(), String> {
    let mut address = (life.roll(1 << 47)) as u64;
    if life.roll(2) == 0 {
        address = 0;
    }
    for _ in 0..20 {
        let Ok(Some(area)) = maps.query(address) else { return Ok(()) };
        if area.end <= address || area.start >= area.end {
            return Err(format!("asked about {address:x}, the answer is {:x}-{:x}", area.start, area.end));
        }
        address = area.end;
    }
    Ok(())
}

/// The other files about memory, which only have to come to their ends.
fn others(life: &mut Life<'_>, pid: u64) -> Result<(), String> {
    let name = ["smaps", "smaps_rollup", "status", "statm", "stat"][life.roll(5)];
    let Ok(mut file) = File::open(format!("/proc/{pid}/{name}")) else { return Ok(()) };
    let mut text = [0; 4096];
    let mut len = 0;
    while let Ok(got @ 1..) = file.read(&mut text) {
        len += got;
        if len > 64 << 20 {
            return Err(format!("/proc/{pid}/{name} has no end"));
        }
    }
    Ok(())
}
