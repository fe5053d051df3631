//! Texts about the whole system.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use raw_cpuid::CpuId;
use spin::Once;

use super::node::SystemFile;
use super::{frames, sysctl};
use crate::arch::{self, PerCpu};
use crate::errno::Errno;
use crate::fs::fdtable::MAX_FDS;
use crate::fs::{mount, pipe, random};
use crate::mm;
use crate::process::limits::MAX_FILES;
use crate::process::time_namespace::{Counter, shown};
use crate::process::tree::{self, PID_MAX};
use crate::process::usage::TICKS_PER_SECOND;
use crate::sched;
use crate::syscall::system::{hostname, release, version};
use crate::syscall::{ipc, shm};
use crate::time::{NANOS_PER_SECOND, monotonic_ns, realtime_ns};

/// `uname -s`.
const OS_TYPE: &str = "Linux";

/// Formats into bytes.
pub struct Text<'a>(pub &'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl Text<'_> {
    /// Appends formatted text.
    pub fn put(&mut self, text: fmt::Arguments<'_>) {
        let _ = fmt::Write::write_fmt(self, text);
    }

    /// Makes room for so many bytes. `ENOMEM`.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Errno> {
        self.0.try_reserve(bytes).map_err(|_| Errno::ENOMEM)
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends bytes and a newline.
    pub fn line(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
        self.bytes(b"\n");
    }

    /// Appends bytes with newline and backslash escaped (names of tasks in `status`).
    pub fn escaped(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'\n' => self.bytes(b"\\n"),
                b'\\' => self.bytes(b"\\\\"),
                byte => self.0.push(byte),
            }
        }
    }
}

/// Appends a text.
///
/// # Errors
/// `ENOMEM`.
pub fn text(file: SystemFile, out: &mut Vec<u8>) -> Result<(), Errno> {
    let mut text = Text(out);
    if let Some(number) = sysctl::show(file) {
        text.put(format_args!("{number}\n"));
        return Ok(());
    }
    match file {
        SystemFile::Cmdline => {
            text.bytes(crate::boot::info::info().command_line().as_bytes());
            text.bytes(b"\n");
        }
        SystemFile::Cpuinfo => cpuinfo(&mut text),
        SystemFile::Devices => {
            text.bytes(b"Character devices:\n  1 mem\n  4 ttyS\n  5 /dev/tty\n  5 /dev/console\n\nBlock devices:\n");
        }
        SystemFile::Filesystems => {
            for name in mount::KNOWN {
                text.put(format_args!("nodev\t{name}\n"));
            }
        }
        SystemFile::Interrupts => interrupts(&mut text),
        SystemFile::Loadavg => {
            let running = crate::process::all().iter().filter(|task| task.thread.state_letter() == 'R').count();
            // The reader's, wherever he reads it.
            let last = sched::with_current(|task| task.process.pid_namespace.last_number());
            text.put(format_args!("0.00 0.00 0.00 {}/{} {}\n", running, tree::count(), last));
        }
        SystemFile::Frames => frames::listing(&mut text)?,
        SystemFile::Meminfo => meminfo(&mut text),
        SystemFile::Stat => stat(&mut text),
        SystemFile::SysvipcMsg => ipc::messages::table(&mut text),
        SystemFile::SysvipcSem => ipc::semaphores::table(&mut text),
        SystemFile::SysvipcShm => shm::table(&mut text),
        SystemFile::Swaps => text.bytes(b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
        SystemFile::Uptime => {
            let idle = PerCpu::all().map(idle_ticks).sum::<u64>();
            let centiseconds = shown(Counter::Boottime, monotonic_ns()) / (NANOS_PER_SECOND / 100);
            text.put(format_args!(
                "{}.{:02} {}.{:02}\n",
                centiseconds / 100,
                centiseconds % 100,
                idle / 100,
                idle % 100
            ));
        }
        SystemFile::Version => {
            text.put(format_args!("{OS_TYPE} version "));
            text.bytes(release());
            text.bytes(b" (foldspace) ");
            text.line(version());
        }
        // To be written only, or shown already.
        SystemFile::Snapshot
        | SystemFile::SysrqTrigger
        | SystemFile::CompactMemory
        | SystemFile::Kpagecount
        | SystemFile::Kpageflags
        | SystemFile::CowPte
        | SystemFile::MaxMapCount
        | SystemFile::MmapMinAddr
        | SystemFile::OvercommitKbytes
        | SystemFile::OvercommitMemory
        | SystemFile::OvercommitRatio
        | SystemFile::UnprivilegedUserfaultfd => {}
        SystemFile::Vmstat => {
            let stats = mm::memory().stats();
            text.put(format_args!("nr_free_pages {}\nnr_page_table_pages {}\n", stats.free, stats.tables));
            text.put(format_args!("pgmigrate_success {}\n", mm::memory().moved_frames()));
            let shootdowns = mm::shootdowns();
            let served: u64 = PerCpu::all().map(|cpu| cpu.memory.served()).sum();
            // The first three as Linux names them; the others tell how much interrupting that took.
            text.put(format_args!(
                "nr_tlb_remote_flush {}\nnr_tlb_remote_flush_received {served}\nnr_tlb_local_flush {}\n",
                shootdowns.remote, shootdowns.local
            ));
            text.put(format_args!(
                "tlb_remote_interrupts {}\ntlb_remote_spared {}\n",
                shootdowns.interrupts, shootdowns.spared
            ));
        }
        SystemFile::OsType => text.put(format_args!("{OS_TYPE}\n")),
        SystemFile::OsRelease => text.line(release()),
        SystemFile::KernelVersion => text.line(version()),
        SystemFile::HostName => text.line(&hostname()),
        SystemFile::PidMax => text.put(format_args!("{PID_MAX}\n")),
        SystemFile::ThreadsMax => text.put(format_args!("{PID_MAX}\n")),
        SystemFile::RandomizeVaSpace => text.bytes(b"0\n"),
        SystemFile::BootId => {
            static BOOT_ID: Once<String> = Once::new();
            text.bytes(BOOT_ID.call_once(uuid).as_bytes());
        }
        SystemFile::Uuid => text.bytes(uuid().as_bytes()),
        SystemFile::PipeMaxSize => text.put(format_args!("{}\n", pipe::MAX_CAPACITY)),
        SystemFile::NrOpen => text.put(format_args!("{MAX_FILES}\n")),
        SystemFile::FileMax => text.put(format_args!("{}\n", MAX_FDS as u64 * u64::from(PID_MAX))),
    }
    Ok(())
}

/// A random UUID (version 4) and a newline.
fn uuid() -> String {
    let mut bytes = [0; 16];
    random::fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex =
        |range: core::ops::Range<usize>| -> String { bytes[range].iter().map(|byte| format!("{byte:02x}")).collect() };
    format!("{}-{}-{}-{}-{}\n", hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16))
}

