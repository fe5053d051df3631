//! Namespaces (namespaces(7)): what a thread sees as the machine's names ([`Uts`]), as System V objects ([`Ipc`]), as what is mounted where
//! ([`MountNamespace`]), as the network ([`Net`]), as processes ([`PidNamespace`]), as users ([`UserNamespace`]), as time ([`TimeNamespace`]) and as the root of
//! its control groups, of which there is one.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as raw;
use spin::Once;

use super::Task;
use super::credentials::{CAP_SYS_ADMIN, Credentials};
use super::net::Net;
use super::pid_namespace::PidNamespace;
use super::time_namespace::TimeNamespace;
use super::user_namespace::UserNamespace;
use crate::errno::Errno;
use crate::fs::mount::{self, MountNamespace};
use crate::fs::path::FsContext;
use crate::sync::Mutex;
use crate::syscall::ipc::Ipc;

/// Bytes of a field of `struct new_utsname`, its NUL included.
pub const FIELD: usize = 65;

/// A name of the machine, padded with NULs.
pub type MachineName = [u8; FIELD];

/// `text` as one. The rest of what does not fit is left out.
pub const fn machine_name(text: &[u8]) -> MachineName {
    let mut bytes = [0; FIELD];
    let mut index = 0;
    while index < text.len() && index < FIELD - 1 {
        bytes[index] = text[index];
        index += 1;
    }
    bytes
}

/// The names of the host and of its domain.
pub struct Uts {
    number: u64,
    /// Whose it is: capabilities there count for it.
    pub owner: Arc<UserNamespace>,
    /// `uname -n`.
    pub host: Mutex<MachineName>,
    /// The NIS domain.
    pub domain: Mutex<MachineName>,
}

/// Where control groups begin: there is only the root of them, so that it is nothing but a number.
pub struct Cgroup {
    number: u64,
    /// Whose it is: capabilities there count for it.
    pub owner: Arc<UserNamespace>,
}

/// The namespaces of a thread.
#[derive(Clone)]
pub struct Namespaces {
    /// Names.
    pub uts: Arc<Uts>,
    /// System V objects.
    pub ipc: Arc<Ipc>,
    /// Mounts. The root and the current directory are seen through some of these, as a rule.
    pub mnt: Arc<MountNamespace>,
    /// Control groups.
    pub cgroup: Arc<Cgroup>,
    /// Interfaces, ports and abstract names.
    pub net: Arc<Net>,
    /// Offsets of clocks.
    pub time: Arc<TimeNamespace>,
    /// Those of its next children and its next program.
    pub time_for_children: Arc<TimeNamespace>,
    /// Where its next children will be; where it is itself, [`super::Process::pid_namespace`] says.
    pub pid: Arc<PidNamespace>,
}

/// One namespace, by a file.
#[derive(Clone)]
pub enum Namespace {
    /// See [`Uts`].
    Uts(Arc<Uts>),
    /// See [`Ipc`].
    Ipc(Arc<Ipc>),
    /// See [`MountNamespace`].
    Mnt(Arc<MountNamespace>),
    /// See [`Cgroup`].
    Cgroup(Arc<Cgroup>),
    /// See [`Net`].
    Net(Arc<Net>),
    /// See [`PidNamespace`].
    Pid(Arc<PidNamespace>),
    /// See [`UserNamespace`].
    User(Arc<UserNamespace>),
    /// See [`TimeNamespace`].
    Time(Arc<TimeNamespace>),
}

/// The kinds, as `/proc/PID/ns` names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamespaceKind {
    /// See [`Uts`].
    Uts,
    /// See [`Ipc`].
    Ipc,
    /// See [`MountNamespace`].
    Mnt,
    /// See [`Cgroup`].
    Cgroup,
    /// See [`Net`].
    Net,
    /// See [`super::Process::pid_namespace`].
    Pid,
    /// See [`Namespaces::pid`].
    PidForChildren,
    /// See [`super::credentials::Credentials::user_namespace`].
    User,
    /// See [`Namespaces::time`].
    Time,
    /// See [`Namespaces::time_for_children`].
    TimeForChildren,
}

/// Flags for all that there are.
pub const KNOWN: u32 = raw::CLONE_NEWUTS
    | raw::CLONE_NEWIPC
    | raw::CLONE_NEWNS
    | raw::CLONE_NEWCGROUP
    | raw::CLONE_NEWNET
    | raw::CLONE_NEWPID
    | raw::CLONE_NEWUSER
    | raw::CLONE_NEWTIME;

