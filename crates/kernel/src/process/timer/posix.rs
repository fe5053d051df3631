//! `timer_create` and its like (timer_create(2), Linux's `kernel/time/posix-timers.c`).

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};

use crate::sync::Mutex;

use super::cpu::{self, Whose, next_after};
use crate::errno::Errno;
use crate::process::signal::info::code;
use crate::process::signal::{SigInfo, Signal, send};
use crate::process::time_namespace::{self, Counter};
use crate::process::{Process, Task};
use crate::sched::timer::{self, Action, Alarmed, TimerId};
use crate::time::{monotonic_ns, realtime_ns};

/// What counts a timer's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerClock {
    /// Since boot.
    Monotonic(Counter),
    /// Since 1970.
    Realtime,
    /// Processor time.
    Cpu(Whose),
}

/// Who is told.
pub enum Receiver {
    /// Nobody (`SIGEV_NONE`).
    Nobody,
    /// The process.
    Process(Signal),
    /// One of its threads (`SIGEV_THREAD_ID`).
    Thread(Signal, Weak<Task>),
}

/// A timer.
pub struct PosixTimer {
    id: i32,
    clock: TimerClock,
    receiver: Receiver,
    value: u64,
    process: Weak<Process>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When it is next over, in nanoseconds of its clock (of the monotonic one for real time); `None`: it is off.
    deadline: Option<u64>,
    /// 0: once.
    interval: u64,
    /// In the queue of timers, and for when; not for processor time.
    alarm: Option<(TimerId, u64)>,
    /// Its signal was sent and not yet delivered.
    sent: bool,
    /// Expirations since that signal was sent.
    missed: u64,
    /// What the last signal that was delivered was told of those.
    overrun: u64,
}

/// What is left, and how it goes on. Nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerSetting {
    /// Until it is over (from now on, or the moment, as the call says); 0: never.
    pub value: u64,
    /// Between one and the next; 0: once.
    pub interval: u64,
}

/// Most that an overrun is reported as (`DELAYTIMER_MAX`).
const DELAY_MAX: u64 = i32::MAX as u64;

/// The timers of a process.
#[derive(Default)]
pub struct PosixTimers {
    by_id: BTreeMap<i32, Arc<PosixTimer>>,
    next: i32,
}

/// Makes one; returns its number.
///
/// # Errors
/// `EAGAIN`: there are as many as there may be.
pub fn create(
    process: &Arc<Process>,
    clock: TimerClock,
    receiver: impl FnOnce(i32) -> (Receiver, u64),
) -> Result<i32, Errno> {
    /// A stand-in for `RLIMIT_SIGPENDING`, which bounds them on Linux.
    const LIMIT: usize = 8192;
    let mut timers = process.posix_timers.lock();
    if timers.by_id.len() >= LIMIT {
        return Err(Errno::EAGAIN);
    }
    let mut id = timers.next;
    while timers.by_id.contains_key(&id) {
        id = id.checked_add(1).unwrap_or(0);
    }
    timers.next = id.checked_add(1).unwrap_or(0);
    let (receiver, value) = receiver(id);
    let state = Mutex::default();
    let timer = PosixTimer { id, clock, receiver, value, process: Arc::downgrade(process), state };
    timers.by_id.insert(id, Arc::new(timer));
    Ok(id)
}

/// The timer of that number: `EINVAL`.
pub fn find(process: &Process, id: i32) -> Result<Arc<PosixTimer>, Errno> {
    process.posix_timers.lock().by_id.get(&id).cloned().ok_or(Errno::EINVAL)
}

/// Takes one away: `EINVAL`.
pub fn delete(process: &Process, id: i32) -> Result<(), Errno> {
    let timer = process.posix_timers.lock().by_id.remove(&id).ok_or(Errno::EINVAL)?;
    timer.disarm(process);
    Ok(())
}

/// Takes all away (exec, the end).
pub fn delete_all(process: &Process) {
    let all = core::mem::take(&mut process.posix_timers.lock().by_id);
    for timer in all.values() {
        timer.disarm(process);
    }
}

/// Completes the siginfo of a timer's signal that is being delivered: how many were missed.
pub fn delivered(process: &Process, info: &mut SigInfo) {
    if info.code != code::SI_TIMER {
        return;
    }
    let Ok(timer) = find(process, info.timer_id()) else { return };
    let mut state = timer.state.lock();
    state.sent = false;
    state.overrun = core::mem::take(&mut state.missed).min(DELAY_MAX);
    info.set_overrun(state.overrun as i32);
}

