//! Fills what a process does not use of its addresses, the window left out.

use std::{fs, io};

use super::system::call;
use crate::window::{BASE, END};

/// One past the last address of the user half.
const TOP: u64 = (1 << 47) - 4096;

/// Bytes left free below the stack: as many as Linux's search for gaps leaves there anyway.
const BELOW_STACK: u64 = 1 << 20;

/// Maps a file without content, shared and without access, wherever nothing is. Such areas merge with nothing in the window, are not counted as data and
/// cost fork nothing.
pub fn fill() -> io::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let lowest: u64 = fs::read_to_string("/proc/sys/vm/mmap_min_addr")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(65536);
    let fd = call!(libc::SYS_memfd_create, c"filler".as_ptr(), 0);
    let mut at = lowest.max(4096);
    for line in maps.lines() {
        let mut ends = line.split([' ', '-']).map_while(|word| u64::from_str_radix(word, 16).ok());
        let (Some(start), Some(end)) = (ends.next(), ends.next()) else { continue };
        if start >= TOP {
            break;
        }
        let free_to = if line.ends_with("[stack]") { start - BELOW_STACK } else { start };
        fill_gap(at, free_to, fd)?;
        at = end;
    }
    fill_gap(at, TOP, fd)?;
    call!(libc::SYS_close, fd);
    Ok(())
}

fn fill_gap(start: u64, end: u64, fd: i64) -> io::Result<()> {
    if start < END && end > BASE {
        if start > BASE || end < END {
            return Err(io::Error::other("something of this program is in the window"));
        }
        fill_gap(start, BASE, fd)?;
        return fill_gap(END, end, fd);
    }
    if start < end {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
        let done = call!(libc::SYS_mmap, start, end - start, libc::PROT_NONE, flags, fd, 0);
        if done < 0 {
            return Err(io::Error::from_raw_os_error(-done as i32));
        }
    }
    Ok(())
}
