//! The tree of `/proc`.

use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use foldspace::VirtAddr;
use foldspace::addr::PAGE_SHIFT;

use super::entries::{NAMESPACES, Part, ROOT, fixed_entries, of_process, of_thread};
use super::settings::{self, Setting};
use super::{map_files, sysctl};
use crate::errno::Errno;
use crate::fs::dentry::Dentry;
use crate::fs::file::File;
use crate::fs::inode::mode;
use crate::fs::namespace;
use crate::process::access::{AccessAs, may_access};
use crate::process::namespaces::{NamespaceKind, Namespaces};
use crate::process::pid_namespace::PidNamespace;
use crate::process::{self, Pid, Task};
use crate::sched;

/// Files about the whole system; from `MaxMapCount` on those of `/proc/sys`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemFile {
    Cmdline,
    Cpuinfo,
    Devices,
    Filesystems,
    Interrupts,
    Loadavg,
    Meminfo,
    Stat,
    Swaps,
    SysvipcMsg,
    SysvipcSem,
    SysvipcShm,
    Snapshot,
    SysrqTrigger,
    Uptime,
    Version,
    Vmstat,
    Frames,
    Kpagecount,
    Kpageflags,
    MaxMapCount,
    OvercommitKbytes,
    OvercommitMemory,
    OvercommitRatio,
    MmapMinAddr,
    CowPte,
    CompactMemory,
    OsType,
    OsRelease,
    KernelVersion,
    HostName,
    PidMax,
    ThreadsMax,
    RandomizeVaSpace,
    BootId,
    Uuid,
    UnprivilegedUserfaultfd,
    PipeMaxSize,
    NrOpen,
    FileMax,
}

impl SystemFile {
    /// Whether it is one of `/proc/sys`.
    pub fn is_setting(self) -> bool {
        self as u32 >= SystemFile::MaxMapCount as u32
    }
}

/// Files about one thread or process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessFile {
    Maps,
    Smaps,
    SmapsRollup,
    Pagemap,
    Mem,
    Auxv,
    Status,
    Stat,
    Statm,
    Cmdline,
    Comm,
    Environ,
    Limits,
    Mounts,
    Mountinfo,
    OomScore,
    OomScoreAdj,
    Wchan,
    Personality,
    Children,
    Cgroup,
    UidMap,
    GidMap,
    Setgroups,
    TimensOffsets,
}

/// Links of one thread or process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessLink {
    Exe,
    Cwd,
    Root,
}

/// Directories whose entries never change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fixed {
    Sys,
    SysVm,
    SysKernel,
    SysKernelRandom,
    SysFs,
    Sysvipc,
}

/// Something in `/proc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    /// `/proc`.
    Root,
    /// `/proc/self`.
    SelfLink,
    /// `/proc/thread-self`.
    ThreadSelfLink,
    /// `/proc/mounts`.
    MountsLink,
    /// A directory of constants.
    Directory(Fixed),
    /// A text.
    System(SystemFile),
    /// A file of `/proc/sys` that changes nothing.
    Setting(Setting),
    /// `/proc/PID`.
    Process(Pid),
    /// `/proc/PID/task`.
    Tasks(Pid),
    /// `/proc/PID/task/TID`.
    Thread(Pid),
    /// `/proc/PID/fd`.
    Fds(Pid),
    /// `/proc/PID/fd/N`.
    Fd {
        /// Of whom.
        pid: Pid,
        /// Which.
        fd: i32,
    },
    /// `/proc/PID/fdinfo`.
    FdInfos(Pid),
    /// `/proc/PID/fdinfo/N`.
    FdInfo {
        /// Of whom.
        pid: Pid,
        /// Which.
        fd: i32,
    },
    /// `/proc/PID/map_files`.
    MapFiles(Pid),
    /// `/proc/PID/map_files/START-END`.
    MapFile {
        /// Of whom.
        pid: Pid,
        /// Which: where it begins.
        start: VirtAddr,
    },
    /// `/proc/PID/ns`.
    NamespaceLinks(Pid),
    /// `/proc/PID/ns/NAME`.
    NamespaceLink {
        /// Of whom.
        pid: Pid,
        /// Which.
        kind: NamespaceKind,
    },
    /// A text about a thread.
    ProcessFile {
        /// About whom.
        pid: Pid,
        /// Which.
        file: ProcessFile,
    },
    /// A link of a thread.
    ProcessLink {
        /// Of whom.
        pid: Pid,
        /// Which.
        link: ProcessLink,
    },
}

/// Where a link of `/proc` leads.
pub enum Jump {
    /// On along a path.
    Path(Vec<u8>),
    /// Right to a file, whatever its path.
    Dentry {
        /// The file.
        dentry: Arc<Dentry>,
        /// What `readlink` says.
        shown: Vec<u8>,
    },
}

