//! `/proc/PID/statm` (proc_pid_statm(5), `task_statm` in Linux's `fs/proc/task_mmu.c`).

use alloc::vec::Vec;

use super::text::decimal;
use crate::addr::PAGE_SIZE;
use crate::space::AddressSpace;

impl AddressSpace {
    /// Appends the line: seven numbers, in pages. Costs what [`AddressSpace::usage`] does.
    pub fn statm(&self, out: &mut Vec<u8>) {
        let (usage, (start, end)) = (self.usage(), self.layout().code);
        let shared = usage.resident_file + usage.resident_shared;
        let code = end.get().div_ceil(PAGE_SIZE).saturating_sub(start.get() / PAGE_SIZE);
        // Linux has given up telling libraries (fifth) and dirty pages (seventh).
        let fields = [usage.mapped, usage.resident_anon + shared, shared, code, 0, usage.data + usage.stack, 0];
        for (number, field) in fields.into_iter().enumerate() {
            if number > 0 {
                out.push(b' ');
            }
            decimal(out, field, 0);
        }
        out.push(b'\n');
    }
}
