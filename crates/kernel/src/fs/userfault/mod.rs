//! userfaultfd(2): faults that a program answers. The manager says that an access is its watcher's to answer ([`Fault::Watched`]); here the thread
//! waits, a message is there to be read, and a request (`requests.rs`) fills the page and lets the thread go on.
//!
//! ```text
//!   thread                          descriptor                        whoever reads it
//!   fault: Watched ──► waiting ───► message ───────────────────────► read
//!        sleeps                                                       UFFDIO_COPY: the page is filled, whoever waits for it is woken
//!   tries again  ◄───────────────────────────────────────────────────
//! ```
//!
//! A thread whose system call finds such memory does not wait in the middle of it, where it may hold locks: the call gives up with `EFAULT`, the thread
//! waits at its end, and the call is made once more ([`note_kernel_access`], [`retry_call`]).

pub mod events;
mod requests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU32, Ordering};

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Access, Fault, Protection, Watched};
use foldspace::vma::{VmaFlags, Watcher};
use foldspace::{AddressSpace, PageRange, VirtAddr};

use crate::arch::TrapFrame;
use crate::errno::Errno;
use crate::fs::dentry::Dentry;
use crate::fs::file::{Body, File, OpenFlags, Ready};
use crate::fs::inode::{Attributes, Inode, Kind};
use crate::fs::io::{Sink, Supply};
use crate::fs::{poll, superblock};
use crate::process::Task;
use crate::sched::{self, WaitQueue};
use crate::sync::Mutex;
use crate::syscall::SysResult;

/// `UFFD_FEATURE_*` that there are.
mod feature {
    pub const PAGEFAULT_FLAG_WP: u64 = 1 << 0;
    pub const EVENT_FORK: u64 = 1 << 1;
    pub const EVENT_REMAP: u64 = 1 << 2;
    pub const EVENT_REMOVE: u64 = 1 << 3;
    /// There are no huge pages, so that all of them are watched.
    pub const MISSING_HUGE: u64 = 1 << 4;
    pub const MISSING_SHMEM: u64 = 1 << 5;
    pub const EVENT_UNMAP: u64 = 1 << 6;
    pub const SIGBUS: u64 = 1 << 7;
    pub const THREAD_ID: u64 = 1 << 8;
    pub const MINOR_HUGE: u64 = 1 << 9;
    pub const MINOR_SHMEM: u64 = 1 << 10;
    pub const EXACT_ADDRESS: u64 = 1 << 11;
    pub const WP_SHMEM: u64 = 1 << 12;
    pub const WP_UNPOPULATED: u64 = 1 << 13;
    pub const POISON: u64 = 1 << 14;
    pub const WP_ASYNC: u64 = 1 << 15;
    pub const MOVE: u64 = 1 << 16;
    const EVENTS: u64 = EVENT_FORK | EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP;
    const KINDS: u64 = MISSING_HUGE | MISSING_SHMEM | MINOR_HUGE | MINOR_SHMEM | WP_SHMEM;
    const DETAILS: u64 = SIGBUS | THREAD_ID | EXACT_ADDRESS | WP_UNPOPULATED | WP_ASYNC;
    pub const ALL: u64 = PAGEFAULT_FLAG_WP | EVENTS | KINDS | DETAILS | POISON | MOVE;
}

/// `UFFD_EVENT_PAGEFAULT`, and the flags of its message.
const EVENT_PAGEFAULT: u8 = 0x12;
const FLAG_WRITE: u64 = 1;
const FLAG_WP: u64 = 2;
const FLAG_MINOR: u64 = 4;
/// Bytes of `struct uffd_msg`.
const MESSAGE_SIZE: usize = 32;

/// `/proc/sys/vm/unprivileged_userfaultfd`.
pub static UNPRIVILEGED: AtomicU32 = AtomicU32::new(0);

/// Whose faults are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accesses {
    /// Also those that the kernel makes for the program.
    All,
    /// Only the program's own (`UFFD_USER_MODE_ONLY`).
    UserMode,
}

