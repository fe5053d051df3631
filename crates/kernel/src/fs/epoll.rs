//! epoll(7): a set of files that are watched.
//!
//! Files do not keep lists of who watches them: whoever waits looks at the set again when something was announced ([`poll::notify`]). Files count what
//! happens to them ([`Body::happened`]), so a watch that wants each change once (`EPOLLET`) compares counts.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use crate::sync::Mutex;
use linux_raw_sys::general as raw;

use super::dentry::Dentry;
use super::file::{Body, File, Happened, OpenFlags, Ready};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply};
use super::poll::{self, Changes};
use super::superblock;
use crate::errno::Errno;
use crate::syscall::SysResult;

/// Most sets that watch each other in a chain (`EP_MAX_NESTS`).
const MAX_NESTING: usize = 4;

/// Bits of a watch that are no readiness.
const OPTIONS: u32 = raw::EPOLLET | raw::EPOLLONESHOT | raw::EPOLLWAKEUP | raw::EPOLLEXCLUSIVE;

/// What a program wants to know of a file.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// `EPOLL*`.
    pub events: u32,
    /// Returned as it is.
    pub data: u64,
}

/// A file in a set. It is in it until the open file is gone, whatever becomes of its numbers.
#[derive(Clone)]
struct Item {
    fd: i32,
    file: Weak<File>,
    watch: Watch,
    /// What was so when it was last reported; `None`: it is to be reported when it is ready.
    reported: Option<Happened>,
    /// What it was ready for when it was last looked at.
    was_ready: Ready,
    /// `EPOLLONESHOT` and reported.
    spent: bool,
}

/// A set.
pub struct Epoll {
    /// In the order in which they are to be reported: one that was goes to the end.
    items: Mutex<VecDeque<Item>>,
}

/// Makes an empty one.
pub fn create() -> Arc<File> {
    let inode = Inode::new(superblock::anon_inodes(), Kind::Anonymous, Attributes::new(0o600));
    let dentry = Dentry::nowhere(b"anon_inode:[eventpoll]".to_vec(), inode);
    File::new(dentry, OpenFlags::READ_WRITE, Box::new(Epoll { items: Mutex::new(VecDeque::new()) }))
}

/// Whether a file can be waited for at all. What is always ready, as regular files are, is refused.
pub fn is_watchable(file: &File) -> bool {
    /// The devices for memory, of which the two of random numbers and the kernel's log can be waited for.
    const MEMORY: u32 = 1;
    match file.inode().kind {
        Kind::Regular(_) | Kind::Directory | Kind::Symlink(_) | Kind::Proc(_) => false,
        Kind::Character(device) => device.major() != MEMORY || matches!(device.minor(), 8 | 9 | 11),
        _ => true,
    }
}

impl Epoll {
    /// The file that was added by the number `fd`, which several may have been: that after `offset` others (`get_epoll_tfile_raw_ptr`).
    pub fn target(&self, fd: i32, offset: usize) -> Option<Arc<File>> {
        let items = self.items.lock();
        let mut found = items.iter().filter(|item| item.fd == fd).filter_map(|item| item.file.upgrade());
        found.nth(offset)
    }
}

impl Item {
    fn is(&self, fd: i32, file: &Arc<File>) -> bool {
        self.fd == fd && core::ptr::eq(self.file.as_ptr(), Arc::as_ptr(file))
    }

    fn interest(&self) -> Ready {
        let always = Ready::ERROR | Ready::HANG_UP;
        Ready::from_bits_retain((self.watch.events & !OPTIONS) as u16) | always
    }

    /// What is to be reported now.
    fn look(&mut self, file: &File) -> Ready {
        let ready = if self.spent { return Ready::empty() } else { file.body.ready(file) & self.interest() };
        let news = self.news(file, ready);
        self.was_ready = ready;
        news
    }

    /// What of what the file is ready for is to be reported.
    fn news(&self, file: &File, ready: Ready) -> Ready {
        let appeared = !(ready - self.was_ready).is_empty();
        if ready.is_empty() || self.watch.events & raw::EPOLLET == 0 {
            return ready;
        }
        let happened = file.body.happened(file);
        let is_news = self.reported.is_none_or(|before| {
            let input = ready.intersects(Ready::READABLE | Ready::HANG_UP | Ready::READ_HANG_UP | Ready::ERROR);
            let output = ready.intersects(Ready::WRITABLE | Ready::HANG_UP | Ready::ERROR);
            appeared || input && before.input != happened.input || output && before.output != happened.output
        });
        if is_news { ready } else { Ready::empty() }
    }

    fn told(&mut self, file: &File) {
        self.reported = Some(file.body.happened(file));
        self.spent = self.watch.events & raw::EPOLLONESHOT != 0;
    }
}

