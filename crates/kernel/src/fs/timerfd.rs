//! timerfd_create(2): a timer that is read.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::sync::Mutex;

use super::dentry::Dentry;
use super::file::{Body, File, Happened, OpenFlags, Ready};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply};
use super::{poll, superblock};
use crate::errno::Errno;
use crate::process::time_namespace::{self, Counter};
use crate::process::timer::cpu::next_after;
use crate::process::timer::posix::{Reference, TimerSetting};
use crate::sched::WaitQueue;
use crate::sched::timer::{self, Action, Alarmed, TimerId};
use crate::syscall::SysResult;
use crate::time::{monotonic_ns, realtime_ns};

/// What counts its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FdClock {
    /// Since boot.
    Monotonic(Counter),
    /// Since 1970.
    Realtime,
}

/// A timer with a descriptor.
pub struct TimerFd {
    clock: FdClock,
    state: Mutex<State>,
    changed: WaitQueue,
}

#[derive(Default)]
struct State {
    /// When it is next over, nanoseconds of the monotonic clock; `None`: it is off.
    deadline: Option<u64>,
    /// 0: once.
    interval: u64,
    alarm: Option<(TimerId, u64)>,
    /// Expirations since it was read or set.
    expirations: u64,
    /// All of them.
    ever: u64,
}

/// The timer as a file's body.
struct TimerBody(Arc<TimerFd>);

/// Makes one that is off.
pub fn create(clock: FdClock, flags: OpenFlags) -> Arc<File> {
    let inode = Inode::new(superblock::anon_inodes(), Kind::Anonymous, Attributes::new(0o600));
    let dentry = Dentry::nowhere(b"anon_inode:[timerfd]".to_vec(), inode);
    let timer = Arc::new(TimerFd { clock, state: Mutex::default(), changed: WaitQueue::new() });
    File::new(dentry, flags | OpenFlags::READ_WRITE, Box::new(TimerBody(timer)))
}

impl TimerFd {
    /// What is left now.
    pub fn setting(&self) -> TimerSetting {
        let now = monotonic_ns();
        let state = self.state.lock();
        let value = state.deadline.map_or(0, |deadline| deadline.saturating_sub(now).max(1));
        TimerSetting { value, interval: state.interval }
    }

    /// Sets it; returns what was left of the setting before.
    pub fn set(self: &Arc<Self>, setting: TimerSetting, reference: Reference) -> TimerSetting {
        let before = self.setting();
        let now = monotonic_ns();
        let deadline = match (setting.value, reference, self.clock) {
            (0, ..) => None,
            (value, Reference::Now, _) => Some(now.saturating_add(value)),
            (value, Reference::Clock, FdClock::Monotonic(counter)) => Some(time_namespace::meant(counter, value)),
            (value, Reference::Clock, FdClock::Realtime) => {
                Some(now.saturating_add(value.saturating_sub(realtime_ns())))
            }
        };
        let old = {
            let mut state = self.state.lock();
            state.deadline = deadline;
            state.interval = setting.interval;
            state.expirations = 0;
            let old = state.alarm.take();
            self.arm(&mut state);
            old
        };
        if let Some((alarm, _)) = old {
            drop(timer::cancel(alarm));
        }
        before
    }

    /// Puts it into the queue if it is on.
    fn arm(self: &Arc<Self>, state: &mut State) {
        state.alarm = state.deadline.map(|deadline| (timer::add(deadline, Action::Tell(self.clone())), deadline));
    }

    fn take(&self) -> Option<u64> {
        let mut state = self.state.lock();
        (state.expirations > 0).then(|| core::mem::take(&mut state.expirations))
    }
}

impl Alarmed for TimerFd {
    fn expired(self: Arc<Self>) {
        let now = monotonic_ns();
        {
            let mut state = self.state.lock();
            // One that was taken back too late, when it has been set anew already.
            if state.alarm.is_none_or(|(_, deadline)| deadline > now) {
                return;
            }
            let Some(deadline) = state.deadline else { return };
            let next = (state.interval != 0).then(|| next_after(deadline, state.interval, now));
            let expirations = next.map_or(1, |next| (next - deadline) / state.interval);
            state.deadline = next;
            state.expirations += expirations;
            state.ever += expirations;
            self.arm(&mut state);
        }
        self.changed.wake_all();
        poll::notify();
    }
}

impl Drop for TimerBody {
    fn drop(&mut self) {
        let alarm = {
            let mut state = self.0.state.lock();
            state.deadline = None;
            state.alarm.take()
        };
        if let Some((alarm, _)) = alarm {
            drop(timer::cancel(alarm));
        }
    }
}

impl Body for TimerBody {
    fn read(&self, file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        if out.room() < 8 {
            return Err(Errno::EINVAL);
        }
        let expirations = match self.0.take() {
            Some(expirations) => expirations,
            None if file.non_blocking() => return Err(Errno::EAGAIN),
            None => self.0.changed.wait_until(|| self.0.take())?,
        };
        if out.put(&expirations.to_le_bytes()) == 8 { Ok(8) } else { Err(Errno::EFAULT) }
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn ready(&self, _file: &File) -> Ready {
        if self.0.state.lock().expirations > 0 { Ready::READABLE } else { Ready::empty() }
    }

    fn happened(&self, _file: &File) -> Happened {
        Happened { input: self.0.state.lock().ever, output: 0 }
    }

    fn timer(&self) -> Option<&Arc<TimerFd>> {
        Some(&self.0)
    }
}