/// How long a processor has run programs, in clock ticks (centiseconds). Time in the kernel is not told apart.
fn busy_ticks(cpu: &PerCpu) -> u64 {
    cpu.sched.busy_ns() / (NANOS_PER_SECOND / TICKS_PER_SECOND)
}

/// How long it has not.
fn idle_ticks(cpu: &PerCpu) -> u64 {
    cpu.sched.idle_ns() / (NANOS_PER_SECOND / TICKS_PER_SECOND)
}

/// Sizes as they are: content is counted frame by frame, promises are what the manager has charged.
fn meminfo(text: &mut Text<'_>) {
    let memory = mm::memory();
    // What was given up is free as soon as nobody can be looking at it: seen to be so here, if that is now.
    memory.reclaim();
    let (stats, contents) = (memory.stats(), memory.contents());
    // Files live in memory and cannot be reclaimed: Linux counts those of a tmpfs under both names, and with anonymous memory.
    let cached = contents.objects;
    let active = contents.anonymous + cached;
    let stacks = mm::stack::stack_frames();
    let used = stats.reserved.saturating_sub(stacks);
    let idle = mm::idle_heap_frames().min(used);
    let locked: u64 = memory.spaces().map(|space| space.vmas().view().summary().totals.pages.locked).sum();
    let rows = [
        ("MemTotal", stats.total),
        ("MemFree", stats.free),
        ("MemAvailable", stats.free + stats.deferred),
        ("Buffers", 0),
        ("Cached", cached),
        ("SwapCached", 0),
        ("Active", active),
        ("Inactive", 0),
        ("Active(anon)", active),
        ("Inactive(anon)", 0),
        ("Active(file)", 0),
        ("Inactive(file)", 0),
        ("Unevictable", locked),
        ("Mlocked", locked),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", contents.anonymous),
        ("Mapped", contents.objects_mapped),
        ("Shmem", cached),
        ("KReclaimable", idle),
        ("Slab", used),
        ("SReclaimable", idle),
        ("SUnreclaim", used - idle),
        ("KernelStack", stacks),
        ("PageTables", stats.tables),
        ("CommitLimit", memory.commit_limit()),
        ("Committed_AS", memory.committed_pages()),
        ("VmallocTotal", (512 << 30) / 4096),
        ("VmallocUsed", stacks),
        ("VmallocChunk", 0),
    ];
    for (name, pages) in rows {
        // `%-15s %8lu kB`, the colon being part of the name.
        text.put(format_args!("{:<15} {:>8} kB\n", format!("{name}:"), pages * 4));
    }
}

