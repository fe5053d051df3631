//! Numbers of `/proc/sys` that can be written, with Linux's rules for what is a number (`kernel/sysctl.c`).

use core::sync::atomic::{AtomicI32, Ordering};

use foldspace::VirtAddr;
use foldspace::frame::Overcommit;
use foldspace::space::ForkMode;

use super::node::SystemFile;
use crate::errno::Errno;
use crate::fs::userfault::UNPRIVILEGED;
use crate::process::credentials::CAP_SYS_RAWIO;
use crate::{mm, process, sched};

/// A number as it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Written {
    negative: bool,
    value: u64,
    /// Bytes that it took, white space around it included.
    length: usize,
}

impl Written {
    /// As an `unsigned long`; `None` for a negative number, which Linux passes over in silence (`do_proc_doulongvec_minmax`).
    fn unsigned(self) -> Option<u64> {
        (!self.negative).then_some(self.value)
    }

    /// As an `int`. `EINVAL` outside `least..=most`.
    fn int(self, least: i32, most: i32) -> Result<i32, Errno> {
        let value = i64::try_from(self.value).map_err(|_| Errno::EINVAL)?;
        let value = i32::try_from(if self.negative { -value } else { value }).map_err(|_| Errno::EINVAL)?;
        if (least..=most).contains(&value) { Ok(value) } else { Err(Errno::EINVAL) }
    }
}

/// Longest number, digits and sign (`TMPBUFLEN` without its end).
const LONGEST: usize = 21;

fn is_space(byte: u8) -> bool {
    // C's isspace: Rust's leaves out the vertical tab.
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// The number at the front of a text: white space, a sign, digits (hexadecimal after `0x`, octal after `0`), and then nothing or a space,
/// a tab or a newline (`proc_get_long`). What follows is left for another call.
fn number(text: &[u8]) -> Result<Written, Errno> {
    let spaces = |text: &[u8]| text.iter().take_while(|&&byte| is_space(byte)).count();
    let start = spaces(text);
    let rest = &text[start..];
    let negative = rest.len() > 1 && rest[0] == b'-';
    let digits = &rest[usize::from(negative)..rest.len().min(LONGEST)];
    let (prefix, radix) = match digits {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => (2, 16),
        [b'0', ..] => (0, 8),
        [digit, ..] if digit.is_ascii_digit() => (0, 10),
        _ => return Err(Errno::EINVAL),
    };
    let mut value = 0u64;
    let mut count = prefix;
    for digit in digits[prefix..].iter().map_while(|&byte| char::from(byte).to_digit(radix)) {
        value = value
            .checked_mul(u64::from(radix))
            .and_then(|value| value.checked_add(digit.into()))
            .ok_or(Errno::EINVAL)?;
        count += 1;
    }
    let end = usize::from(negative) + count;
    let follows = rest.get(end);
    if end == LONGEST || follows.is_some_and(|byte| !matches!(byte, b' ' | b'\t' | b'\n')) {
        return Err(Errno::EINVAL);
    }
    let length = start + end + spaces(&rest[end..]);
    Ok(Written { negative, value, length })
}

/// The `int` at the front of a text, and how many bytes it took. `EINVAL` outside `least..=most`.
pub(super) fn int(text: &[u8], least: i32, most: i32) -> Result<(i32, usize), Errno> {
    let written = number(text)?;
    Ok((written.int(least, most)?, written.length))
}

/// The process whose fork mode was set last by way of `cow_pte`.
static COW_PTE: AtomicI32 = AtomicI32::new(0);

/// `vm.cow_pte` of the COW PTE series: the process of that number shares last-level page tables at fork from now on. `ESRCH` if there is none.
fn set_cow_pte(pid: i32) -> Result<(), Errno> {
    let task = u32::try_from(pid).ok().and_then(process::find).ok_or(Errno::ESRCH)?;
    task.live_space().ok_or(Errno::ESRCH)?.set_fork_mode(ForkMode::Leaf);
    COW_PTE.store(pid, Ordering::Relaxed);
    Ok(())
}

/// Whether a file is a number that root may write.
pub fn is_writable(file: SystemFile) -> bool {
    use SystemFile::{
        CompactMemory, CowPte, MaxMapCount, MmapMinAddr, OvercommitKbytes, OvercommitMemory, OvercommitRatio,
        UnprivilegedUserfaultfd,
    };
    matches!(
        file,
        CompactMemory
            | CowPte
            | MaxMapCount
            | MmapMinAddr
            | OvercommitKbytes
            | OvercommitMemory
            | OvercommitRatio
            | UnprivilegedUserfaultfd
    )
}

/// The number that a file shows, if it is one of these.
pub fn show(file: SystemFile) -> Option<i128> {
    let memory = mm::memory();
    let unsigned = match file {
        SystemFile::CowPte => return Some(COW_PTE.load(Ordering::Relaxed).into()),
        SystemFile::MaxMapCount => memory.max_map_count(),
        SystemFile::MmapMinAddr => memory.lowest_address().get(),
        SystemFile::OvercommitKbytes => memory.overcommit_kbytes(),
        SystemFile::OvercommitMemory => memory.overcommit() as u64,
        SystemFile::OvercommitRatio => memory.overcommit_ratio(),
        SystemFile::UnprivilegedUserfaultfd => UNPRIVILEGED.load(Ordering::Relaxed).into(),
        _ => return None,
    };
    Some(unsigned.into())
}

/// Writes a number. Returns how many bytes of the text it took.
pub fn write(file: SystemFile, text: &[u8]) -> Result<usize, Errno> {
    if text.is_empty() {
        return Ok(0);
    }
    if file == SystemFile::MmapMinAddr && !sched::with_current(|task| task.credentials().may(CAP_SYS_RAWIO)) {
        return Err(Errno::EPERM);
    }
    let written = number(text)?;
    let memory = mm::memory();
    match file {
        // All of it, as Linux does it (`sysctl_compaction_handler`); no other number is taken.
        SystemFile::CompactMemory => {
            if written.int(i32::MIN, i32::MAX)? != 1 {
                return Err(Errno::EINVAL);
            }
            // What the heap has and does not use stands in the way, since it cannot be moved.
            mm::trim_heap();
            memory.compact(u32::MAX);
        }
        SystemFile::CowPte => set_cow_pte(written.int(i32::MIN, i32::MAX)?)?,
        SystemFile::MaxMapCount => memory.set_max_map_count(written.int(0, i32::MAX)? as u64),
        SystemFile::MmapMinAddr => {
            written.unsigned().into_iter().for_each(|address| memory.set_lowest_address(VirtAddr(address)))
        }
        SystemFile::OvercommitKbytes => {
            written.unsigned().into_iter().for_each(|kbytes| memory.set_overcommit_kbytes(kbytes))
        }
        SystemFile::OvercommitMemory => memory.set_overcommit(match written.int(0, 2)? {
            0 => Overcommit::Heuristic,
            1 => Overcommit::Always,
            _ => Overcommit::Never,
        }),
        SystemFile::UnprivilegedUserfaultfd => UNPRIVILEGED.store(written.int(0, 1)? as u32, Ordering::Relaxed),
        SystemFile::OvercommitRatio => memory.set_overcommit_ratio(written.int(0, i32::MAX)? as u64),
        _ => return Err(Errno::EIO),
    }
    Ok(written.length)
}
