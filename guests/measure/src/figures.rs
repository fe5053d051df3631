//! What the kernel says about memory: `/proc` and `sysinfo`.

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

/// Page tables of the whole machine in KiB, as `/proc/meminfo` counts them; `None` if it does not.
pub fn page_tables_kib() -> Option<u64> {
    kib_line(&fs::read_to_string("/proc/meminfo").ok()?, "PageTables")
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