fn stat(text: &mut Text<'_>) {
    let row = |text: &mut Text<'_>, name: fmt::Arguments<'_>, user: u64, idle: u64| {
        text.put(format_args!("{name} {user} 0 0 {idle} 0 0 0 0 0 0\n"));
    };
    let (user, idle) = PerCpu::all().fold((0, 0), |(user, idle), cpu| (user + busy_ticks(cpu), idle + idle_ticks(cpu)));
    row(text, format_args!("cpu "), user, idle);
    for cpu in PerCpu::all() {
        row(text, format_args!("cpu{}", cpu.number), busy_ticks(cpu), idle_ticks(cpu));
    }
    let running = crate::process::all().iter().filter(|task| task.thread.state_letter() == 'R').count();
    let boot = realtime_ns().saturating_sub(shown(Counter::Boottime, monotonic_ns())) / NANOS_PER_SECOND;
    text.put(format_args!("btime {boot}\nprocesses {}\nprocs_running {running}\nprocs_blocked 0\n", tree::last_pid()));
}

/// Interrupts by processor, with Linux's names (`arch/x86/kernel/irq.c`).
fn interrupts(text: &mut Text<'_>) {
    text.bytes(b"     ");
    for cpu in PerCpu::all() {
        text.put(format_args!("CPU{:<8}", cpu.number));
    }
    text.bytes(b"\n");
    type Row = (&'static str, &'static str, fn(&PerCpu) -> u64);
    let rows: [Row; 3] = [
        ("LOC", "Local timer interrupts", |cpu| cpu.sched.ticks()),
        ("RES", "Rescheduling interrupts", |cpu| cpu.sched.kicks()),
        ("TLB", "TLB shootdowns", |cpu| cpu.memory.served()),
    ];
    for (name, description, count) in rows {
        text.put(format_args!("{name:>3}: "));
        for cpu in PerCpu::all() {
            text.put(format_args!("{:>10} ", count(cpu)));
        }
        text.put(format_args!("  {description}\n"));
    }
}

/// One paragraph for each processor. They are alike.
fn cpuinfo(text: &mut Text<'_>) {
    for cpu in PerCpu::all() {
        processor(text, cpu);
    }
}

fn processor(text: &mut Text<'_>, cpu: &PerCpu) {
    let cpuid = CpuId::new();
    let vendor = cpuid.get_vendor_info();
    let features = cpuid.get_feature_info();
    let brand = cpuid.get_processor_brand_string();
    text.put(format_args!(
        "processor\t: {}\nvendor_id\t: {}\n",
        cpu.number,
        vendor.as_ref().map_or("unknown", |vendor| vendor.as_str())
    ));
    if let Some(features) = &features {
        text.put(format_args!("cpu family\t: {}\nmodel\t\t: {}\n", features.family_id(), features.model_id()));
    }
    text.put(format_args!("model name\t: {}\n", brand.as_ref().map_or("unknown", |brand| brand.as_str().trim())));
    if let Some(features) = &features {
        text.put(format_args!("stepping\t: {}\n", features.stepping_id()));
    }
    let (number, count, apic_id) = (cpu.number, arch::online(), cpu.apic_id());
    text.put(format_args!("physical id\t: 0\nsiblings\t: {count}\ncore id\t\t: {number}\ncpu cores\t: {count}\n"));
    text.put(format_args!("apicid\t\t: {apic_id}\ninitial apicid\t: {apic_id}\n"));
    text.bytes(b"fpu\t\t: yes\nfpu_exception\t: yes\nwp\t\t: yes\n");
    text.bytes(b"flags\t\t: fpu tsc msr pae cx8 apic cmov fxsr sse sse2 syscall nx lm");
    if let Some(features) = &features {
        for (has, name) in [
            (features.has_sse3(), "pni"),
            (features.has_ssse3(), "ssse3"),
            (features.has_sse41(), "sse4_1"),
            (features.has_sse42(), "sse4_2"),
            (features.has_popcnt(), "popcnt"),
            (features.has_aesni(), "aes"),
            (features.has_xsave(), "xsave"),
            (features.has_avx(), "avx"),
            (features.has_rdrand(), "rdrand"),
            (features.has_hypervisor(), "hypervisor"),
        ] {
            if has {
                text.put(format_args!(" {name}"));
            }
        }
    }
    text.bytes(b"\nclflush size\t: 64\ncache_alignment\t: 64\naddress sizes\t: 40 bits physical, 48 bits virtual\npower management:\n\n");
}