/// A number for a new one: `st_ino` of its file. The first are Linux's `PROC_UTS_INIT_INO` and `PROC_IPC_INIT_INO`.
pub fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0xf000_0010);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Namespaces {
    /// Those that the first process is in.
    pub fn first() -> Arc<Namespaces> {
        static FIRST: Once<Arc<Namespaces>> = Once::new();
        let make = || {
            Arc::new(Namespaces {
                uts: Arc::new(Uts {
                    number: 0xefff_fffe,
                    owner: UserNamespace::first().clone(),
                    host: Mutex::new(machine_name(b"foldspace")),
                    domain: Mutex::new(machine_name(b"(none)")),
                }),
                ipc: Arc::new(Ipc::new(0xefff_ffff, UserNamespace::first().clone())),
                mnt: mount::first().clone(),
                cgroup: Arc::new(Cgroup { number: 0xefff_fffb, owner: UserNamespace::first().clone() }),
                net: Net::first().clone(),
                time: TimeNamespace::first().clone(),
                time_for_children: TimeNamespace::first().clone(),
                pid: PidNamespace::first().clone(),
            })
        };
        FIRST.call_once(make).clone()
    }

    /// The same, but new ones of `owner` where `flags` (`CLONE_NEW*`) ask for that. `fs` is put where the same is in new mounts.
    ///
    /// # Errors
    /// Of processes: `EINVAL` for who is not where its children are, `ENOSPC` where they are too deep.
    pub fn with_new(
        self: &Arc<Namespaces>,
        flags: u32,
        task: &Task,
        owner: &Arc<UserNamespace>,
        fs: &mut FsContext,
    ) -> Result<Arc<Namespaces>, Errno> {
        let mut new = Namespaces::clone(self);
        if flags & raw::CLONE_NEWPID != 0 {
            if !Arc::ptr_eq(&self.pid, &task.process.pid_namespace) {
                return Err(Errno::EINVAL);
            }
            new.pid = PidNamespace::new(&self.pid, owner)?;
        }
        if flags & raw::CLONE_NEWTIME != 0 {
            new.time_for_children = self.time_for_children.copy(owner);
        }
        if flags & raw::CLONE_NEWNS != 0 {
            new.mnt = self.mnt.copy(fs, owner);
        }
        if flags & raw::CLONE_NEWCGROUP != 0 {
            new.cgroup = Arc::new(Cgroup { number: next_number(), owner: owner.clone() });
        }
        if flags & raw::CLONE_NEWNET != 0 {
            new.net = Net::new(owner);
        }
        if flags & raw::CLONE_NEWUTS != 0 {
            let (host, domain) = (*self.uts.host.lock(), *self.uts.domain.lock());
            new.uts = Arc::new(Uts {
                number: next_number(),
                owner: owner.clone(),
                host: Mutex::new(host),
                domain: Mutex::new(domain),
            });
        }
        if flags & raw::CLONE_NEWIPC != 0 {
            new.ipc = Arc::new(Ipc::new(next_number(), owner.clone()));
        }
        Ok(Arc::new(new))
    }

    /// Puts one in the place of the one of its kind.
    pub fn enter(&mut self, namespace: Namespace) {
        match namespace {
            Namespace::Uts(uts) => self.uts = uts,
            Namespace::Ipc(ipc) => self.ipc = ipc,
            Namespace::Mnt(mnt) => self.mnt = mnt,
            Namespace::Cgroup(cgroup) => self.cgroup = cgroup,
            Namespace::Net(net) => self.net = net,
            Namespace::Pid(pid) => self.pid = pid,
            Namespace::Time(time) => {
                time.enter();
                self.time_for_children = time.clone();
                self.time = time;
            }
            // Belongs to the credentials.
            Namespace::User(_) => {}
        }
    }

    /// The one of a kind that `task` is in; `None` is that of its children as long as nobody has begun there.
    pub fn of(task: &Task, kind: NamespaceKind) -> Option<Namespace> {
        let all = task.namespaces.lock().clone();
        Some(match kind {
            NamespaceKind::Uts => Namespace::Uts(all.uts.clone()),
            NamespaceKind::Ipc => Namespace::Ipc(all.ipc.clone()),
            NamespaceKind::Mnt => Namespace::Mnt(all.mnt.clone()),
            NamespaceKind::Cgroup => Namespace::Cgroup(all.cgroup.clone()),
            NamespaceKind::Net => Namespace::Net(all.net.clone()),
            NamespaceKind::Pid => Namespace::Pid(task.process.pid_namespace.clone()),
            NamespaceKind::PidForChildren => {
                all.pid.init()?;
                Namespace::Pid(all.pid.clone())
            }
            NamespaceKind::Time => Namespace::Time(all.time.clone()),
            NamespaceKind::TimeForChildren => Namespace::Time(all.time_for_children.clone()),
            NamespaceKind::User => Namespace::User(task.credentials().user_namespace),
        })
    }
}

