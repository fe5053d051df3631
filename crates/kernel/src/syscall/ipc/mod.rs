//! System V semaphores and message queues (svipc(7)). Shared memory is in [`super::shm`].

pub mod messages;
pub mod semaphores;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::sync::Mutex;

use super::shm::Segments;
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::credentials::{CAP_IPC_OWNER, CAP_SYS_ADMIN, Credentials};
use crate::process::user_namespace::{Ids, UserNamespace};
use crate::time::{NANOS_PER_SECOND, realtime_ns};

/// `linux/ipc.h`.
pub(super) const IPC_PRIVATE: i32 = 0;
pub(super) const IPC_CREAT: u32 = 0o1000;
pub(super) const IPC_EXCL: u32 = 0o2000;
pub(super) const IPC_NOWAIT: u32 = 0o4000;
pub(super) const IPC_RMID: u32 = 0;
pub(super) const IPC_SET: u32 = 1;
pub(super) const IPC_STAT: u32 = 2;
pub(super) const IPC_INFO: u32 = 3;

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    realtime_ns() / NANOS_PER_SECOND
}

/// Whose something is, and who may use it (`struct kern_ipc_perm`).
#[derive(Clone, Copy, Debug)]
pub struct Permissions {
    key: i32,
    owner: (u32, u32),
    creator: (u32, u32),
    mode: u32,
}

impl Permissions {
    fn new(key: i32, who: &Credentials, mode: u32) -> Permissions {
        let owner = (who.euid, who.egid);
        Permissions { key, owner, creator: owner, mode: mode & 0o777 }
    }

