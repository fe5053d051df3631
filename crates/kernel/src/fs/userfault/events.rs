//! What a descriptor tells besides faults, where that was agreed on: that watched memory was forked, moved, discarded or unmapped (`UFFD_EVENT_*`).
//! Whoever does that waits until somebody has read of it; meanwhile nobody may fill pages (`EAGAIN`), who might know of old places only.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use foldspace::vma::{VmaFlags, Watcher};
use foldspace::{AddressSpace, PageRange, VirtAddr};

use super::{ALL, EXISTING, MESSAGE_SIZE, Userfault, feature, new_file};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::poll;
use crate::process::Task;
use crate::process::signal::fatal_pending;
use crate::sched;

/// What has happened to watched memory.
#[derive(Clone)]
pub(super) enum Event {
    /// A child has it as well; the descriptor of that.
    Fork(Arc<Userfault>),
    /// `len` bytes are at `to` now.
    Remap { from: u64, to: u64, len: u64 },
    /// Its content is about to go.
    Remove { start: u64, end: u64 },
    /// It is not mapped any more.
    Unmap { start: u64, end: u64 },
}

/// One that nobody has read of.
pub(super) struct Pending {
    serial: u64,
    event: Event,
    /// Who waits for that.
    teller: Arc<Task>,
}

impl Event {
    fn number(&self) -> u8 {
        match self {
            Event::Fork(_) => 0x13,
            Event::Remap { .. } => 0x14,
            Event::Remove { .. } => 0x15,
            Event::Unmap { .. } => 0x16,
        }
    }
}

impl Userfault {
    fn tells(&self, wanted: u64) -> bool {
        self.state.lock().features.unwrap_or(0) & wanted != 0
    }

    /// From here on nobody fills pages, until [`Userfault::tell`] returns.
    fn begin_change(&self) {
        self.changing.fetch_add(1, Ordering::SeqCst);
    }

