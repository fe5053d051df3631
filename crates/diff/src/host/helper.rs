//! The helper: a process that runs sequences for the command, one after the other.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::io;
use std::time::Duration;

use super::process::{self, ASKED, RECORD_WORDS};
use super::shared::{MAX_OPS, Shared};
use super::system::{call, futex_wait, futex_wake};
use super::{access, confined, filler};
use crate::look::{Inodes, Look, Step};
use crate::{Op, Outcome};

/// How long a sequence may take before something must have gone wrong: also on an emulated machine whose host has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The helper could not be made.
    #[error("cannot start the helper: {0}")]
    Start(#[from] io::Error),
    /// It is gone, or a process of the sequence hangs.
    #[error("the processes of the host did not come to the end of a sequence")]
    Silent,
    /// An operation would leave the window.
    #[error("operation {0} would change memory outside the window")]
    Unconfined(usize),
    /// More operations than fit.
    #[error("a sequence has {MAX_OPS} operations at most")]
    TooLong,
}

/// A process of a sequence ended by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// As wait(2) gives it.
    pub status: u32,
}

/// A handle to a helper, which lives as long as this process.
pub struct Helper {
    shared: Shared,
    asked: u32,
}

impl Helper {
    /// Forks it. To be called while this process has one thread.
    ///
    /// # Errors
    /// [`HelperError::Start`].
    pub fn start() -> Result<Helper, HelperError> {
        let shared = Shared::new()?;
        // The child says here how its start went, before it is asked anything.
        let result = call!(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
        if result == 0 {
            serve(shared);
        }
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result as i32).into());
        }
        let mut helper = Helper { shared, asked: 0 };
        helper.await_answer()?;
        match shared.header().crash.load(Acquire) {
            0 => Ok(helper),
            errno => Err(io::Error::from_raw_os_error(errno as i32).into()),
        }
    }

    /// Has `ops` done from the start, by a process whose window is empty. To be followed by [`Helper::finish`].
    ///
    /// # Errors
    /// [`HelperError::Unconfined`], [`HelperError::TooLong`].
    pub fn begin(&mut self, ops: &[Op]) -> Result<(), HelperError> {
        if let Some(at) = ops.iter().position(|op| !confined(&op.call)) {
            return Err(HelperError::Unconfined(at));
        }
        if ops.len() > MAX_OPS {
            return Err(HelperError::TooLong);
        }
        self.shared.set_ops(ops);
        self.asked += 1;
        let header = self.shared.header();
        header.asked.store(self.asked, Release);
        futex_wake(&header.asked);
        Ok(())
    }

    /// What came of the sequence that was begun: one step for each operation, fewer if a process crashed or all are gone.
    ///
    /// # Errors
    /// [`HelperError::Silent`].
    pub fn finish(&mut self) -> Result<(Vec<Step>, Option<Crash>), HelperError> {
        self.await_answer()?;
        let status = self.shared.header().crash.load(Acquire);
        Ok((steps(self.shared.log()), (status != 0).then_some(Crash { status })))
    }

    /// turn
    pub fn turn(&self) -> usize {
        self.shared.header().turn.load(Acquire) as usize
    }
    fn await_answer(&mut self) -> Result<(), HelperError> {
        let answered = &self.shared.header().answered;
        // Answers are numbered as questions are, the start being number 0.
        let wanted = self.asked + 1;
        loop {
            let now = answered.load(Acquire);
            if now == wanted {
                return Ok(());
            }
            if !futex_wait(answered, now, Some(PATIENCE)) {
                return Err(HelperError::Silent);
            }
        }
    }
}

/// The helper's life.
fn serve(shared: Shared) -> ! {
    let header = shared.header();
    call!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
    // Huge pages would make what is in memory a matter of what else the machine does.
    call!(libc::SYS_prctl, libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    access::catch_faults();
    grow_stack();
    if let Err(error) = filler::fill() {
        header.crash.store(error.raw_os_error().unwrap_or(libc::EINVAL) as u32, Release);
    }
    let mut served = 0;
    loop {
        header.answered.store(served + 1, Release);
        futex_wake(&header.answered);
        while header.asked.load(Acquire) == served {
            futex_wait(&header.asked, served, None);
        }
        served += 1;
        run_sequence(shared);
    }
}

/// Makes the stack as large as a process of a sequence may need it: it must not grow when there are limits.
#[inline(never)]
fn grow_stack() {
    core::hint::black_box(&mut [0_u8; 256 << 10]);
}

fn run_sequence(shared: Shared) {
    let header = shared.header();
    header.over.store(0, Relaxed);
    header.crash.store(0, Relaxed);
    header.logged.store(0, Relaxed);
    header.alive.store(1, Relaxed);
    // Nobody's.
    header.turn.store(u32::MAX, Relaxed);
    let first = call!(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
    if first == 0 {
        process::run_first(shared);
    }
    header.pids[0].store(first as u32, Release);
    process::give_turn_on(shared, 0);
    loop {
        let mut status = 0_i32;
        if call!(libc::SYS_wait4, -1_i64, &raw mut status, 0, 0) < 0 {
            return;
        }
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == ASKED {
            process::give_turn_on(shared, header.turn.load(Relaxed) + 1);
        } else if status != 0 {
            header.crash.store(status as u32, Release);
            header.over.store(1, Release);
            futex_wake(&header.turn);
        }
    }
}

/// The log, read.
fn steps(mut log: &[u8]) -> Vec<Step> {
    let mut inodes = Inodes::default();
    let mut steps = Vec::new();
    while let Some((head, rest)) = log.split_at_checked(RECORD_WORDS * 8) {
        let mut words = head.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default()));
        let mut word = || words.next().unwrap_or_default();
        let outcome = Outcome { value: word() as i64, read: word(), signal: (word() as i32, word() as i32) };
        let (seen, text, pages, content) = (word() != 0, word() as usize, word() as usize, word());
        let (text, rest) = rest.split_at(text);
        let (pages, rest) = rest.split_at(pages);
        steps.push(Step { outcome, look: seen.then(|| Look::new(text, pages, content, &mut inodes)) });
        log = rest;
    }
    steps
}