impl PosixTimer {
    /// Its clock's time.
    fn now(&self) -> u64 {
        match self.clock {
            TimerClock::Monotonic(_) | TimerClock::Realtime => monotonic_ns(),
            TimerClock::Cpu(whose) => self.process.upgrade().and_then(|process| cpu::now(&process, whose)).unwrap_or(0),
        }
    }

    /// A moment of the clock that a program means, as [`State::deadline`] has it.
    fn moment(&self, value: u64) -> u64 {
        match self.clock {
            TimerClock::Monotonic(counter) => time_namespace::meant(counter, value),
            TimerClock::Realtime => monotonic_ns().saturating_add(value.saturating_sub(realtime_ns())),
            _ => value,
        }
    }

    /// What is left now.
    pub fn setting(&self) -> TimerSetting {
        let now = self.now();
        let state = self.state.lock();
        let value = match state.deadline {
            // One that is on never reads as off.
            Some(deadline) if deadline <= now && state.interval != 0 => next_after(deadline, state.interval, now) - now,
            // Nobody was told, so nothing has switched it off yet.
            Some(deadline) if deadline <= now && matches!(self.receiver, Receiver::Nobody) => 0,
            Some(deadline) => deadline.saturating_sub(now).max(1),
            None => 0,
        };
        TimerSetting { value, interval: state.interval }
    }

    /// How many were missed before the last signal.
    pub fn overrun(&self) -> u64 {
        self.state.lock().overrun
    }

    /// Sets it. Returns what was left of the setting before.
    pub fn set(self: &Arc<Self>, setting: TimerSetting, reference: Reference) -> TimerSetting {
        let before = self.setting();
        let Some(process) = self.process.upgrade() else { return before };
        self.disarm(&process);
        let deadline = match (setting.value, reference) {
            (0, _) => None,
            (value, Reference::Now) => Some(self.now().saturating_add(value)),
            (value, Reference::Clock) => Some(self.moment(value)),
        };
        {
            let mut state = self.state.lock();
            state.deadline = deadline;
            state.interval = setting.interval;
            state.missed = 0;
            state.overrun = 0;
        }
        match self.clock {
            TimerClock::Cpu(whose) if deadline.is_some() => cpu::add(&process, whose, self.clone()),
            TimerClock::Cpu(_) => {}
            _ => self.arm(),
        }
        before
    }

    /// Puts it into the queue if it is on. Under its lock: who disarms it finds it there.
    fn arm(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if let Some(deadline) = state.deadline {
            state.alarm = Some((timer::add(deadline, Action::Tell(self.clone())), deadline));
        }
    }

    fn disarm(self: &Arc<Self>, process: &Process) {
        let alarm = {
            let mut state = self.state.lock();
            state.deadline = None;
            state.alarm.take()
        };
        if let Some((alarm, _)) = alarm {
            drop(timer::cancel(alarm));
        }
        if matches!(self.clock, TimerClock::Cpu(_)) {
            cpu::remove(process, self);
        }
    }

    /// Does what is due at `now`, a moment of its clock.
    pub(super) fn look(self: &Arc<Self>, now: u64) {
        let tell = {
            let mut state = self.state.lock();
            let Some(deadline) = state.deadline.filter(|&deadline| deadline <= now) else { return };
            let mut expirations = 1;
            if state.interval == 0 {
                state.deadline = None;
            } else {
                let next = next_after(deadline, state.interval, now);
                expirations = (next - deadline) / state.interval;
                state.deadline = Some(next);
            }
            let first = !state.sent;
            state.missed = state.missed.saturating_add(expirations - u64::from(first));
            state.sent = true;
            first
        };
        if tell && !self.tell() {
            let mut state = self.state.lock();
            state.sent = false;
            state.missed = 0;
        }
    }

    /// Sends its signal. False if nobody takes it.
    fn tell(&self) -> bool {
        let info = |signal| SigInfo::timer(signal, self.id, self.value);
        match &self.receiver {
            Receiver::Nobody => false,
            Receiver::Process(signal) => {
                self.process.upgrade().is_some_and(|process| send::timer_to_process(&process, info(*signal)))
            }
            Receiver::Thread(signal, task) => {
                task.upgrade().is_some_and(|task| send::timer_to_task(&task, info(*signal)))
            }
        }
    }
}

/// From what a timer's value counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reference {
    /// From now.
    Now,
    /// It is a moment of the clock (`TIMER_ABSTIME`).
    Clock,
}

impl Alarmed for PosixTimer {
    fn expired(self: Arc<Self>) {
        let now = monotonic_ns();
        {
            let mut state = self.state.lock();
            // One that was taken back too late, when it has been set anew already.
            if state.alarm.is_none_or(|(_, deadline)| deadline > now) {
                return;
            }
            state.alarm = None;
        }
        self.look(now);
        self.arm();
    }
}
