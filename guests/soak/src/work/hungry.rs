//! Takes nearly all memory, or all, keeps it for a moment, and gives it back.

use std::time::Duration;

use foldspace_guest_measure::figures;

use super::{Life, out_of_memory};
use crate::board::Board;
use crate::sys::{PAGE, Place, RW};

const BASE: Place = Place(0x2400_0000_0000);
/// Pages that are taken at a time.
const PART: usize = 256;
/// Machines with more than this free are not for filling.
const MOST: usize = (4 << 30) / PAGE;
/// MADV_POPULATE_WRITE: like storing to each page, but refused where a store would be the end.
const POPULATE_WRITE: i32 = 23;

/// How much is taken.
#[derive(Clone, Copy)]
enum Appetite {
    /// So many pages are left to the others.
    Leaves(usize),
    /// Everything, by a call that may say no.
    UntilRefused,
    /// Everything, by stores: one of them is the end, of this child most likely, since it has most.
    ToTheEnd,
}

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    let mut life = Life::new(board, seed);
    // Most of the time there is enough for everybody.
    while life.goes_on() && life.roll(4) != 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
    let appetite = match life.roll(4) {
        0 => Appetite::ToTheEnd,
        1 => Appetite::UntilRefused,
        // Up to 16 MiB.
        _ => Appetite::Leaves(life.roll(17) * 256),
    };
    board.memory_goes();
    let mut taken = 0;
    // However long it takes: it is for the others that memory is to be scarce.
    while !board.is_over() {
        let free = figures::free_kib().map_err(|error| error.to_string())? as usize / 4;
        if taken + free > MOST || matches!(appetite, Appetite::Leaves(left) if free < left + PART) {
            break;
        }
        let at = BASE.page(taken);
        let populated = at.map(PART, RW).and_then(|()| match appetite {
            Appetite::ToTheEnd => Ok(()),
            _ => at.advise(PART, POPULATE_WRITE),
        });
        match populated {
            Ok(()) => (0..PART).for_each(|page| at.page(page).store(page as u64)),
            Err(error) if out_of_memory(&error) || error.raw_os_error() == Some(libc::EFAULT) => {
                board.count(0, 1);
                break;
            }
            Err(error) => return Err(format!("taking memory: {error}")),
        }
        taken += PART;
    }
    std::thread::sleep(Duration::from_millis(50 + life.roll(300) as u64));
    for page in 0..taken {
        let seen = BASE.page(page).load();
        if seen != (page % PART) as u64 {
            return Err(format!("page {page} of {taken} has {seen:#x}"));
        }
    }
    board.count(taken as u64, 0);
    if taken > 0 {
        BASE.unmap(taken + PART).map_err(|error| format!("giving memory back: {error}"))?;
    }
    Ok(())
}