    fn end_change(&self) {
        self.changing.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until somebody has read of `event`, the descriptor is closed, or the task is to die.
    fn tell(&self, task: &Arc<Task>, event: Event) {
        let serial = {
            let mut state = self.state.lock();
            if state.closed {
                drop(state);
                return self.end_change();
            }
            let serial = state.next_serial;
            state.next_serial += 1;
            state.events.push_back(Pending { serial, event, teller: task.clone() });
            serial
        };
        self.readers.wake_all();
        poll::notify();
        let unread = || self.state.lock().events.iter().any(|pending| pending.serial == serial);
        task.process.resume.wait_uninterruptible(|| (!unread() || fatal_pending(task)).then_some(()));
        let left = {
            let mut state = self.state.lock();
            let at = state.events.iter().position(|pending| pending.serial == serial);
            at.and_then(|at| state.events.remove(at))
        };
        drop(left);
        self.end_change();
    }

    /// The message about the next event; its teller goes on. A fork's descriptor is the reader's from then on.
    pub(super) fn take_event(&self) -> Result<Option<[u8; MESSAGE_SIZE]>, Errno> {
        let Some(Pending { serial, event, teller }) = self.state.lock().events.pop_front() else { return Ok(None) };
        let mut message = [0; MESSAGE_SIZE];
        message[0] = event.number();
        let words = match &event {
            Event::Fork(child) => match give_descriptor(child) {
                Ok(fd) => [u64::from(fd), 0, 0],
                Err(error) => {
                    self.state.lock().events.push_front(Pending { serial, event, teller });
                    return Err(error);
                }
            },
            &Event::Remap { from, to, len } => [from, to, len],
            &Event::Remove { start, end } | &Event::Unmap { start, end } => [start, end, 0],
        };
        for (number, word) in words.into_iter().enumerate() {
            message[8 + 8 * number..16 + 8 * number].copy_from_slice(&word.to_le_bytes());
        }
        teller.process.resume.wake_all();
        Ok(Some(message))
    }

    /// Nobody will read any more.
    pub(super) fn close_events(&self) {
        let events = {
            let mut state = self.state.lock();
            state.closed = true;
            core::mem::take(&mut state.events)
        };
        for pending in events {
            pending.teller.process.resume.wake_all();
        }
    }
}

fn give_descriptor(child: &Arc<Userfault>) -> Result<u32, Errno> {
    let task = sched::current();
    let file = new_file(child.clone(), child.inherited);
    let limit = task.process.limits.lock().soft(linux_raw_sys::general::RLIMIT_NOFILE) as usize;
    let at_exec = AtExec::Close;
    Ok(task.files.lock().insert_from(0, limit, file, at_exec)? as u32)
}

/// The descriptors that watch something in `range`, and want to be told of `wanted`.
#[cold]
fn concerned(space: &AddressSpace, range: PageRange, wanted: u64) -> Vec<(Arc<Userfault>, PageRange)> {
    let mut found = Vec::new();
    let watched: Vec<(Watcher, PageRange)> = {
        let version = space.vmas();
        let vmas = version.view().range(range).filter(|vma| vma.flags.intersects(VmaFlags::WATCHED));
        vmas.filter_map(|vma| Some((vma.tag.watcher(), vma.range.intersect(range)?))).collect()
    };
    for (watcher, part) in watched {
        let userfault = ALL.lock().get(&watcher.0).and_then(alloc::sync::Weak::upgrade);
        if let Some(userfault) = userfault.filter(|userfault| userfault.tells(wanted)) {
            found.push((userfault, part));
        }
    }
    found
}

/// Whether there are descriptors at all: what all that maps and forks is asked first.
#[inline]
fn exist() -> bool {
    // Relaxed: a descriptor that is just being made watches nothing yet.
    EXISTING.load(Ordering::Relaxed) != 0
}

/// Whether anything in the caller's memory is watched.
#[inline]
fn some_watched() -> bool {
    exist() && sched::with_space(|space| space.some_have(VmaFlags::WATCHED)) == Some(true)
}

/// Tells that the content of what is watched in `start..start + len` is about to be discarded (`userfaultfd_remove`).
pub fn before_removal(task: &Arc<Task>, start: u64, len: u64) {
    if !some_watched() {
        return;
    }
    let Some(range) = whole(start, len) else { return };
    for (userfault, part) in concerned(&task.space(), range, feature::EVENT_REMOVE) {
        userfault.begin_change();
        userfault.tell(task, Event::Remove { start: part.start().get(), end: part.end().get() });
    }
}

fn whole(start: u64, len: u64) -> Option<PageRange> {
    let end = start.checked_add(len).and_then(|end| VirtAddr(end).page_ceil())?.min(foldspace::addr::USER_END);
    PageRange::new(VirtAddr(start).page_floor(), end)
}

/// Who is to be told of what is about to be unmapped in `start..start + len`; they know that it has begun.
#[must_use]
pub struct Unmapping {
    task: Arc<Task>,
    range: PageRange,
    watchers: Vec<Arc<Userfault>>,
}

impl Unmapping {
    /// `None` if nobody is to be told.
    #[inline]
    pub fn begin(task: &Arc<Task>, start: u64, len: u64) -> Option<Unmapping> {
        if some_watched() { Unmapping::begin_watched(task, start, len) } else { None }
    }

    /// The same for what lies above a new end of the heap.
    #[inline]
    pub fn begin_heap(task: &Arc<Task>, end: u64) -> Option<Unmapping> {
        if !some_watched() {
            return None;
        }
        let before = task.space().with_layout(|layout| layout.brk.get());
        let end = VirtAddr(end).page_ceil()?.get();
        Unmapping::begin_watched(task, end, before.checked_sub(end).filter(|&len| len > 0)?)
    }

    /// Only what lies from `start` on, after all.
    pub fn only_from(mut self, start: u64) -> Unmapping {
        if let Some(range) = VirtAddr(start).page_ceil().and_then(|start| PageRange::new(start, self.range.end())) {
            self.range = range;
        }
        self
    }