/// A number as a name: no sign, no leading zeros.
fn number(name: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(name).ok()?;
    let value: u32 = text.parse().ok()?;
    (value.to_string() == text).then_some(value)
}

/// The task of a number; `ESRCH` if it is gone.
pub fn task(pid: Pid) -> Result<Arc<Task>, Errno> {
    process::find(pid).ok_or(Errno::ESRCH)
}

/// The same for files that show its memory: `EACCES` if that is not for the caller to look at.
pub fn open_task(pid: Pid) -> Result<Arc<Task>, Errno> {
    let task = task(pid)?;
    let may = sched::with_current(|current| may_access(current, &task, AccessAs::FileSystem));
    if may { Ok(task) } else { Err(Errno::EACCES) }
}

fn open_file(pid: Pid, fd: i32) -> Result<Arc<File>, Errno> {
    process::find(pid).ok_or(Errno::ENOENT)?.files.peek(|files| files.get(fd)).map_err(|_| Errno::ENOENT)
}

impl Node {
    /// The process whose directory it is.
    pub fn process(&self) -> Option<Pid> {
        match *self {
            Node::Process(pid) => Some(pid),
            _ => None,
        }
    }

    /// The entry of that name, where the processes of `namespace` are shown.
    pub fn child(&self, name: &[u8], namespace: &PidNamespace) -> Option<Node> {
        let among = |entries: &[(&str, Node)]| {
            entries.iter().find(|(entry, _)| entry.as_bytes() == name).map(|&(_, node)| node)
        };
        let part = |pid, parts: &[(&str, Part)]| {
            parts.iter().find(|(entry, _)| entry.as_bytes() == name).map(|&(_, part)| part.of(pid))
        };
        match *self {
            Node::Root => among(ROOT).or_else(|| {
                let pid = namespace.pid_of(number(name)?)?;
                let task = process::find(pid)?;
                // A thread's number works, though it is not listed, and shows its process.
                Some(if task.is_leader() { Node::Process(pid) } else { Node::Thread(pid) })
            }),
            Node::Directory(directory) => among(fixed_entries(directory)).or_else(|| {
                settings::entries(directory).find(|(entry, _)| entry.as_bytes() == name).map(|(_, node)| node)
            }),
            Node::MapFiles(pid) => map_files::find(pid, name),
            Node::Process(pid) => process::find(pid).and_then(|_| part(pid, of_process())),
            Node::Thread(pid) => process::find(pid).and_then(|_| part(pid, of_thread())),
            Node::Tasks(pid) => {
                let thread = process::find(namespace.pid_of(number(name)?)?)?;
                (thread.tgid == pid).then_some(Node::Thread(thread.pid))
            }
            Node::NamespaceLinks(pid) => {
                let (_, kind) = NAMESPACES.iter().find(|(entry, _)| entry.as_bytes() == name)?;
                Some(Node::NamespaceLink { pid, kind: *kind })
            }
            Node::Fds(pid) => {
                let fd = number(name)? as i32;
                open_file(pid, fd).ok().map(|_| Node::Fd { pid, fd })
            }
            Node::FdInfos(pid) => {
                let fd = number(name)? as i32;
                open_file(pid, fd).ok().map(|_| Node::FdInfo { pid, fd })
            }
            _ => None,
        }
    }

    /// Calls `take` with position, name and node of each entry from position `from` on, until it returns false. Positions below 1000 are
    /// those of fixed names; above, of numbers.
    pub fn list(&self, from: u64, namespace: &PidNamespace, take: &mut dyn FnMut(u64, &[u8], Node) -> bool) {
        /// Where numbers begin.
        const NUMBERS: u64 = 1000;
        if let Node::MapFiles(pid) = *self {
            return map_files::list(pid, from, take);
        }
        let fixed: Vec<(&str, Node)> = match *self {
            Node::Root => ROOT.to_vec(),
            Node::Directory(directory) => {
                fixed_entries(directory).iter().copied().chain(settings::entries(directory)).collect()
            }
            Node::Process(pid) => of_process().iter().map(|&(name, part)| (name, part.of(pid))).collect(),
            Node::NamespaceLinks(pid) => {
                NAMESPACES.iter().map(|&(name, kind)| (name, Node::NamespaceLink { pid, kind })).collect()
            }
            Node::Thread(pid) => of_thread().iter().map(|&(name, part)| (name, part.of(pid))).collect(),
            _ => Vec::new(),
        };
        for (index, (name, node)) in fixed.into_iter().enumerate().skip(from as usize) {
            if !take(index as u64, name.as_bytes(), node) {
                return;
            }
        }
        let seen = |pids: &mut dyn Iterator<Item = Pid>| -> Vec<u32> {
            pids.map(|pid| namespace.number_of(pid)).filter(|&number| number != 0).collect()
        };
        let mut numbers: Vec<u32> = match *self {
            Node::Root => seen(&mut process::tree::processes().iter().map(|process| process.pid)),
            Node::Tasks(pid) => seen(&mut process::all().iter().filter(|task| task.tgid == pid).map(|task| task.pid)),
            Node::Fds(pid) | Node::FdInfos(pid) => match process::find(pid) {
                Some(task) => task.files.peek(|files| files.numbers().map(|fd| fd as u32).collect()),
                None => Vec::new(),
            },
            _ => Vec::new(),
        };
        numbers.sort_unstable();
        for number in numbers.into_iter().filter(|&number| NUMBERS + u64::from(number) >= from) {
            let node = match *self {
                Node::Root => Node::Process(namespace.pid_of(number).unwrap_or(0)),
                Node::Fds(pid) => Node::Fd { pid, fd: number as i32 },
                Node::FdInfos(pid) => Node::FdInfo { pid, fd: number as i32 },
                _ => Node::Thread(namespace.pid_of(number).unwrap_or(0)),
            };
            if !take(NUMBERS + u64::from(number), number.to_string().as_bytes(), node) {
                return;
            }
        }
    }

