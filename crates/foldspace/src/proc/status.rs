//! The memory lines of `/proc/PID/status` (proc_pid_status(5), `task_mem` in Linux's `fs/proc/task_mmu.c`).

use alloc::vec::Vec;

use super::text::kib;
use crate::addr::PAGE_SIZE;
use crate::space::AddressSpace;

const KIB_PER_PAGE: u64 = PAGE_SIZE / 1024;

impl AddressSpace {
    /// Appends the memory lines (VmPeak to VmSwap), each with its newline. Exact, but for the resident peak (VmHWM): it is the largest that was
    /// ever asked for, as resident sizes are only known when somebody asks.
    pub fn status_lines(&self, out: &mut Vec<u8>) {
        let (usage, layout) = (self.usage(), self.layout());
        let code = match (layout.code.1.page_ceil(), layout.code.0.page_floor()) {
            (Some(end), start) => end.get().saturating_sub(start.get()) / PAGE_SIZE,
            _ => 0,
        };
        let resident = usage.resident_anon + usage.resident_file + usage.resident_shared;
        let lines = [
            ("VmPeak", usage.mapped_peak),
            ("VmSize", usage.mapped),
            ("VmLck", usage.locked),
            ("VmPin", 0),
            ("VmHWM", usage.resident_peak),
            ("VmRSS", resident),
            ("RssAnon", usage.resident_anon),
            ("RssFile", usage.resident_file),
            ("RssShmem", usage.resident_shared),
            ("VmData", usage.data),
            ("VmStk", usage.stack),
            ("VmExe", code.min(usage.executable)),
            ("VmLib", usage.executable.saturating_sub(code)),
            // Linux does not count the root.
            ("VmPTE", usage.tables - 1),
            ("VmSwap", 0),
        ];
        for (name, pages) in lines {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b":\t");
            kib(out, pages * KIB_PER_PAGE);
        }
    }
}
