//! System V shared memory (shmget(2), shmop(2), shmctl(2)): objects of the memory manager with numbers and keys.
//!
//! A segment is attached where a VMA shows its object; nothing else keeps count. A segment that was removed lives on in the VMAs that
//! show it, and its number is found as long as there is one.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use foldspace::backing::{Identity, Source};
use foldspace::frame::Overcommit;
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use syscalls::Sysno;

use super::ipc;
use super::memory::{PAGE, in_space, round_up};
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::fs::procfs::system::Text;
use crate::mm::{memory, objects, uaccess};
use crate::process::credentials::{CAP_IPC_OWNER, CAP_SYS_ADMIN, Credentials};
use crate::process::user_namespace::Ids;
use crate::process::{Pid, Task, tree};
use crate::sched;
use crate::time::{NANOS_PER_SECOND, realtime_ns};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] =
    &[(Sysno::shmget, shmget), (Sysno::shmat, shmat), (Sysno::shmdt, shmdt), (Sysno::shmctl, shmctl)];

/// `linux/ipc.h` and `linux/shm.h`.
const IPC_PRIVATE: i32 = 0;
const IPC_CREAT: u32 = 0o1000;
const IPC_EXCL: u32 = 0o2000;
const IPC_RMID: u32 = 0;
const IPC_SET: u32 = 1;
const IPC_STAT: u32 = 2;
const SHM_RDONLY: u32 = 0o10000;
const SHM_RND: u32 = 0o20000;
const SHM_REMAP: u32 = 0o40000;
const SHM_EXEC: u32 = 0o100000;
const SHM_HUGETLB: u32 = 0o4000;
const SHM_NORESERVE: u32 = 0o10000;
const SHM_LOCK: u32 = 11;
const SHM_UNLOCK: u32 = 12;
const IPC_INFO: u32 = 3;
const SHM_STAT: u32 = 13;
const SHM_INFO: u32 = 14;
const SHM_STAT_ANY: u32 = 15;
/// `kernel.shmmax` and `kernel.shmall` of Linux.
pub const UNLIMITED: u64 = u64::MAX - (1 << 24);
/// In the mode that `IPC_STAT` shows: gone when the last attachment is.
const SHM_DEST: u32 = 0o1000;

/// Most segments (`SHMMNI`).
pub const MAX_SEGMENTS: usize = 4096;
/// Largest segment: what fits into an address space.
const MAX_SIZE: u64 = 1 << 46;

/// What the memory manager is told of a segment: zeros with the name that Linux shows (`newseg` of `ipc/shm.c`).
struct SegmentSource {
    key: i32,
    id: i32,
}

impl Source for SegmentSource {
    fn fill(&self, _index: u64, _page: &mut [u8]) -> foldspace::Result<()> {
        Ok(())
    }

    /// The inode number is the segment's.
    fn identity(&self) -> Identity {
        Identity { major: 0, minor: 1, inode: self.id as u64 }
    }

    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(alloc::format!("/SYSV{:08x} (deleted)", self.key).as_bytes());
    }

    fn is_shared_memory(&self) -> bool {
        true
    }

    /// Those of SHM_NORESERVE; others are charged whole.
    fn commits_pages(&self) -> bool {
        true
    }
}

/// How a segment is held.
enum Hold {
    /// Until it is removed.
    Table(Arc<Object>),
    /// It was removed: by whoever shows it.
    Attachments(Weak<Object>),
}

impl Hold {
    fn object(&self) -> Option<Arc<Object>> {
        match self {
            Hold::Table(object) => Some(object.clone()),
            Hold::Attachments(object) => object.upgrade(),
        }
    }
}

/// A segment.
struct Segment {
    hold: Hold,
    key: i32,
    size: u64,
    mode: u32,
    owner: (u32, u32),
    creator: (u32, u32),
    creator_pid: Pid,
    last_pid: Pid,
    /// Seconds since 1970: of the last attachment, detachment, change.
    times: [u64; 3],
}

pub struct Segments {
    by_id: BTreeMap<i32, Segment>,
    next_id: i32,
}

fn now() -> u64 {
    realtime_ns() / NANOS_PER_SECOND
}