    /// Type bits of the mode.
    pub fn type_bits(&self) -> u32 {
        match self {
            Node::Root
            | Node::Directory(_)
            | Node::Process(_)
            | Node::Tasks(_)
            | Node::Thread(_)
            | Node::Fds(_)
            | Node::FdInfos(_)
            | Node::MapFiles(_)
            | Node::NamespaceLinks(_) => mode::S_IFDIR,
            Node::SelfLink
            | Node::ThreadSelfLink
            | Node::MountsLink
            | Node::Fd { .. }
            | Node::MapFile { .. }
            | Node::NamespaceLink { .. }
            | Node::ProcessLink { .. } => mode::S_IFLNK,
            Node::System(_) | Node::Setting(_) | Node::ProcessFile { .. } | Node::FdInfo { .. } => mode::S_IFREG,
        }
    }

    /// Permission bits, as Linux gives them.
    pub fn permissions(&self) -> u32 {
        match *self {
            Node::SelfLink
            | Node::ThreadSelfLink
            | Node::MountsLink
            | Node::NamespaceLink { .. }
            | Node::ProcessLink { .. } => 0o777,
            Node::NamespaceLinks(_) => 0o511,
            Node::Fds(_) | Node::MapFiles(_) => 0o500,
            Node::MapFile { pid, start } => map_files::permissions(pid, start),
            Node::Setting(setting) => setting.permissions(),
            Node::Fd { pid, fd } => match open_file(pid, fd) {
                Ok(file) => 0o100 | (u32::from(file.readable()) << 8) | (u32::from(file.writable()) << 7),
                Err(_) => 0o100,
            },
            Node::ProcessFile { file: ProcessFile::Environ | ProcessFile::Pagemap | ProcessFile::Auxv, .. } => 0o400,
            Node::ProcessFile { file: ProcessFile::Mem, .. } => 0o600,
            Node::ProcessFile {
                file:
                    ProcessFile::Comm
                    | ProcessFile::OomScoreAdj
                    | ProcessFile::UidMap
                    | ProcessFile::GidMap
                    | ProcessFile::Setgroups
                    | ProcessFile::TimensOffsets,
                ..
            } => 0o644,
            Node::System(SystemFile::Snapshot | SystemFile::SysrqTrigger | SystemFile::CompactMemory) => 0o200,
            Node::System(SystemFile::Frames | SystemFile::Kpagecount | SystemFile::Kpageflags) => 0o400,
            Node::System(file) if sysctl::is_writable(file) => 0o644,
            Node::System(_) | Node::ProcessFile { .. } | Node::FdInfo { .. } => 0o444,
            _ => 0o555,
        }
    }

    /// Whether not even root may open it for writing: what `/proc/sys` only shows.
    pub fn refuses_writers(&self) -> bool {
        match self {
            Node::System(file) => file.is_setting() && !sysctl::is_writable(*file),
            Node::Setting(setting) => setting.permissions() & 0o200 == 0,
            _ => false,
        }
    }

    /// `st_size`: of links to files it is constant, of a directory of them their number (`proc_fd_getattr`).
    pub fn size(&self) -> u64 {
        match *self {
            Node::Fd { .. } | Node::MapFile { .. } => 64,
            Node::Fds(pid) => {
                process::find(pid).map_or(0, |task| task.files.peek(|files| files.numbers().count() as u64))
            }
            _ => 0,
        }
    }

