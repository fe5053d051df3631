//! Foldspace's restore points: a process keeps what it is and goes back to it.

use std::io;
use std::ops::Range;

/// The numbers of the calls. No other kernel knows them.
const SET: libc::c_long = 0x464f_4c45;
const RETURN: libc::c_long = 0x464f_4c46;
const DROP: libc::c_long = 0x464f_4c47;
const CHANGES: libc::c_long = 0x464f_4c48;

/// Keeps what this process is. Returns 0; and, whenever the process goes back, once more, with the value that [`go_back`] was given. All private
/// memory and all registers are then what they were at this call, so nothing that was done since has happened, but what the kernel or shared memory
/// knows of it.
///
/// # Errors
/// `ENOSYS` on other kernels, as [`io::ErrorKind::Unsupported`]; `EBUSY` if another thread runs in the process; `ENOMEM`.
#[inline(never)]
pub fn set() -> io::Result<u32> {
    // SAFETY: changes no memory that the process can see. When it returns for the second time, the memory and the registers are those of the first
    // return but for the result: nothing that the compiler relies on differs.
    result(unsafe { libc::syscall(SET) }).map(|value| value as u32)
}

/// Goes back to where [`set`] was called last, which returns `value` (not 0).
///
/// # Errors
/// `ENOENT` if it was not called. It does not return otherwise.
pub fn go_back(value: u32) -> io::Error {
    // SAFETY: either nothing happens, or this never returns.
    match result(unsafe { libc::syscall(RETURN, libc::c_long::from(value)) }) {
        Ok(_) => io::Error::other("the call came back"),
        Err(error) => error,
    }
}

/// Forgets what [`set`] kept.
///
/// # Errors
/// `ENOENT` if there is nothing.
pub fn forget() -> io::Result<()> {
    // SAFETY: changes no memory of the process.
    result(unsafe { libc::syscall(DROP) }).map(drop)
}

/// The rows of pages that were stored to since [`set`], as addresses, as many as there is room for in `rows` (start and end of each); how many
/// there are.
///
/// # Errors
/// As [`forget`].
pub fn changes(rows: &mut [[u64; 2]]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most as many rows as there are.
    result(unsafe { libc::syscall(CHANGES, rows.as_mut_ptr(), rows.len()) }).map(|count| count as usize)
}

/// [`changes`] as ranges.
///
/// # Errors
/// As [`changes`].
pub fn changed_ranges() -> io::Result<Vec<Range<u64>>> {
    let mut rows = vec![[0; 2]; 1024];
    let count = changes(&mut rows)?;
    rows.truncate(count);
    Ok(rows.into_iter().map(|[start, end]| start..end).collect())
}

fn result(value: libc::c_long) -> io::Result<libc::c_long> {
    if value != -1 {
        return Ok(value);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOSYS) => Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel has no restore points")),
        _ => Err(error),
    }
}
