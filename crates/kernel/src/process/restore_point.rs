//! Restore points: a process keeps what it is, and goes back to it. Linux has nothing of the kind.
//!
//! What comes back is memory (what is private of it: shared mappings show what they show), the heap's end, the registers with the vector state and the segment
//! bases, blocked signals and the alternate stack. What does not: descriptors and their offsets, files, signal actions, pending signals, timers,
//! children, everything else in the kernel.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use foldspace::PageRange;
use foldspace::space::{Difference, Snapshot};

use super::signal::SigSet;
use super::signal::state::AlternateStack;
use super::{Task, rseq};
use crate::arch::{FpuState, LiveRegisters, TrapFrame};
use crate::errno::Errno;
use crate::mm::is_scarce;
use crate::sched;

/// What a thread alone in its process was when it asked for it.
pub struct RestorePoint {
    snapshot: Snapshot,
    frame: TrapFrame,
    fpu: FpuState,
    live: LiveRegisters,
    blocked: SigSet,
    alternate: AlternateStack,
}

/// Taken out of its process while it is used, for what uses it may wait; put back when dropped. The process is alone: nobody misses it.
struct Lent<'t> {
    task: &'t Task,
    point: Option<Box<RestorePoint>>,
}

impl Lent<'_> {
    fn take(task: &Task) -> Result<Lent<'_>, Errno> {
        let point = task.process.restore_point.lock().take();
        if point.is_some() { Ok(Lent { task, point }) } else { Err(Errno::ENOENT) }
    }
}

impl core::ops::Deref for Lent<'_> {
    type Target = RestorePoint;
    fn deref(&self) -> &RestorePoint {
        self.point.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        *self.task.process.restore_point.lock() = self.point.take();
    }
}

/// Keeps what the process is now, in place of what it kept before.
///
/// # Errors
/// `EBUSY`: another thread, or another process, runs in its address space. `ENOMEM`.
pub fn set(task: &Arc<Task>, frame: &TrapFrame) -> Result<(), Errno> {
    require_alone(task)?;
    if is_scarce() {
        return Err(Errno::ENOMEM);
    }
    let snapshot = sched::with_space(|space| space.snapshot()).ok_or(Errno::EFAULT)??;
    let (blocked, alternate) = {
        let signals = task.signals.lock();
        (signals.blocked, signals.alternate)
    };
    let (fpu, live) = (*task.thread.fpu(), task.thread.live_registers());
    let point = Box::new(RestorePoint { snapshot, frame: *frame, fpu, live, blocked, alternate });
    let before = task.process.restore_point.lock().replace(point);
    drop(before);
    Ok(())
}

/// Makes the process what it was: `frame` is that of the call that kept it. It is kept for the next time.
///
/// # Errors
/// `ENOENT`: it has kept nothing. `EBUSY`: as [`set`]. `ENOMEM`: it had more memory than may be promised now.
pub fn go_back(task: &Arc<Task>, frame: &mut TrapFrame) -> Result<(), Errno> {
    require_alone(task)?;
    let point = Lent::take(task)?;
    sched::with_space(|space| space.restore(&point.snapshot)).ok_or(Errno::EFAULT)??;
    *frame = point.frame;
    task.thread.set_fpu(&point.fpu);
    task.thread.set_live_registers(point.live);
    {
        let mut signals = task.signals.lock();
        signals.blocked = point.blocked;
        signals.alternate = point.alternate;
    }
    rseq::memory_changed(task);
    task.notify();
    Ok(())
}

/// Forgets it. Says whether there was anything.
pub fn forget(task: &Task) -> bool {
    let point = task.process.restore_point.lock().take();
    point.is_some()
}

/// Where the process has stored since: rows of pages, upwards, `most` of them at most, and how many there are.
///
/// # Errors
/// `ENOENT`: it has kept nothing. `EBUSY`: as [`set`]. `ENOMEM`.
pub fn changes(task: &Task, most: usize) -> Result<(Vec<PageRange>, usize), Errno> {
    require_alone(task)?;
    let point = Lent::take(task)?;
    let (mut rows, mut count) = (Vec::new(), 0);
    rows.try_reserve_exact(most).map_err(|_| Errno::ENOMEM)?;
    let mut look = |difference: Difference<'_>| {
        if let Difference::Pages { range, .. } = difference {
            if rows.len() < most {
                rows.push(range);
            }
            count += 1;
        }
    };
    sched::with_space(|space| point.snapshot.space().diff(space, &mut look)).ok_or(Errno::EFAULT)?;
    Ok((rows, count))
}

fn require_alone(task: &Task) -> Result<(), Errno> {
    let alone = task.process.threads.lock().len() == 1 && !task.shares_space();
    if alone { Ok(()) } else { Err(Errno::EBUSY) }
}
