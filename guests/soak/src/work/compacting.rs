//! Memory is compacted again and again: nobody may notice.

use std::fs;

use super::{Done, Life, tried};
use crate::board::Board;

const PAGES: usize = 64;
const PAGE: usize = 4096;

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    let mut life = Life::new(board, seed);
    let mut own = vec![0_u8; (PAGES + 1) * PAGE];
    let skipped = own.as_ptr().align_offset(PAGE);
    let own = &mut own[skipped..skipped + PAGES * PAGE];
    let mut stamps = [0_u8; PAGES];
    while life.goes_on() {
        for _ in 0..16 {
            let page = life.roll(PAGES);
            stamps[page] = stamps[page].wrapping_add(1);
            own[page * PAGE..][..PAGE].fill(stamps[page]);
        }
        // Heap may be short where memory is.
        if tried("compacting", fs::write("/proc/sys/vm/compact_memory", "1"))? == Done::Refused {
            continue;
        }
        for (page, stamp) in stamps.iter().enumerate() {
            if own[page * PAGE..][..PAGE].iter().any(|byte| byte != stamp) {
                return Err(format!("page {page} of {PAGES} has changed under compaction"));
            }
        }
    }
    Ok(())
}