/// A thread that waits.
struct Waiting {
    serial: u64,
    address: u64,
    flags: u64,
    thread: u32,
}

#[derive(Default)]
struct State {
    /// Features that were agreed on, once they were.
    features: Option<u64>,
    next_serial: u64,
    /// Nobody has read of them.
    unread: VecDeque<Waiting>,
    /// Somebody has.
    read: VecDeque<Waiting>,
    /// What has happened, and nobody has read of yet.
    events: VecDeque<events::Pending>,
    /// Nobody reads any more.
    closed: bool,
}

/// One descriptor.
pub struct Userfault {
    watcher: Watcher,
    /// Whose memory it is about.
    space: Mutex<Weak<AddressSpace>>,
    /// What a child's descriptor has of its file's flags.
    inherited: OpenFlags,
    accesses: Accesses,
    state: Mutex<State>,
    /// How many are changing watched memory, and have not told of it.
    changing: AtomicU32,
    /// Those who read.
    readers: WaitQueue,
    /// Those who wait for a page.
    waiters: WaitQueue,
}

/// All of them, by their numbers as watchers.
static ALL: Mutex<BTreeMap<u32, Weak<Userfault>>> = Mutex::new(BTreeMap::new());

/// How many there are.
static EXISTING: AtomicU32 = AtomicU32::new(0);

struct UserfaultBody(Arc<Userfault>);

/// Makes one for the memory of `task`.
pub fn create(task: &Task, accesses: Accesses, flags: OpenFlags) -> Arc<File> {
    let inherited = flags & OpenFlags::NON_BLOCKING;
    new_file(Userfault::new(Arc::downgrade(&task.space()), accesses, inherited, State::default()), flags)
}

fn new_file(userfault: Arc<Userfault>, flags: OpenFlags) -> Arc<File> {
    let inode = Inode::new(superblock::anon_inodes(), Kind::Anonymous, Attributes::new(0o600));
    let dentry = Dentry::nowhere(b"anon_inode:[userfaultfd]".to_vec(), inode);
    File::new(dentry, flags, Box::new(UserfaultBody(userfault)))
}

impl Drop for UserfaultBody {
    fn drop(&mut self) {
        let userfault = &self.0;
        ALL.lock().remove(&userfault.watcher.0);
        // Out of memory for it, the areas keep a watcher that nobody is, which is as good as none: see `wait`.
        userfault.close_events();
        let space = userfault.space.lock().upgrade();
        if let Some((space, all)) = space.zip(PageRange::new(VirtAddr(0), foldspace::addr::USER_END))
            && space.some_have(VmaFlags::WATCHED)
        {
            let _ = space.unwatch(all, userfault.watcher);
        }
        userfault.wake(0, u64::MAX);
    }
}

/// How a wait for a page ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The access is to be tried again.
    Again,
    /// It is an error: `SIGBUS`.
    Refused,
    /// A signal came first.
    Interrupted,
}

/// Who made the access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The program.
    Program,
    /// The kernel for it.
    Kernel,
}

/// Lets the current thread, whose access to `address` is `watcher`'s to answer, wait until it may be tried again.
pub fn wait(task: &Task, watcher: Watcher, kind: Watched, address: u64, access: Access, by: By) -> Outcome {
    let found = ALL.lock().get(&watcher.0).and_then(Weak::upgrade);
    let Some(userfault) = found else {
        // It has been closed, and there was no memory to say so in the areas.
        let _ = PageRange::page_of(VirtAddr(address)).map(|page| task.space().unwatch(page, watcher));
        return Outcome::Again;
    };
    userfault.wait(task, kind, address, access, by)
}