    /// Whether somebody may do what `wanted` says (bits 4: read, 2: change): `EACCES`.
    fn permit(&self, who: &Credentials, wanted: u32) -> Result<(), Errno> {
        let in_group = |gid: u32| who.egid == gid || who.groups.contains(&gid);
        let class = if who.euid == self.owner.0 || who.euid == self.creator.0 {
            self.mode >> 6
        } else if in_group(self.owner.1) || in_group(self.creator.1) {
            self.mode >> 3
        } else {
            self.mode
        };
        if who.may_in(&current().owner, CAP_IPC_OWNER) || class & wanted == wanted {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    /// Whether somebody may remove or change it: `EPERM`.
    fn owned_by(&self, who: &Credentials) -> Result<(), Errno> {
        let owns =
            who.may_in(&current().owner, CAP_SYS_ADMIN) || who.euid == self.owner.0 || who.euid == self.creator.0;
        if owns { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// What `IPC_SET` says, from the start of a program's record.
    fn read_new(address: u64) -> Result<(u32, u32, u32), Errno> {
        let [_key, uid, gid, _cuid, _cgid, mode]: [u32; 6] = uaccess::read(address)?;
        Ok((uid, gid, mode))
    }

    fn set(&mut self, (uid, gid, mode): (u32, u32, u32)) {
        self.owner = (uid, gid);
        self.mode = mode & 0o777;
    }

    /// `struct ipc64_perm` as words: key and uid, gid and creator's uid, creator's gid and mode, sequence, two unused.
    fn words(&self) -> [u64; 6] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let (owner, creator) = (self.owner, self.creator);
        [pair(self.key as u32, owner.0), pair(owner.1, creator.0), pair(creator.1, self.mode), 0, 0, 0]
    }
}

/// What a line of `/proc/sysvipc` says of it.
struct Shown {
    key: i32,
    mode: u32,
    /// Users and groups, of the owner and of the creator, as the reader sees them.
    owners: [u32; 4],
}

impl Permissions {
    fn shown(&self) -> Shown {
        let namespace = crate::sched::with_current(|task| task.credentials().user_namespace);
        let (user, group) = (|id| namespace.shown(Ids::Users, id), |id| namespace.shown(Ids::Groups, id));
        let owners = [user(self.owner.0), group(self.owner.1), user(self.creator.0), group(self.creator.1)];
        Shown { key: self.key, mode: self.mode, owners }
    }
}

/// What has permissions.
pub(super) trait Guarded {
    /// Its permissions now.
    fn permissions(&self) -> Permissions;
}

/// All of a kind, by number.
pub(super) struct Registry<T> {
    inner: Mutex<Numbered<T>>,
    most: usize,
}

struct Numbered<T> {
    by_id: BTreeMap<i32, Arc<T>>,
    next: i32,
}

/// The System V objects of one namespace.
pub struct Ipc {
    number: u64,
    /// Whose it is: capabilities there count for it.
    pub owner: Arc<UserNamespace>,
    semaphores: Registry<semaphores::Set>,
    messages: Registry<messages::Queue>,
    /// Shared memory.
    pub(super) segments: Mutex<Segments>,
}

impl Ipc {
    /// One without any, whose file has that number.
    pub const fn new(number: u64, owner: Arc<UserNamespace>) -> Ipc {
        Ipc {
            number,
            owner,
            semaphores: Registry::new(semaphores::SETS),
            messages: Registry::new(messages::QUEUES),
            segments: Mutex::new(Segments::new()),
        }
    }

    /// The number of its file.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The current thread's.
pub(super) fn current() -> Arc<Ipc> {
    crate::sched::with_current(|task| task.namespaces.lock().ipc.clone())
}

impl<T: Guarded> Registry<T> {
    const fn new(most: usize) -> Registry<T> {
        Registry { inner: Mutex::new(Numbered { by_id: BTreeMap::new(), next: 0 }), most }
    }

    /// The one of a key, or a new one (`ipcget` of Linux's `ipc/util.c`). `check` looks at one that is there.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EACCES`, `ENOSPC`, and those of `check` and `make`.
    fn get(
        &self,
        key: i32,
        flags: u32,
        who: &Credentials,
        check: impl FnOnce(&T) -> Result<(), Errno>,
        make: impl FnOnce(Permissions) -> Result<T, Errno>,
    ) -> Result<usize, Errno> {
        let mut inner = self.inner.lock();
        let known = inner.by_id.iter().find(|(_, one)| key != IPC_PRIVATE && one.permissions().key == key);
        if let Some((&id, one)) = known {
            if flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0 {
                return Err(Errno::EEXIST);
            }
            check(one)?;
            one.permissions().permit(who, (flags >> 6 | flags >> 3 | flags) & 0o6)?;
            return Ok(id as usize);
        }
        if key != IPC_PRIVATE && flags & IPC_CREAT == 0 {
            return Err(Errno::ENOENT);
        }
        let one = make(Permissions::new(key, who, flags))?;
        if inner.by_id.len() >= self.most {
            return Err(Errno::ENOSPC);
        }
        let id = inner.next;
        inner.next = id.checked_add(1).ok_or(Errno::ENOSPC)?;
        inner.by_id.insert(id, Arc::new(one));
        Ok(id as usize)
    }

    /// The one of a number: `EINVAL`.
    fn find(&self, id: i32) -> Result<Arc<T>, Errno> {
        self.inner.lock().by_id.get(&id).cloned().ok_or(Errno::EINVAL)
    }

    /// The one at a place among all, and its number: `EINVAL`.
    fn at(&self, index: i32) -> Result<(i32, Arc<T>), Errno> {
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        let inner = self.inner.lock();
        inner.by_id.iter().nth(index).map(|(&id, one)| (id, one.clone())).ok_or(Errno::EINVAL)
    }

    /// Takes one away, if it is still that one: `EINVAL`.
    fn remove(&self, id: i32, one: &Arc<T>) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        match inner.by_id.get(&id) {
            Some(there) if Arc::ptr_eq(there, one) => inner.by_id.remove(&id),
            _ => return Err(Errno::EINVAL),
        };
        Ok(())
    }

    /// All there are, with their numbers.
    fn numbered(&self) -> alloc::vec::Vec<(i32, Arc<T>)> {
        self.inner.lock().by_id.iter().map(|(&id, one)| (id, one.clone())).collect()
    }

    /// All there are.
    fn all(&self) -> alloc::vec::Vec<Arc<T>> {
        self.inner.lock().by_id.values().cloned().collect()
    }

    /// The highest place that is taken, 0 if none is: what the `*_INFO` commands return.
    fn highest(&self) -> usize {
        self.inner.lock().by_id.len().saturating_sub(1)
    }
}