impl Epoll {
    /// Adds a file. `EEXIST`; `ELOOP`: sets would watch each other in a circle, or too deeply.
    pub fn add(&self, fd: i32, file: &Arc<File>, watch: Watch) -> Result<(), Errno> {
        /// Who puts a set into a set: two at once could make a circle that neither sees.
        static NESTING: Mutex<()> = Mutex::new(());
        let inner = file.body.epoll();
        let _nesting = inner.map(|_| NESTING.lock());
        if let Some(inner) = inner
            && inner.reaches(self, MAX_NESTING)?
        {
            return Err(Errno::ELOOP);
        }
        {
            let mut items = self.items.lock();
            if items.iter().any(|item| item.is(fd, file)) {
                return Err(Errno::EEXIST);
            }
            items.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            let file = Arc::downgrade(file);
            items.push_back(Item { fd, file, watch, reported: None, was_ready: Ready::empty(), spent: false });
        }
        poll::notify();
        Ok(())
    }

    /// Changes what is wanted of a file. `ENOENT`; `EINVAL` for one that is watched exclusively.
    pub fn modify(&self, fd: i32, file: &Arc<File>, watch: Watch) -> Result<(), Errno> {
        {
            let mut items = self.items.lock();
            let item = items.iter_mut().find(|item| item.is(fd, file)).ok_or(Errno::ENOENT)?;
            if item.watch.events & raw::EPOLLEXCLUSIVE != 0 {
                return Err(Errno::EINVAL);
            }
            (item.watch, item.reported, item.spent) = (watch, None, false);
        }
        poll::notify();
        Ok(())
    }

    /// Takes a file out. `ENOENT`.
    pub fn remove(&self, fd: i32, file: &Arc<File>) -> Result<(), Errno> {
        let mut items = self.items.lock();
        let position = items.iter().position(|item| item.is(fd, file)).ok_or(Errno::ENOENT)?;
        items.remove(position);
        Ok(())
    }

    /// The sets that are in this one.
    fn inner(&self) -> Vec<Arc<File>> {
        let items = self.items.lock();
        items.iter().filter_map(|item| item.file.upgrade()).filter(|file| file.body.epoll().is_some()).collect()
    }

    /// Whether it is `other`, or has it in it at any depth. `ELOOP` if sets are nested more deeply than `levels`.
    fn reaches(&self, other: &Epoll, levels: usize) -> Result<bool, Errno> {
        if core::ptr::eq(self, other) {
            return Ok(true);
        }
        let below = levels.checked_sub(1).ok_or(Errno::ELOOP)?;
        for file in self.inner() {
            if let Some(set) = file.body.epoll()
                && set.reaches(other, below)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next that are ready, up to `most`; they count as reported.
    fn collect(&self, most: usize) -> Vec<Watch> {
        let mut found = Vec::new();
        // Files may be let go of here last: not under the lock.
        let mut held = Vec::new();
        {
            let mut items = self.items.lock();
            items.retain(|item| item.file.strong_count() > 0);
            for _ in 0..items.len() {
                if found.len() == most {
                    break;
                }
                let Some(mut item) = items.pop_front() else { break };
                if let Some(file) = item.file.upgrade() {
                    let ready = item.look(&file);
                    if !ready.is_empty() && found.try_reserve(1).is_ok() {
                        item.told(&file);
                        found.push(Watch { events: u32::from(ready.bits()), data: item.watch.data });
                    }
                    held.push(file);
                }
                items.push_back(item);
            }
        }
        drop(held);
        found
    }

    fn any_ready(&self) -> bool {
        let files: Vec<(Arc<File>, Item)> = {
            let items = self.items.lock();
            let live = items.iter().filter(|item| !item.spent);
            live.filter_map(|item| Some((item.file.upgrade()?, item.clone()))).collect()
        };
        files.iter().any(|(file, item)| !item.news(file, file.body.ready(file) & item.interest()).is_empty())
    }

    fn changes(&self) -> Changes {
        let items = self.items.lock();
        let unannounced = |item: &Item| item.file.upgrade().is_some_and(|file| file.body.changes_unannounced());
        if items.iter().any(unannounced) { Changes::Unannounced } else { Changes::Announced }
    }

    /// Waits until something is ready, or a moment of the monotonic clock: nothing then.
    ///
    /// # Errors
    /// `EINTR`: a signal.
    pub fn wait(&self, most: usize, deadline: Option<u64>) -> Result<Vec<Watch>, Errno> {
        let look = || Some(self.collect(most)).filter(|found| !found.is_empty());
        let found = poll::wait_until(deadline, self.changes(), look).map_err(|_| Errno::EINTR)?;
        Ok(found.unwrap_or_default())
    }
}

impl Body for Epoll {
    fn read(&self, _file: &File, _at: Option<u64>, _out: &mut dyn Sink) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn ready(&self, _file: &File) -> Ready {
        if self.any_ready() { Ready::READABLE } else { Ready::empty() }
    }

    fn changes_unannounced(&self) -> bool {
        self.changes() == Changes::Unannounced
    }

    fn epoll(&self) -> Option<&Epoll> {
        Some(self)
    }
}