impl Drop for Userfault {
    /// One for a child that nobody has read of: as if it had been closed.
    fn drop(&mut self) {
        ALL.lock().remove(&self.watcher.0);
        EXISTING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Userfault {
    fn new(space: Weak<AddressSpace>, accesses: Accesses, inherited: OpenFlags, state: State) -> Arc<Userfault> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let watcher = Watcher(NEXT.fetch_add(1, Ordering::Relaxed));
        let userfault = Arc::new(Userfault {
            watcher,
            space: Mutex::new(space),
            inherited,
            accesses,
            state: Mutex::new(state),
            changing: AtomicU32::new(0),
            readers: WaitQueue::new(),
            waiters: WaitQueue::new(),
        });
        EXISTING.fetch_add(1, Ordering::Relaxed);
        ALL.lock().insert(watcher.0, Arc::downgrade(&userfault));
        userfault
    }

    /// One for a child, of the same kind.
    fn heir(&self) -> Arc<Userfault> {
        let features = self.state.lock().features;
        Userfault::new(Weak::new(), self.accesses, self.inherited, State { features, ..State::default() })
    }

    fn set_space(&self, space: &Arc<AddressSpace>) {
        *self.space.lock() = Arc::downgrade(space);
    }

    fn wait(&self, task: &Task, kind: Watched, address: u64, access: Access, by: By) -> Outcome {
        if by == By::Kernel && self.accesses == Accesses::UserMode {
            return Outcome::Refused;
        }
        let write = if access == Access::Write { FLAG_WRITE } else { 0 };
        let flags = write
            | match kind {
                Watched::Missing => 0,
                Watched::Unmapped => FLAG_MINOR,
                Watched::WriteProtected => FLAG_WP,
            };
        let serial = {
            let mut state = self.state.lock();
            let features = state.features.unwrap_or(0);
            if kind == Watched::WriteProtected && features & feature::WP_ASYNC != 0 {
                drop(state);
                return lift_protection(task, address);
            }
            if features & feature::SIGBUS != 0 {
                return Outcome::Refused;
            }
            let address = if features & feature::EXACT_ADDRESS != 0 { address } else { address & !(PAGE_SIZE - 1) };
            let thread = if features & feature::THREAD_ID != 0 { task.own_number() } else { 0 };
            let serial = state.next_serial;
            state.next_serial += 1;
            state.unread.push_back(Waiting { serial, address, flags, thread });
            serial
        };
        // It may have been answered before anybody could know that we wait.
        let still = sched::with_space(|space| space.fault(VirtAddr(address), access));
        if matches!(still, Some(Err(Fault::Watched { .. }))) {
            self.readers.wake_all();
            poll::notify();
            let waited = self.waiters.wait_until(|| (!self.state.lock().is_waiting(serial)).then_some(()));
            if waited.is_ok() {
                return Outcome::Again;
            }
            self.state.lock().forget(serial);
            return Outcome::Interrupted;
        }
        self.state.lock().forget(serial);
        Outcome::Again
    }

    /// Lets those go on that wait for something in `start..end`.
    fn wake(&self, start: u64, end: u64) {
        {
            let mut state = self.state.lock();
            let outside = |waiting: &Waiting| !(start..end).contains(&waiting.address);
            state.unread.retain(outside);
            state.read.retain(outside);
        }
        self.waiters.wake_all();
    }

    /// The next message: of a fault, or of an event.
    fn take_any(&self) -> Result<Option<[u8; MESSAGE_SIZE]>, Errno> {
        match self.take() {
            Some(message) => Ok(Some(message)),
            None => self.take_event(),
        }
    }

    /// The next message of a fault.
    fn take(&self) -> Option<[u8; MESSAGE_SIZE]> {
        let mut state = self.state.lock();
        let waiting = state.unread.pop_front()?;
        let mut message = [0; MESSAGE_SIZE];
        message[0] = EVENT_PAGEFAULT;
        message[8..16].copy_from_slice(&waiting.flags.to_le_bytes());
        message[16..24].copy_from_slice(&waiting.address.to_le_bytes());
        message[24..28].copy_from_slice(&waiting.thread.to_le_bytes());
        state.read.push_back(waiting);
        Some(message)
    }
}

impl State {
    fn is_readable(&self) -> bool {
        !self.unread.is_empty() || !self.events.is_empty()
    }

