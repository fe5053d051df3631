//! Takes nearly all memory, keeps it for a moment, and gives it back.

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

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    let mut life = Life::new(board, seed);
    // Most of the time there is enough for everybody.
    while life.goes_on() && life.roll(4) != 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
    // Down to between nothing and 16 MiB.
    let left = life.roll(17) * 256;
    board.set_scarce(1);
    let mut taken = 0;
    while life.goes_on() {
        let free = figures::free_kib().map_err(|error| error.to_string())? as usize / 4;
        if free < left + PART || taken + free > MOST {
            break;
        }
        let at = BASE.page(taken);
        match at.map(PART, RW).and_then(|()| at.advise(PART, POPULATE_WRITE)) {
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
