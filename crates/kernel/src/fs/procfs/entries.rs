//! The names in the directories of `/proc`, and what each is.

use super::node::{Fixed, Node, ProcessFile, ProcessLink, SystemFile};
use crate::process::Pid;
use crate::process::namespaces::NamespaceKind;

/// Entries of `/proc` that have names.
pub(super) const ROOT: &[(&str, Node)] = &[
    ("cmdline", Node::System(SystemFile::Cmdline)),
    ("cpuinfo", Node::System(SystemFile::Cpuinfo)),
    ("devices", Node::System(SystemFile::Devices)),
    ("filesystems", Node::System(SystemFile::Filesystems)),
    ("frames", Node::System(SystemFile::Frames)),
    ("interrupts", Node::System(SystemFile::Interrupts)),
    ("kpagecount", Node::System(SystemFile::Kpagecount)),
    ("kpageflags", Node::System(SystemFile::Kpageflags)),
    ("loadavg", Node::System(SystemFile::Loadavg)),
    ("meminfo", Node::System(SystemFile::Meminfo)),
    ("mounts", Node::MountsLink),
    ("self", Node::SelfLink),
    ("snapshot", Node::System(SystemFile::Snapshot)),
    ("stat", Node::System(SystemFile::Stat)),
    ("swaps", Node::System(SystemFile::Swaps)),
    ("sys", Node::Directory(Fixed::Sys)),
    ("sysvipc", Node::Directory(Fixed::Sysvipc)),
    ("thread-self", Node::ThreadSelfLink),
    ("sysrq-trigger", Node::System(SystemFile::SysrqTrigger)),
    ("uptime", Node::System(SystemFile::Uptime)),
    ("version", Node::System(SystemFile::Version)),
    ("vmstat", Node::System(SystemFile::Vmstat)),
];

const SYS: &[(&str, Node)] = &[
    ("fs", Node::Directory(Fixed::SysFs)),
    ("kernel", Node::Directory(Fixed::SysKernel)),
    ("vm", Node::Directory(Fixed::SysVm)),
];

const SYS_FS: &[(&str, Node)] = &[
    ("file-max", Node::System(SystemFile::FileMax)),
    ("nr_open", Node::System(SystemFile::NrOpen)),
    ("pipe-max-size", Node::System(SystemFile::PipeMaxSize)),
];

const SYS_VM: &[(&str, Node)] = &[
    ("compact_memory", Node::System(SystemFile::CompactMemory)),
    ("cow_pte", Node::System(SystemFile::CowPte)),
    ("max_map_count", Node::System(SystemFile::MaxMapCount)),
    ("mmap_min_addr", Node::System(SystemFile::MmapMinAddr)),
    ("overcommit_kbytes", Node::System(SystemFile::OvercommitKbytes)),
    ("overcommit_memory", Node::System(SystemFile::OvercommitMemory)),
    ("overcommit_ratio", Node::System(SystemFile::OvercommitRatio)),
    ("unprivileged_userfaultfd", Node::System(SystemFile::UnprivilegedUserfaultfd)),
];

const SYS_KERNEL: &[(&str, Node)] = &[
    ("hostname", Node::System(SystemFile::HostName)),
    ("osrelease", Node::System(SystemFile::OsRelease)),
    ("ostype", Node::System(SystemFile::OsType)),
    ("pid_max", Node::System(SystemFile::PidMax)),
    ("random", Node::Directory(Fixed::SysKernelRandom)),
    ("randomize_va_space", Node::System(SystemFile::RandomizeVaSpace)),
    ("threads-max", Node::System(SystemFile::ThreadsMax)),
    ("version", Node::System(SystemFile::KernelVersion)),
];

const SYS_KERNEL_RANDOM: &[(&str, Node)] =
    &[("boot_id", Node::System(SystemFile::BootId)), ("uuid", Node::System(SystemFile::Uuid))];

const SYSVIPC: &[(&str, Node)] = &[
    ("msg", Node::System(SystemFile::SysvipcMsg)),
    ("sem", Node::System(SystemFile::SysvipcSem)),
    ("shm", Node::System(SystemFile::SysvipcShm)),
];