    fn pid(&self) -> Option<Pid> {
        match *self {
            Node::Process(pid)
            | Node::Tasks(pid)
            | Node::Thread(pid)
            | Node::Fds(pid)
            | Node::FdInfos(pid)
            | Node::NamespaceLinks(pid)
            | Node::NamespaceLink { pid, .. }
            | Node::MapFiles(pid)
            | Node::MapFile { pid, .. }
            | Node::Fd { pid, .. }
            | Node::FdInfo { pid, .. }
            | Node::ProcessFile { pid, .. }
            | Node::ProcessLink { pid, .. } => Some(pid),
            _ => None,
        }
    }

    /// Owner and group.
    pub fn owner(&self) -> (u32, u32) {
        match self.pid().and_then(process::find) {
            Some(task) => {
                let credentials = task.credentials();
                (credentials.euid, credentials.egid)
            }
            None => (0, 0),
        }
    }

    /// An inode number: of what has a process, process and entry; else the position of what it is among all such.
    pub fn number(&self) -> u64 {
        const SYSTEM: u64 = 0xf000_0000;
        let of = |pid: Pid, entry: u64| (u64::from(pid) << 20) | entry;
        match *self {
            Node::Root => 1,
            Node::SelfLink => SYSTEM + 1,
            Node::ThreadSelfLink => SYSTEM + 2,
            Node::MountsLink => SYSTEM + 3,
            Node::Directory(directory) => SYSTEM + 16 + directory as u64,
            Node::System(file) => SYSTEM + 64 + file as u64,
            Node::Setting(setting) => SYSTEM + 256 + setting.number(),
            Node::Process(pid) => of(pid, 1),
            Node::Tasks(pid) => of(pid, 2),
            Node::Thread(pid) => of(pid, 3),
            Node::Fds(pid) => of(pid, 4),
            Node::FdInfos(pid) => of(pid, 5),
            Node::NamespaceLinks(pid) => of(pid, 6),
            Node::MapFiles(pid) => of(pid, 7),
            // Above all others: addresses need more bits than there are entries.
            Node::MapFile { pid, start } => (1 << 63) | of(pid, 0) << 20 | start.get() >> PAGE_SHIFT,
            Node::NamespaceLink { pid, kind } => of(pid, 8 + kind as u64),
            Node::ProcessLink { pid, link } => of(pid, 24 + link as u64),
            Node::ProcessFile { pid, file } => of(pid, 32 + file as u64),
            Node::Fd { pid, fd } => of(pid, 0x1000 + fd as u64),
            Node::FdInfo { pid, fd } => of(pid, 0x8_0000 + fd as u64),
        }
    }

    /// Where a link leads. `ENOENT` if its process is gone, or not among those that are shown.
    pub fn link(&self, namespace: &PidNamespace) -> Result<Jump, Errno> {
        let path = |text: alloc::string::String| Ok(Jump::Path(text.into_bytes()));
        match *self {
            Node::SelfLink => match own_numbers(namespace)? {
                [process, _] => path(process.to_string()),
            },
            Node::ThreadSelfLink => match own_numbers(namespace)? {
                [process, thread] => path(format!("{process}/task/{thread}")),
            },
            Node::MountsLink => path("self/mounts".into()),
            Node::Fd { pid, fd } => {
                let file = open_file(pid, fd)?;
                Ok(Jump::Dentry { dentry: file.dentry.clone(), shown: file.path() })
            }
            Node::MapFile { pid, start } => Ok(Jump::Path(map_files::path(pid, start)?)),
            Node::NamespaceLink { pid, kind } => {
                // Whoever may not look into the process does not even learn its number.
                let task = open_task(pid)?;
                let namespace = Namespaces::of(&task, kind).ok_or(Errno::ENOENT)?;
                Ok(Jump::Dentry { shown: namespace.name(), dentry: namespace::dentry(namespace) })
            }
            Node::ProcessLink { pid, link } => {
                let task = process::find(pid).ok_or(Errno::ENOENT)?;
                let dentry = match link {
                    ProcessLink::Exe => return executable(&task),
                    ProcessLink::Cwd => task.fs.lock().cwd.clone(),
                    ProcessLink::Root => task.fs.lock().root.clone(),
                };
                let mut shown = Vec::new();
                dentry.path(None, &mut shown);
                Ok(Jump::Dentry { dentry, shown })
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

/// What the caller goes by there: process and thread. `ENOENT` if it is not there.
fn own_numbers(namespace: &PidNamespace) -> Result<[Pid; 2], Errno> {
    let numbers = sched::with_current(|task| [task.tgid, task.pid].map(|pid| namespace.number_of(pid)));
    if numbers.contains(&0) { Err(Errno::ENOENT) } else { Ok(numbers) }
}

/// A process's program.
fn executable(task: &Task) -> Result<Jump, Errno> {
    let program = task.process.exe.lock().clone().ok_or(Errno::ENOENT)?;
    let mut shown = Vec::new();
    program.dentry().path(None, &mut shown);
    Ok(Jump::Dentry { dentry: program.dentry().clone(), shown })
}
