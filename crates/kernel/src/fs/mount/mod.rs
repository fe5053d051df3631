//! What is mounted where: mount namespaces (mount_namespaces(7)), each with a tree of mounts of its own. What happens to one mount happens to others where
//! that is wanted ([`propagation`]).
//!
//! A mount's root stands where the directory stands that it covers, so `..` and paths need not know of mounts. The first mount of a file system has its names
//! themselves; further ones, and all those of further namespaces, are views ([`super::view`]).

mod busy;
mod change;
mod detached;
mod new;
mod propagation;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use linux_raw_sys::general as raw;
use spin::Once;

pub use busy::looked_up;
pub use change::Submounts;
pub use detached::{Detached, Making};
pub use new::KNOWN;
pub use propagation::{Manner, Propagation};

use super::dentry::{Dentry, Place};
use super::inode::{Attributes, Inode, Kind};
use super::path::FsContext;
use super::superblock::{FsType, Superblock};
use super::tree;

use crate::errno::Errno;
use crate::process::namespaces::next_number;
use crate::process::user_namespace::UserNamespace;
use crate::sched;
use crate::sync::Mutex;

/// A mounted file system, or a part of one.
#[derive(Clone)]
pub struct Mount {
    /// What goes by this number in `/proc/PID/mountinfo`.
    pub id: u32,
    /// What it was mounted from.
    pub source: Vec<u8>,
    /// Its kind by name.
    pub kind: &'static str,
    /// Its root.
    pub root: Arc<Dentry>,
    /// `MS_RDONLY`, `MS_NOSUID` and the like, of this mount.
    pub flags: Arc<AtomicU32>,
    /// `MNT_EXPIRE` has marked it, and nobody has looked anything up in it since.
    idle: Arc<AtomicBool>,
    /// Whom it has to do with.
    pub propagation: Arc<Mutex<Propagation>>,
    /// The directory that it covers; `None` for the first.
    covers: Option<Arc<Dentry>>,
    /// Its file system, with all that is mounted of it.
    #[expect(dead_code, reason = "held: the last mount of a file system takes it along")]
    system: Arc<Mounted>,
}

/// A file system as long as some of it is mounted.
struct Mounted {
    root: Arc<Dentry>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.root.clear();
    }
}

impl Mount {
    /// The first mount of a file system.
    fn new(source: &[u8], kind: &'static str, root: Arc<Dentry>, flags: u32, covers: Option<Arc<Dentry>>) -> Mount {
        let system = Arc::new(Mounted { root: root.clone() });
        Mount {
            id: next_id(),
            source: source.to_vec(),
            kind,
            root,
            flags: new_flags(flags),
            propagation: Arc::default(),
            idle: Arc::default(),
            covers,
            system,
        }
    }

    /// A further one, of a part of it.
    fn further(&self, root: Arc<Dentry>, covers: Option<Arc<Dentry>>) -> Mount {
        let flags = new_flags(self.flags.load(Ordering::Relaxed));
        let propagation = Arc::new(Mutex::new(*self.propagation.lock()));
        Mount { id: next_id(), root, flags, idle: Arc::default(), propagation, covers, ..self.clone() }
    }

    /// Appends which directory of its file system is its root.
    pub fn path_inside(&self, out: &mut Vec<u8>) {
        let origin = self.root.origin();
        if Arc::ptr_eq(origin, &self.root) {
            return out.push(b'/');
        }
        let (mut names, mut at) = (Vec::new(), origin.clone());
        loop {
            let up = at.parent();
            if Arc::ptr_eq(&up, &at) || !Arc::ptr_eq(&up.inode.superblock, &at.inode.superblock) {
                break;
            }
            names.push(core::mem::replace(&mut at, up).name());
        }
        if names.is_empty() {
            out.push(b'/');
        }
        for name in names.iter().rev() {
            out.push(b'/');
            out.extend_from_slice(name);
        }
    }

    /// Options as `/proc/mounts` shows them.
    pub fn options(&self) -> impl Iterator<Item = &'static str> + use<> {
        let flags = self.flags.load(Ordering::Relaxed);
        let names = [
            (raw::MS_NOSUID, "nosuid"),
            (raw::MS_NODEV, "nodev"),
            (raw::MS_NOEXEC, "noexec"),
            (raw::MS_NOATIME, "noatime"),
            (raw::MS_NODIRATIME, "nodiratime"),
        ];
        let first = if flags & raw::MS_RDONLY != 0 { "ro" } else { "rw" };
        let relative = (flags & (raw::MS_NOATIME | raw::MS_STRICTATIME) == 0).then_some("relatime");
        let named = names.into_iter().filter(move |(bit, _)| flags & bit != 0).map(|(_, name)| name);
        core::iter::once(first).chain(named).chain(relative)
    }
}