impl Segment {
    /// Whether somebody may do what `wanted` says (bits 4: read, 2: write).
    fn permits(&self, who: &Credentials, wanted: u32) -> Result<(), Errno> {
        let class = if who.euid == self.owner.0 || who.euid == self.creator.0 {
            self.mode >> 6
        } else if who.egid == self.owner.1 || who.groups.contains(&self.owner.1) {
            self.mode >> 3
        } else {
            self.mode
        };
        if who.may_in(&ipc::current().owner, CAP_IPC_OWNER) || class & wanted == wanted {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    /// Whether somebody may remove or change it.
    fn owned_by(&self, who: &Credentials) -> Result<(), Errno> {
        if who.may_in(&ipc::current().owner, CAP_SYS_ADMIN) || who.euid == self.owner.0 || who.euid == self.creator.0 {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }
}

impl Segments {
    /// None.
    pub const fn new() -> Segments {
        Segments { by_id: BTreeMap::new(), next_id: 0 }
    }

    /// The segment of that number; `EINVAL` if there is none, or none any more.
    fn get(&mut self, id: i32) -> Result<(&mut Segment, Arc<Object>), Errno> {
        // What was unmapped a moment ago may wait to be freed: attachments decide, not references.
        let alive = self.by_id.get(&id).and_then(|segment| match &segment.hold {
            Hold::Table(object) => Some(object.clone()),
            Hold::Attachments(object) => object.upgrade().filter(|object| attachments(object) > 0),
        });
        let Some(object) = alive else {
            self.by_id.remove(&id);
            return Err(Errno::EINVAL);
        };
        Ok((self.by_id.get_mut(&id).ok_or(Errno::EINVAL)?, object))
    }
}

fn shmget(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [key, size, flags, ..] = ctx.args;
    let (key, flags) = (key as i32, flags as u32);
    let who = ctx.task.credentials();
    let ipc = ipc::current();
    let mut segments = ipc.segments.lock();
    if key != IPC_PRIVATE
        && let Some((&id, segment)) = segments.by_id.iter().find(|(_, segment)| segment.key == key)
    {
        if flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0 {
            return Err(Errno::EEXIST);
        }
        if size > segment.size {
            return Err(Errno::EINVAL);
        }
        let wanted = (flags >> 6 | flags >> 3 | flags) & 0o6;
        segment.permits(&who, wanted)?;
        return Ok(id as usize);
    }
    if key != IPC_PRIVATE && flags & IPC_CREAT == 0 {
        return Err(Errno::ENOENT);
    }
    if size == 0 || size > MAX_SIZE {
        return Err(Errno::EINVAL);
    }
    if flags & SHM_HUGETLB != 0 {
        return Err(Errno::ENOMEM);
    }
    segments.by_id.retain(|_, segment| segment.hold.object().is_some());
    if segments.by_id.len() >= MAX_SEGMENTS {
        return Err(Errno::ENOSPC);
    }
    let len = round_up(size).ok_or(Errno::EINVAL)?;
    let id = segments.next_id;
    let source = Box::new(SegmentSource { key, id });
    let unreserved = flags & SHM_NORESERVE != 0 && memory().overcommit() != Overcommit::Never;
    let object = if unreserved { Object::new(memory(), source, len) } else { Object::reserved(memory(), source, len) }?;
    objects::made(&object);
    segments.next_id = segments.next_id.checked_add(1).ok_or(Errno::ENOSPC)?;
    let owner = (who.euid, who.egid);
    segments.by_id.insert(
        id,
        Segment {
            hold: Hold::Table(object),
            key,
            size,
            mode: flags & 0o777,
            owner,
            creator: owner,
            creator_pid: ctx.task.tgid,
            last_pid: 0,
            times: [0, 0, now()],
        },
    );
    Ok(id as usize)
}

fn shmat(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [id, address, flags, ..] = ctx.args;
    let (id, flags) = (id as i32, flags as u32);
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let address = match address % PAGE {
        0 => address,
        _ if flags & SHM_RND != 0 => address & !(PAGE - 1),
        _ => return Err(Errno::EINVAL),
    };
    if address == 0 && flags & SHM_REMAP != 0 {
        return Err(Errno::EINVAL);
    }
    let who = ctx.task.credentials();
    let object = {
        let ipc = ipc::current();
        let mut segments = ipc.segments.lock();
        let (segment, object) = segments.get(id)?;
        segment.permits(&who, if flags & SHM_RDONLY != 0 { 4 } else { 6 })?;
        object
    };
    let mut access = VmaFlags::READ | VmaFlags::SHARED | VmaFlags::MAY_READ | VmaFlags::MAY_EXEC;
    if flags & SHM_RDONLY == 0 {
        access |= VmaFlags::WRITE | VmaFlags::MAY_WRITE;
    }
    access.set(VmaFlags::EXEC, flags & SHM_EXEC != 0);
    let request = MapRequest {
        placement: match address {
            0 => Placement::Anywhere,
            _ if flags & SHM_REMAP != 0 => Placement::Fixed(VirtAddr(address)),
            _ => Placement::FixedNoReplace(VirtAddr(address)),
        },
        len: object.len(),
        flags: access,
        backing: Backing::Object(object),
        page_offset: 0,
    };
    let start = in_space(|space| space.map(request))?.map_err(|error| match Errno::from(error) {
        Errno::EEXIST => Errno::EINVAL,
        error => error,
    })?;
    if let Ok((segment, _)) = ipc::current().segments.lock().get(id) {
        segment.times[0] = now();
        segment.last_pid = ctx.task.tgid;
    }
    Ok(start.get() as usize)
}

/// Unmaps every part of the segment that begins at the address.
fn shmdt(ctx: &mut SyscallContext<'_>) -> SysResult {
    let address = ctx.args[0];
    let start = VirtAddr(address);
    if !start.is_page_aligned() {
        return Err(Errno::EINVAL);
    }
    let (id, object, parts) = in_space(|space| attachment(space, start))?.ok_or(Errno::EINVAL)?;
    drop(object);
    for part in parts {
        in_space(|space| space.unmap(part))??;
    }
    if let Ok((segment, _)) = ipc::current().segments.lock().get(id) {
        segment.times[1] = now();
        segment.last_pid = ctx.task.tgid;
    }
    Ok(0)
}

/// The segment that is attached at `start`, and the ranges that show it where that attachment put it.
fn attachment(space: &AddressSpace, start: VirtAddr) -> Option<(i32, Arc<Object>, Vec<PageRange>)> {
    let version = space.vmas();
    let view = version.view();
    let first = view.find_at_or_after(start)?;
    let Backing::Object(object) = &first.backing else { return None };
    let id = {
        let ipc = ipc::current();
        let segments = ipc.segments.lock();
        let is_it = |segment: &Segment| segment.hold.object().is_some_and(|held| Arc::ptr_eq(&held, object));
        segments.by_id.iter().find(|(_, segment)| is_it(segment)).map(|(&id, _)| id)?
    };
    let whole = PageRange::from_len(start, object.len())?;
    let in_place = |vma: &foldspace::vma::Vma| {
        matches!(&vma.backing, Backing::Object(other) if Arc::ptr_eq(other, object))
            && vma.start().get().checked_sub(vma.page_offset * PAGE) == Some(start.get())
    };
    let parts: Vec<PageRange> = view.range(whole).filter(|vma| in_place(vma)).map(|vma| vma.range).collect();
    if parts.is_empty() { None } else { Some((id, object.clone(), parts)) }
}

/// How many attachments show an object. O(VMAs of all processes): asked for rarely.
fn attachments(object: &Arc<Object>) -> u64 {
    let mut spaces: Vec<Arc<AddressSpace>> = Vec::new();
    for process in tree::processes() {
        let Some(task) = process.leader() else { continue };
        let space = task.space();
        if !spaces.iter().any(|known| Arc::ptr_eq(known, &space)) {
            spaces.push(space);
        }
    }
    let shows = |vma: &foldspace::vma::Vma| {
        vma.page_offset == 0 && matches!(&vma.backing, Backing::Object(other) if Arc::ptr_eq(other, object))
    };
    spaces.iter().map(|space| space.vmas().view().iter().filter(|vma| shows(vma)).count() as u64).sum()
}

fn shmctl(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [id, command, buffer, ..] = ctx.args;
    let (id, command) = (id as i32, command as u32);
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let who = ctx.task.credentials();
    match command {
        IPC_RMID => {
            let ipc = ipc::current();
            let mut segments = ipc.segments.lock();
            let (segment, object) = segments.get(id)?;
            segment.owned_by(&who)?;
            segment.key = IPC_PRIVATE;
            segment.hold = Hold::Attachments(Arc::downgrade(&object));
            drop(segments);
            // If nobody shows it, this is its end.
            drop(object);
            Ok(0)
        }
        IPC_SET => {
            // Of `struct shmid64_ds` only owner, group and mode count.
            let [_key, uid, gid, _cuid, _cgid, mode]: [u32; 6] = uaccess::read(buffer)?;
            let ipc = ipc::current();
            let mut segments = ipc.segments.lock();
            let (segment, _object) = segments.get(id)?;
            segment.owned_by(&who)?;
            segment.owner = (uid, gid);
            segment.mode = mode & 0o777;
            segment.times[2] = now();
            Ok(0)
        }
        IPC_STAT => {
            let (record, object) = {
                let ipc = ipc::current();
                let mut segments = ipc.segments.lock();
                let (segment, object) = segments.get(id)?;
                segment.permits(&who, 4)?;
                (describe(segment, ctx.task), object)
            };
            let mut record = record;
            record[11] = attachments(&object);
            uaccess::write(buffer, &record)?;
            Ok(0)
        }
        // `struct shminfo64`: largest and smallest segment, most segments, of a process, pages in all; four unused.
        IPC_INFO => {
            let most = MAX_SEGMENTS as u64;
            uaccess::write(buffer, &[UNLIMITED, 1, most, most, UNLIMITED, 0, 0, 0, 0])?;
            Ok(ipc::current().segments.lock().by_id.len().saturating_sub(1))
        }
        // `struct shm_info`: segments, pages, pages present, swapped, two unused.
        SHM_INFO => {
            let held: Vec<(Arc<Object>, u64)> = {
                let ipc = ipc::current();
                let segments = ipc.segments.lock();
                segments.by_id.values().filter_map(|segment| Some((segment.hold.object()?, segment.size))).collect()
            };
            let pages = held.iter().map(|(_, size)| size.div_ceil(PAGE)).sum();
            let present = held.iter().map(|(object, _)| object.resident_pages()).sum();
            uaccess::write(buffer, &[held.len() as u64, pages, present, 0, 0, 0])?;
            Ok(held.len().saturating_sub(1))
        }
        SHM_STAT | SHM_STAT_ANY => {
            let (id, mut record, object) = {
                let ipc = ipc::current();
                let mut segments = ipc.segments.lock();
                let id = segments.by_id.keys().nth(id as usize).copied().ok_or(Errno::EINVAL)?;
                let (segment, object) = segments.get(id)?;
                if command == SHM_STAT {
                    segment.permits(&who, 4)?;
                }
                (id, describe(segment, ctx.task), object)
            };
            record[11] = attachments(&object);
            uaccess::write(buffer, &record)?;
            Ok(id as usize)
        }
        // Nothing is ever swapped out.
        SHM_LOCK | SHM_UNLOCK => {
            let ipc = ipc::current();
            let mut segments = ipc.segments.lock();
            segments.get(id)?.0.owned_by(&who)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `struct shmid64_ds` of x86-64 as words: key and uid, gid and creator's uid, creator's gid and mode, sequence, two unused; size; times of
/// attachment, detachment, change; pids of creator and last user; number of attachments (filled in by the caller); two unused.
/// Appends `/proc/sysvipc/shm`: the segments of the current thread's namespace.
pub fn table(text: &mut Text<'_>) {
    text.bytes(b"       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n");
    let ipc = ipc::current();
    let mut segments = ipc.segments.lock();
    let ids: Vec<i32> = segments.by_id.keys().copied().collect();
    for id in ids {
        let Ok((segment, object)) = segments.get(id) else { continue };
        let (record, namespace) =
            sched::with_current(|task| (describe(segment, task), task.credentials().user_namespace));
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let ((_, mode), (creator, last)) = (halves(record[2]), halves(record[10]));
        let (owner, maker) = (segment.owner, segment.creator);
        let (user, group) = (|id| namespace.shown(Ids::Users, id), |id| namespace.shown(Ids::Groups, id));
        let [attached, detached, changed] = segment.times;
        text.put(format_args!(
            "{:>10} {id:>10}  {mode:>4o} {:>21} {creator:>5} {last:>5}  {:>5} {:>5} {:>5} {:>5} {:>5} {attached:>10} {detached:>10} {changed:>10} {:>21} {:>21}\n",
            segment.key,
            segment.size,
            attachments(&object),
            user(owner.0),
            group(owner.1),
            user(maker.0),
            group(maker.1),
            object.resident_pages() * PAGE,
            0,
        ));
    }
}

fn describe(segment: &Segment, asking: &Task) -> [u64; 14] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let removed = matches!(segment.hold, Hold::Attachments(_));
    let mode = segment.mode | if removed { SHM_DEST } else { 0 };
    let mut record = [0; 14];
    record[0] = pair(segment.key as u32, segment.owner.0);
    record[1] = pair(segment.owner.1, segment.creator.0);
    record[2] = pair(segment.creator.1, mode);
    record[6] = segment.size;
    record[7..10].copy_from_slice(&segment.times);
    record[10] = pair(asking.number_of(segment.creator_pid), asking.number_of(segment.last_pid));
    record
}