    #[cold]
    fn begin_watched(task: &Arc<Task>, start: u64, len: u64) -> Option<Unmapping> {
        let range = whole(start, len)?;
        let mut watchers = Vec::<Arc<Userfault>>::new();
        for (userfault, _) in concerned(&task.space(), range, feature::EVENT_UNMAP) {
            if !watchers.iter().any(|known| Arc::ptr_eq(known, &userfault)) {
                userfault.begin_change();
                watchers.push(userfault);
            }
        }
        Some(Unmapping { task: task.clone(), range, watchers })
    }

    /// It is unmapped: tells them. Or, dropped instead, it was not.
    pub fn done(mut self) {
        for userfault in core::mem::take(&mut self.watchers) {
            let event = Event::Unmap { start: self.range.start().get(), end: self.range.end().get() };
            userfault.tell(&self.task, event);
        }
    }
}

impl Drop for Unmapping {
    fn drop(&mut self) {
        for userfault in &self.watchers {
            userfault.end_change();
        }
    }
}

/// Who is to be told that what starts at `from` moves.
#[must_use]
pub struct Moving {
    task: Arc<Task>,
    from: u64,
    watcher: Option<Arc<Userfault>>,
}

impl Moving {
    /// `None` if nobody is to be told.
    #[inline]
    pub fn begin(task: &Arc<Task>, from: u64) -> Option<Moving> {
        if some_watched() { Moving::begin_watched(task, from) } else { None }
    }

    #[cold]
    fn begin_watched(task: &Arc<Task>, from: u64) -> Option<Moving> {
        let page = PageRange::page_of(VirtAddr(from))?;
        let (watcher, _) = concerned(&task.space(), page, feature::EVENT_REMAP).pop()?;
        watcher.begin_change();
        Some(Moving { task: task.clone(), from, watcher: Some(watcher) })
    }

    /// It is at `to` now.
    pub fn done(mut self, to: u64, len: u64) {
        if to != self.from
            && let Some(watcher) = self.watcher.take()
        {
            watcher.tell(&self.task, Event::Remap { from: self.from, to, len });
        }
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        if let Some(watcher) = &self.watcher {
            watcher.end_change();
        }
    }
}

/// The descriptors that go on in a child, and those that they come from.
#[must_use]
pub struct Forking {
    heirs: Vec<(Arc<Userfault>, Arc<Userfault>)>,
}

impl Forking {
    /// Before the fork. `None` if nobody is to be told.
    #[inline]
    pub fn begin(space: &AddressSpace) -> Option<Forking> {
        if exist() && space.some_have(VmaFlags::WATCHED) { Forking::begin_watched(space) } else { None }
    }

    #[cold]
    fn begin_watched(space: &AddressSpace) -> Option<Forking> {
        let everything = PageRange::new(VirtAddr(0), foldspace::addr::USER_END)?;
        let mut heirs = Vec::<(Arc<Userfault>, Arc<Userfault>)>::new();
        for (userfault, _) in concerned(space, everything, feature::EVENT_FORK) {
            if !heirs.iter().any(|(known, _)| Arc::ptr_eq(known, &userfault)) {
                let heir = userfault.heir();
                userfault.begin_change();
                heirs.push((userfault, heir));
            }
        }
        (!heirs.is_empty()).then_some(Forking { heirs })
    }

    /// Who watches in the child what `watcher` watches.
    pub fn heir(&self, watcher: Watcher) -> Watcher {
        let found = self.heirs.iter().find(|(of, _)| of.watcher == watcher);
        found.map_or(Watcher::NOBODY, |(_, heir)| heir.watcher)
    }

    /// There is a child.
    pub fn made(&self, child: &Arc<AddressSpace>) {
        for (_, heir) in &self.heirs {
            heir.set_space(child);
        }
    }

    /// Everything about the child is done: tells them.
    pub fn done(mut self, task: &Arc<Task>) {
        for (userfault, heir) in core::mem::take(&mut self.heirs) {
            userfault.tell(task, Event::Fork(heir));
        }
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        for (userfault, _) in &self.heirs {
            userfault.end_change();
        }
    }
}