/// Entries of `/proc/PID/ns`.
pub(super) const NAMESPACES: &[(&str, NamespaceKind)] = &[
    ("uts", NamespaceKind::Uts),
    ("ipc", NamespaceKind::Ipc),
    ("mnt", NamespaceKind::Mnt),
    ("cgroup", NamespaceKind::Cgroup),
    ("net", NamespaceKind::Net),
    ("pid", NamespaceKind::Pid),
    ("user", NamespaceKind::User),
    ("time", NamespaceKind::Time),
    ("time_for_children", NamespaceKind::TimeForChildren),
    ("pid_for_children", NamespaceKind::PidForChildren),
];

/// What an entry of a thread's directory is.
#[derive(Clone, Copy)]
pub(super) enum Part {
    File(ProcessFile),
    Link(ProcessLink),
    Fds,
    FdInfos,
    Namespaces,
    MapFiles,
    Tasks,
}

/// Entries of `/proc/PID`; `/proc/PID/task/TID` has all but those of a process only.
const PROCESS: &[(&str, Part)] = &[
    ("task", Part::Tasks),
    ("map_files", Part::MapFiles),
    ("fd", Part::Fds),
    ("fdinfo", Part::FdInfos),
    ("ns", Part::Namespaces),
    ("environ", Part::File(ProcessFile::Environ)),
    ("status", Part::File(ProcessFile::Status)),
    ("limits", Part::File(ProcessFile::Limits)),
    ("comm", Part::File(ProcessFile::Comm)),
    ("cmdline", Part::File(ProcessFile::Cmdline)),
    ("stat", Part::File(ProcessFile::Stat)),
    ("statm", Part::File(ProcessFile::Statm)),
    ("auxv", Part::File(ProcessFile::Auxv)),
    ("maps", Part::File(ProcessFile::Maps)),
    ("mem", Part::File(ProcessFile::Mem)),
    ("smaps", Part::File(ProcessFile::Smaps)),
    ("smaps_rollup", Part::File(ProcessFile::SmapsRollup)),
    ("pagemap", Part::File(ProcessFile::Pagemap)),
    ("cwd", Part::Link(ProcessLink::Cwd)),
    ("root", Part::Link(ProcessLink::Root)),
    ("exe", Part::Link(ProcessLink::Exe)),
    ("mounts", Part::File(ProcessFile::Mounts)),
    ("mountinfo", Part::File(ProcessFile::Mountinfo)),
    ("wchan", Part::File(ProcessFile::Wchan)),
    ("personality", Part::File(ProcessFile::Personality)),
    ("cgroup", Part::File(ProcessFile::Cgroup)),
    ("oom_score", Part::File(ProcessFile::OomScore)),
    ("oom_score_adj", Part::File(ProcessFile::OomScoreAdj)),
    ("uid_map", Part::File(ProcessFile::UidMap)),
    ("gid_map", Part::File(ProcessFile::GidMap)),
    ("setgroups", Part::File(ProcessFile::Setgroups)),
    ("timens_offsets", Part::File(ProcessFile::TimensOffsets)),
    ("children", Part::File(ProcessFile::Children)),
];

/// How many of them, at the start, are of a process only; and at the end, of a thread only.
const OF_PROCESSES: usize = 2;
const OF_THREADS: usize = 1;

/// Those of a process's own directory.
pub(super) fn of_process() -> &'static [(&'static str, Part)] {
    &PROCESS[..PROCESS.len() - OF_THREADS]
}

/// Those of a thread's.
pub(super) fn of_thread() -> &'static [(&'static str, Part)] {
    &PROCESS[OF_PROCESSES..]
}

impl Part {
    /// That of thread `pid`.
    pub(super) fn of(self, pid: Pid) -> Node {
        match self {
            Part::File(file) => Node::ProcessFile { pid, file },
            Part::Link(link) => Node::ProcessLink { pid, link },
            Part::Fds => Node::Fds(pid),
            Part::FdInfos => Node::FdInfos(pid),
            Part::MapFiles => Node::MapFiles(pid),
            Part::Namespaces => Node::NamespaceLinks(pid),
            Part::Tasks => Node::Tasks(pid),
        }
    }
}

/// Those of a directory that never changes.
pub(super) fn fixed_entries(directory: Fixed) -> &'static [(&'static str, Node)] {
    match directory {
        Fixed::Sys => SYS,
        Fixed::SysVm => SYS_VM,
        Fixed::SysKernel => SYS_KERNEL,
        Fixed::SysKernelRandom => SYS_KERNEL_RANDOM,
        Fixed::SysFs => SYS_FS,
        Fixed::Sysvipc => SYSVIPC,
    }
}