fn next_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(20);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether any mount ever had options that refuse something.
static REFUSING: AtomicBool = AtomicBool::new(false);

fn new_flags(flags: u32) -> Arc<AtomicU32> {
    note_flags(flags);
    Arc::new(AtomicU32::new(flags))
}

fn note_flags(flags: u32) {
    if flags & (raw::MS_RDONLY | raw::MS_NOEXEC | raw::MS_NOSUID | raw::MS_NODEV) != 0 {
        REFUSING.store(true, Ordering::Relaxed);
    }
}

/// Options of the mount that `dentry` is seen through in the current task's namespace, as far as they refuse something.
fn refused_at(dentry: &Arc<Dentry>) -> u32 {
    if !REFUSING.load(Ordering::Relaxed) {
        return 0;
    }
    let mounts = sched::try_with_current(|task| task.namespaces.lock().mnt.clone());
    mounts.map_or(0, |mounts| mounts.options_at(dentry))
}

/// Whether what is seen there may be changed: `EROFS` through a mount that is read-only.
pub fn check_writable(dentry: &Arc<Dentry>) -> Result<(), Errno> {
    if refused_at(dentry) & raw::MS_RDONLY != 0 { Err(Errno::EROFS) } else { Ok(()) }
}

/// Whether programs there may be executed: `EACCES`.
pub fn check_executable(dentry: &Arc<Dentry>) -> Result<(), Errno> {
    if refused_at(dentry) & raw::MS_NOEXEC != 0 { Err(Errno::EACCES) } else { Ok(()) }
}

/// Whether devices there may be opened: `EACCES`.
pub fn check_devices(dentry: &Arc<Dentry>) -> Result<(), Errno> {
    if refused_at(dentry) & raw::MS_NODEV != 0 { Err(Errno::EACCES) } else { Ok(()) }
}

/// Whether set-id bits of programs there do nothing.
pub fn ignores_set_ids(dentry: &Arc<Dentry>) -> bool {
    refused_at(dentry) & raw::MS_NOSUID != 0
}

/// The options of a mount that its flags can be (`MS_*` that become `MNT_*`).
const OPTIONS: u32 = raw::MS_RDONLY
    | raw::MS_NOSUID
    | raw::MS_NODEV
    | raw::MS_NOEXEC
    | raw::MS_NOATIME
    | raw::MS_NODIRATIME
    | raw::MS_STRICTATIME;

/// A mount namespace.
pub struct MountNamespace {
    /// `st_ino` of its file.
    pub number: u64,
    /// Whose it is: capabilities there count for it.
    pub owner: Arc<UserNamespace>,
    state: Mutex<State>,
}

struct State {
    root: Arc<Dentry>,
    /// In the order they were made: what is covered comes before what covers it.
    mounts: Vec<Mount>,
}

impl State {
    /// The mount that `dentry` is seen through.
    fn mount_of(&self, dentry: &Arc<Dentry>) -> Option<&Mount> {
        let mut at = dentry.clone();
        loop {
            if let Some(mount) = self.mounts.iter().find(|mount| Arc::ptr_eq(&mount.root, &at)) {
                return Some(mount);
            }
            let up = at.parent();
            if Arc::ptr_eq(&up, &at) {
                return None;
            }
            at = up;
        }
    }

    /// The topmost mount with its root there.
    fn at(&self, root: &Arc<Dentry>) -> Option<usize> {
        self.mounts.iter().rposition(|mount| Arc::ptr_eq(&mount.root, root))
    }
}

/// The first one, made when first asked for: a file system in memory.
pub fn first() -> &'static Arc<MountNamespace> {
    static FIRST: Once<Arc<MountNamespace>> = Once::new();
    FIRST.call_once(|| {
        let root = Dentry::at(Place::Root, new::directory(&Superblock::new(FsType::Tmpfs), 0o755));
        let mounts = [Mount::new(b"rootfs", "rootfs", root.clone(), 0, None)].into();
        // Linux's `PROC_MNT_INIT_INO` is not fixed: the first that is given out.
        let owner = UserNamespace::first().clone();
        let first = Arc::new(MountNamespace { number: 0xf000_0000, owner, state: Mutex::new(State { root, mounts }) });
        propagation::register(&first);
        first
    })
}

/// The root of the first one.
pub fn root() -> &'static Arc<Dentry> {
    static ROOT: Once<Arc<Dentry>> = Once::new();
    ROOT.call_once(|| first().root())
}