impl Namespace {
    /// Its `CLONE_NEW*`.
    pub fn flag(&self) -> u32 {
        match self {
            Namespace::Uts(_) => raw::CLONE_NEWUTS,
            Namespace::Ipc(_) => raw::CLONE_NEWIPC,
            Namespace::Mnt(_) => raw::CLONE_NEWNS,
            Namespace::Cgroup(_) => raw::CLONE_NEWCGROUP,
            Namespace::Net(_) => raw::CLONE_NEWNET,
            Namespace::Pid(_) => raw::CLONE_NEWPID,
            Namespace::User(_) => raw::CLONE_NEWUSER,
            Namespace::Time(_) => raw::CLONE_NEWTIME,
        }
    }

    /// Whose it is; of users, the one above. `None`: there is nothing above the first.
    pub fn owner(&self) -> Option<&Arc<UserNamespace>> {
        match self {
            Namespace::Uts(uts) => Some(&uts.owner),
            Namespace::Ipc(ipc) => Some(&ipc.owner),
            Namespace::Mnt(mnt) => Some(&mnt.owner),
            Namespace::Cgroup(cgroup) => Some(&cgroup.owner),
            Namespace::Net(net) => Some(&net.owner),
            Namespace::Pid(pid) => Some(&pid.owner),
            Namespace::User(user) => user.parent(),
            Namespace::Time(time) => Some(&time.owner),
        }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        match self {
            Namespace::Uts(uts) => uts.number,
            Namespace::Ipc(ipc) => ipc.number(),
            Namespace::Mnt(mnt) => mnt.number,
            Namespace::Cgroup(cgroup) => cgroup.number,
            Namespace::Net(net) => net.number,
            Namespace::Pid(pid) => pid.number,
            Namespace::User(user) => user.number,
            Namespace::Time(time) => time.number,
        }
    }

    /// As a link to it reads: `uts:[4026531838]`.
    pub fn name(&self) -> alloc::vec::Vec<u8> {
        let kind = match self {
            Namespace::Uts(_) => "uts",
            Namespace::Ipc(_) => "ipc",
            Namespace::Mnt(_) => "mnt",
            Namespace::Cgroup(_) => "cgroup",
            Namespace::Net(_) => "net",
            Namespace::Pid(_) => "pid",
            Namespace::User(_) => "user",
            Namespace::Time(_) => "time",
        };
        alloc::format!("{kind}:[{}]", self.number()).into_bytes()
    }
}

/// Checks flags of clone and unshare, and makes the namespace of users that they ask for, which comes first and gives its maker what the others need
/// (`copy_creds`, `create_new_namespaces`): who acts then, if that is not as before.
///
/// # Errors
/// `EPERM`: without capabilities, or with a root of one's own. `ENOSPC`: too deep.
#[inline]
pub fn prepare(flags: u32, task: &Task) -> Result<Option<Credentials>, Errno> {
    if flags == 0 { Ok(None) } else { prepare_new(flags, task) }
}

#[cold]
#[inline(never)]
fn prepare_new(flags: u32, task: &Task) -> Result<Option<Credentials>, Errno> {
    let mut new = None;
    if flags & raw::CLONE_NEWUSER != 0 {
        let (root, own) = (task.fs.lock().root.uncovered(), task.namespaces.lock().mnt.root().uncovered());
        if !Arc::ptr_eq(&root, &own) {
            return Err(Errno::EPERM);
        }
        new = Some(UserNamespace::create(&task.credentials())?);
    }
    let others = KNOWN & !raw::CLONE_NEWUSER;
    let may = |credentials: &Credentials| credentials.may_here(CAP_SYS_ADMIN);
    if flags & others != 0 && !new.as_ref().map_or_else(|| may(&task.credentials()), may) {
        return Err(Errno::EPERM);
    }
    Ok(new)
}