    fn is_waiting(&self, serial: u64) -> bool {
        self.unread.iter().chain(&self.read).any(|waiting| waiting.serial == serial)
    }

    fn forget(&mut self, serial: u64) {
        self.unread.retain(|waiting| waiting.serial != serial);
        self.read.retain(|waiting| waiting.serial != serial);
    }
}

impl Body for UserfaultBody {
    fn read(&self, file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let userfault = &self.0;
        if userfault.state.lock().features.is_none() {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        while out.room() >= MESSAGE_SIZE {
            let message = match userfault.take_any() {
                Ok(Some(message)) => message,
                Ok(None) | Err(_) if done > 0 => break,
                Err(error) => return Err(error),
                Ok(None) if file.non_blocking() => return Err(Errno::EAGAIN),
                Ok(None) => {
                    userfault.readers.wait_until(|| userfault.state.lock().is_readable().then_some(()))?;
                    continue;
                }
            };
            if out.put(&message) < MESSAGE_SIZE {
                return Err(Errno::EFAULT);
            }
            done += MESSAGE_SIZE;
        }
        if done == 0 { Err(Errno::EINVAL) } else { Ok(done) }
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn ready(&self, file: &File) -> Ready {
        let state = self.0.state.lock();
        // A read could wait, so a descriptor that waits cannot be polled (`userfaultfd_poll`).
        if state.features.is_none() || !file.non_blocking() {
            return Ready::ERROR;
        }
        if state.is_readable() { Ready::READABLE } else { Ready::empty() }
    }

    fn ioctl(&self, _task: &Task, _file: &File, request: u32, argument: u64) -> SysResult {
        self.0.request(request, argument)
    }
}

/// With `UFFD_FEATURE_WP_ASYNC` nobody is asked: that a page is protected no more is what tells of the store.
fn lift_protection(task: &Task, address: u64) -> Outcome {
    let page = PageRange::page_of(VirtAddr(address).page_floor());
    // Out of memory, it is tried again, as any fault.
    let _ = page.map(|page| task.space().protect_watched(page, Protection::None));
    Outcome::Again
}

/// An access that the kernel was to make for the current program failed: if it is a watcher's to answer, that is remembered for the end of the call.
#[cold]
pub fn note_kernel_access(address: u64, access: Access) {
    let watched = sched::with_space(|space| {
        space.some_have(VmaFlags::WATCHED)
            && matches!(space.fault(VirtAddr(address), access), Err(Fault::Watched { .. }))
    });
    if watched == Some(true) {
        let write = u64::from(access == Access::Write);
        sched::with_current(|task| {
            task.awaited_access.store(address << 1 | write, Ordering::Relaxed);
            task.awaited_by.store(name_of_call(task.thread.frame()), Ordering::Relaxed);
        });
    }
}

/// Tells a system call from others that a thread makes before and after it.
fn name_of_call(frame: &TrapFrame) -> u64 {
    frame.rip
        ^ frame.orig_rax.rotate_left(13)
        ^ frame.rdi.rotate_left(26)
        ^ frame.rsi.rotate_left(39)
        ^ frame.rdx.rotate_left(52)
}

/// What a system call that failed with `EFAULT` found in its way.
pub fn retry_call(task: &Task, frame: &TrapFrame) -> Outcome {
    let noted = task.awaited_access.swap(0, Ordering::Relaxed);
    if noted == 0 || task.awaited_by.load(Ordering::Relaxed) != name_of_call(frame) {
        return Outcome::Refused;
    }
    let (address, access) = (noted >> 1, if noted & 1 == 1 { Access::Write } else { Access::Read });
    match sched::with_space(|space| space.fault(VirtAddr(address), access)) {
        Some(Err(Fault::Watched { watcher, kind })) => wait(task, watcher, kind, address, access, By::Kernel),
        Some(Ok(())) => Outcome::Again,
        _ => Outcome::Refused,
    }
}