impl MountNamespace {
    /// Its root, with whatever covers that.
    pub fn root(&self) -> Arc<Dentry> {
        self.state.lock().root.clone()
    }

    /// All mounts, in the order they were made, and for each the number of the mount that it is on.
    pub fn all(&self) -> Vec<(Mount, u32)> {
        let state = self.state.lock();
        let above = |mount: &Mount| mount.covers.as_ref().and_then(|covers| state.mount_of(covers)).map(|on| on.id);
        state.mounts.iter().map(|mount| (mount.clone(), above(mount).unwrap_or(1))).collect()
    }

    /// Options of the mount that `dentry` is seen through.
    pub fn options_at(&self, dentry: &Arc<Dentry>) -> u32 {
        let state = self.state.lock();
        state.mount_of(dentry).map_or(0, |mount| mount.flags.load(Ordering::Relaxed))
    }

    /// The same mounts of their own, each a view, and where `fs` is in it (`copy_mnt_ns` of Linux's `fs/namespace.c`).
    pub fn copy(&self, fs: &mut FsContext, owner: &Arc<UserNamespace>) -> Arc<MountNamespace> {
        let state = self.state.lock();
        let mut made: Vec<(Mount, Mount)> = Vec::new();
        for mount in &state.mounts {
            let covers = mount.covers.as_ref().and_then(|covers| counterpart(&state, &made, covers));
            let root = mount.root.bound_at(match &covers {
                Some(covers) => place_of(covers),
                None => Place::Root,
            });
            if let Some(covers) = &covers {
                covers.set_mounted(Some(root.clone()));
            }
            let further = mount.further(root, covers);
            if !Arc::ptr_eq(owner, &self.owner) {
                // What the copies' owner does is not for those who are more than it.
                let received = further.propagation.lock().received();
                *further.propagation.lock() = received;
            }
            made.push((mount.clone(), further));
        }
        let same = |dentry: &Arc<Dentry>| counterpart(&state, &made, dentry);
        let root = same(&state.root).unwrap_or_else(|| state.root.clone());
        let places = [&fs.cwd, &fs.root].map(|dentry| same(dentry).unwrap_or_else(|| root.clone()));
        drop(state);
        [fs.cwd, fs.root] = places;
        let mounts = made.into_iter().map(|(_, mount)| mount).collect();
        let copy = Arc::new(MountNamespace {
            number: next_number(),
            owner: owner.clone(),
            state: Mutex::new(State { root, mounts }),
        });
        propagation::register(&copy);
        copy
    }
}

impl Drop for MountNamespace {
    /// Covered directories and what covers them refer to each other.
    fn drop(&mut self) {
        for mount in core::mem::take(&mut self.state.get_mut().mounts) {
            if let Some(covers) = &mount.covers {
                covers.set_mounted(None);
            }
        }
    }
}

/// What `dentry` is among the mounts that were made for those of `state`.
fn counterpart(state: &State, made: &[(Mount, Mount)], dentry: &Arc<Dentry>) -> Option<Arc<Dentry>> {
    let through = state.mount_of(dentry)?;
    let (_, copy) = made.iter().find(|(old, _)| old.id == through.id)?;
    copy.root.view_of(dentry.origin())
}

/// Where the root of what covers `target` stands.
fn place_of(target: &Arc<Dentry>) -> Place {
    let parent = target.parent();
    match Arc::ptr_eq(&parent, target) {
        true => Place::Root,
        false => Place::In { parent, name: target.name(), removed: false },
    }
}

/// Makes `/dev`, `/proc` and `/sys`, as far as the archive did not, and mounts what belongs there.
pub fn mount_standard() -> Result<(), Errno> {
    for (name, kind) in [("dev", "devtmpfs"), ("proc", "proc"), ("sys", "sysfs")] {
        let directory = match root().child(name.as_bytes()) {
            Ok(directory) => directory,
            Err(_) => tree::create(root(), name.as_bytes(), || {
                Ok(Inode::new(&root().inode.superblock, Kind::Directory, Attributes::new(0o755)))
            })?,
        };
        // An archive may hold a link or a file of that name: then there is nowhere to mount.
        if directory.inode.is_directory() {
            first().mount(kind.as_bytes(), &directory, kind.as_bytes(), 0)?;
            let terminals = directory.uncovered().child(b"pts");
            if let (Ok(terminals), "devtmpfs") = (terminals, kind) {
                first().mount(b"devpts", &terminals, b"devpts", 0)?;
            }
        }
    }
    Ok(())
}
