//! What the kernel says about memory: `/proc` and `sysinfo`.

use crate::mode::Mode;
use std::{fs, io};

/// The memory lines of a process's `/proc/PID/status`.
#[derive(Clone, Debug)]
pub struct Status(String);

impl Status {
    /// Of the process with that number, or of this one with "self".
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of(process: &str) -> io::Result<Status> {
        fs::read_to_string(format!("/proc/{process}/status")).map(Status)
    }

    /// The value of a line that is given in kB, such as `VmPTE`; `None` if there is no such line.
    pub fn kib(&self, name: &str) -> Option<u64> {
        kib_line(&self.0, name)
    }
}

/// What a fork added to the memory of the machine. Take one before the fork and ask it afterwards, while the child
/// waits.
#[derive(Clone, Copy, Debug)]
pub struct BeforeFork {
    tables_kib: Option<u64>,
    free_kib: Option<u64>,
}

impl BeforeFork {
    /// The figures of this moment.
    pub fn now() -> BeforeFork {
        let tables_kib = fs::read_to_string("/proc/meminfo").ok().and_then(|text| kib_line(&text, "PageTables"));
        BeforeFork { tables_kib, free_kib: free_kib().ok() }
    }

    /// Page tables that the machine now has and had not, in KiB.
    ///
    /// On a kernel without fork modes every table of a child is its own, so what the child reports as `VmPTE` is what
    /// fork added. Where tables are shared, only the machine's sum (`PageTables` in `/proc/meminfo`) can say it.
    pub fn tables_added_kib(&self, child: &Status) -> Option<i64> {
        if Mode::current().is_none() {
            return child.kib("VmPTE").map(|kib| kib as i64);
        }
        self.tables_of_machine_added_kib()
    }

    /// The difference of the machine's sums, in KiB.
    pub fn tables_of_machine_added_kib(&self) -> Option<i64> {
        Some(BeforeFork::now().tables_kib? as i64 - self.tables_kib? as i64)
    }

    /// Memory that is no longer free, whatever it was taken for, in KiB. Linux counts it coarsely.
    pub fn memory_taken_kib(&self) -> Option<i64> {
        Some(self.free_kib? as i64 - free_kib().ok()? as i64)
    }
}

/// Free memory of the whole machine, in KiB. Linux keeps some free frames per processor that it does not count here.
///
/// # Errors
/// What `sysinfo` says.
pub fn free_kib() -> io::Result<u64> {
    // SAFETY: a structure of integers, for which zero is a valid value.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a valid place for the result.
    if unsafe { libc::sysinfo(&mut info) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(info.freeram * u64::from(info.mem_unit) / 1024)
}

/// What the kernel's heap has and does not use (`SReclaimable`), KiB.
///
/// # Errors
/// What reading `/proc/meminfo` says.
pub fn idle_heap_kib() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    kib_line(&text, "SReclaimable").ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn kib_line(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let text = "VmPTEs:\t9 kB\nVmPTE:\t   1052 kB\nThreads:\t1\n";
        assert_eq!(kib_line(text, "VmPTE"), Some(1052));
        assert_eq!(kib_line(text, "Vm"), None);
        assert_eq!(kib_line(text, "Threads"), None);
    }
}
