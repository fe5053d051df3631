//! `/proc/PID/status`, line by line as in Linux's `proc_pid_status`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;

use super::process::{state_letter, threads};
use super::system::Text;
use crate::fs::FdTable;
use crate::process::Task;
use crate::process::pid_namespace::PidNamespace;
use crate::process::signal::Signal;
use crate::{arch, sched};

/// Signals that are ignored and those that are caught, as bit masks.
pub fn handled(task: &Task) -> (u64, u64) {
    let handlers = task.process.handlers.lock();
    let (mut ignored, mut caught) = (0, 0);
    for signal in (1..=64).filter_map(Signal::new) {
        let action = handlers.get(signal);
        let bit = 1 << signal.index();
        if action.is_ignore() {
            ignored |= bit;
        } else if !action.is_default() {
            caught |= bit;
        }
    }
    (ignored, caught)
}

fn state_name(letter: char) -> &'static str {
    match letter {
        'R' => "running",
        'S' => "sleeping",
        'D' => "disk sleep",
        'T' => "stopped",
        't' => "tracing stop",
        'Z' => "zombie",
        _ => "dead",
    }
}

/// Appends the text.
pub fn status(task: &Arc<Task>, namespace: &Arc<PidNamespace>, out: &mut Vec<u8>) {
    let process = &task.process;
    let credentials = task.credentials();
    let letter = state_letter(task);
    let reader = sched::with_current(|task| task.credentials());
    let (user, group) = (|uid| reader.shown_user(uid), |gid| reader.shown_group(gid));
    let mut text = Text(out);
    text.put(format_args!("Name:\t"));
    text.escaped(&task.comm());
    let umask = task.fs.lock().umask;
    text.put(format_args!("\nUmask:\t{umask:04o}\nState:\t{letter} ({})\n", state_name(letter)));
    text.put(format_args!(
        "Tgid:\t{}\nNgid:\t0\nPid:\t{}\nPPid:\t{}\nTracerPid:\t{}\n",
        namespace.number_of(task.tgid),
        namespace.number_of(task.pid),
        namespace.number_of(task.ppid()),
        namespace.number_of(task.tracer_pid())
    ));
    text.put(format_args!(
        "Uid:\t{}\t{}\t{}\t{}\n",
        user(credentials.uid),
        user(credentials.euid),
        user(credentials.suid),
        user(credentials.fsuid)
    ));
    text.put(format_args!(
        "Gid:\t{}\t{}\t{}\t{}\n",
        group(credentials.gid),
        group(credentials.egid),
        group(credentials.sgid),
        group(credentials.fsgid)
    ));
    let size = task.files.peek(FdTable::size);
    text.put(format_args!("FDSize:\t{size}\nGroups:\t"));
    for id in credentials.groups.iter() {
        text.put(format_args!("{} ", group(*id)));
    }
    text.put(format_args!(" \n"));
    let inner = namespace.down_to(&process.pid_namespace);
    let ids = [("NStgid", task.tgid), ("NSpid", task.pid), ("NSpgid", process.pgid()), ("NSsid", process.sid())];
    for (name, pid) in ids {
        text.put(format_args!("{name}:\t{}", namespace.number_of(pid)));
        for inner in &inner {
            text.put(format_args!("\t{}", inner.number_of(pid)));
        }
        text.put(format_args!("\n"));
    }
    text.put(format_args!("Kthread:\t0\n"));
    // A task that has ended has no memory, and Linux leaves these lines out.
    if letter != 'Z' {
        task.space().status_lines(out);
        out.extend_from_slice(b"HugetlbPages:\t       0 kB\nCoreDumping:\t0\nTHP_enabled:\t0\n");
    }
    let mut text = Text(out);
    text.put(format_args!("Threads:\t{}\n", threads(task)));
    let (own, blocked) = {
        let signals = task.signals.lock();
        (signals.pending.set().bits(), signals.blocked.bits())
    };
    let shared = process.pending.lock().set().bits();
    let limit = process.limits.lock().soft(linux_raw_sys::general::RLIMIT_SIGPENDING);
    let (ignored, caught) = handled(task);
    text.put(format_args!("SigQ:\t{}/{limit}\n", own.count_ones() + shared.count_ones()));
    text.put(format_args!("SigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n"));
    text.put(format_args!("SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"));
    let capabilities = credentials.capabilities;
    text.put(format_args!(
        "CapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\nCapBnd:\t{:016x}\nCapAmb:\t{:016x}\n",
        capabilities.inheritable,
        capabilities.permitted,
        capabilities.effective,
        capabilities.bounding,
        capabilities.ambient
    ));
    let usage = process.usage();
    let calls = task.seccomp.lock().clone();
    text.put(format_args!(
        "NoNewPrivs:\t{}\nSeccomp:\t{}\nSeccomp_filters:\t{}\n",
        u8::from(process.no_new_privileges.load(Ordering::Relaxed)),
        calls.number(),
        calls.filters()
    ));
    let allowed = sched::affinity(task);
    text.put(format_args!("Cpus_allowed:\t{}\nCpus_allowed_list:\t{}\n", Mask(allowed), ProcessorList(allowed)));
    text.put(format_args!("Mems_allowed:\t1\nMems_allowed_list:\t0\n"));
    text.put(format_args!(
        "voluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}\n",
        usage.voluntary_switches, usage.involuntary_switches
    ));
}

/// A set of processors in hexadecimal, as wide as there are processors (`%*pb` of Linux's `lib/vsprintf.c`).
struct Mask(u64);

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high, count) = (self.0 as u32, self.0 >> 32, arch::online());
        match count.checked_sub(32) {
            None | Some(0) => write!(f, "{low:0width$x}", width = count.div_ceil(4)),
            Some(above) => write!(f, "{high:0width$x},{low:08x}", width = above.div_ceil(4)),
        }
    }
}

/// A set of processors as a list of ranges (`%*pbl`).
pub struct ProcessorList(pub u64);

impl fmt::Display for ProcessorList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while rest != 0 {
            let first = rest.trailing_zeros();
            let length = (rest >> first).trailing_ones();
            let last = first + length - 1;
            match length {
                1 => write!(f, "{first}")?,
                _ => write!(f, "{first}-{last}")?,
            }
            rest = if last == 63 { 0 } else { rest >> (last + 1) << (last + 1) };
            if rest != 0 {
                f.write_str(",")?;
            }
        }
        Ok(())
    }
}
