//! Restartable sequences (rseq(2)): where a thread runs is written into its own memory, and a short sequence of instructions that it had begun is
//! aborted if it does not keep its processor to the end. Nothing is done on the way of a system call: only after a switch, and before a handler.

use alloc::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::signal::{SigInfo, Signal, send};
use super::{Task, oom};
use crate::arch::TrapFrame;
use crate::errno::Errno;
use crate::mm::uaccess;

/// Bytes of the area as it was first defined; the part that has a meaning now ends before ([`FEATURE_SIZE`]).
const ORIGINAL_SIZE: u32 = 32;
/// Alignment of an area (`AT_RSEQ_ALIGN`).
pub const ALIGNMENT: u64 = 32;
/// Bytes of an area that the kernel writes to (`AT_RSEQ_FEATURE_SIZE`).
pub const FEATURE_SIZE: u64 = 28;

/// `RSEQ_CPU_ID_UNINITIALIZED`.
const NOWHERE: u32 = u32::MAX;

/// Offset of `rseq_cs` in the area.
const SEQUENCE: u64 = 8;
/// Offset of `flags`, with which a sequence could once ask not to be aborted.
const FLAGS: u64 = 16;

/// What a thread has registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registration {
    address: u64,
    len: u32,
    signature: u32,
}

/// Both numbers of the processor, at the start of the area.
type Processor = [u32; 2];

/// The node, and a number for this processor among those that run the process. It is the processor's own, which is not as small as it could be.
type Place = [u32; 2];

/// Offset of [`Place`].
const PLACE: u64 = 20;

/// `struct rseq_cs`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Sequence {
    version: u32,
    flags: u32,
    start: u64,
    len: u64,
    abort: u64,
}

/// rseq(2) without flags.
///
/// # Errors
/// `EINVAL`: not aligned, or too short; or another area is registered. `EPERM`: with another signature. `EBUSY`: this one is. `EFAULT`.
pub fn register(task: &Task, address: u64, len: u32, signature: u32) -> Result<(), Errno> {
    let mut slot = task.rseq.lock();
    if let Some(present) = &*slot {
        return Err(match present.address == address && present.len == len {
            false => Errno::EINVAL,
            true if present.signature != signature => Errno::EPERM,
            true => Errno::EBUSY,
        });
    }
    if len < ORIGINAL_SIZE || !address.is_multiple_of(ALIGNMENT) {
        return Err(Errno::EINVAL);
    }
    if address.checked_add(u64::from(len)).is_none_or(|end| end > foldspace::addr::USER_END.get()) {
        return Err(Errno::EFAULT);
    }
    *slot = Some(Registration { address, len, signature });
    drop(slot);
    // Written on the way back, as after a switch.
    task.thread.watch_switches();
    Ok(())
}

/// rseq(2) with `RSEQ_FLAG_UNREGISTER`.
///
/// # Errors
/// `EINVAL`: this is not registered. `EPERM`: with another signature. `EFAULT`.
pub fn unregister(task: &Task, address: u64, len: u32, signature: u32) -> Result<(), Errno> {
    match *task.rseq.lock() {
        Some(present) if present.address == address && present.len == len => {
            if present.signature != signature {
                return Err(Errno::EPERM);
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    uaccess::write::<Processor>(address, &[0, NOWHERE])?;
    uaccess::write::<Place>(address + PLACE, &[0, 0])?;
    forget(task);
    Ok(())
}

/// The program is another one from now on (exec).
pub fn forget(task: &Task) {
    task.thread.ignore_switches();
    *task.rseq.lock() = None;
}

/// Memory is not what it was: what is written there may be out of date.
pub fn memory_changed(task: &Task) {
    if task.rseq.lock().is_some() {
        task.thread.watch_switches();
    }
}

/// The thread goes on after a switch: `frame` is what it goes on with.
pub fn after_switch(task: &Arc<Task>, frame: &mut TrapFrame) {
    let cpu = task.thread.processor() as u32;
    let moved = task.thread.processor_told() != Some(cpu);
    // Sequences make no system calls, so who comes out of one is in none.
    let interrupted = frame.orig_rax == TrapFrame::NO_CALL;
    let Some(registration) = (*task.rseq.lock()).filter(|_| moved || interrupted) else { return };
    let done = if interrupted { abort_sequence(task, &registration, frame) } else { Ok(()) };
    let done = done.and_then(|()| if moved { tell(task, &registration, cpu) } else { Ok(()) });
    if done.is_err() {
        send::force(task, SigInfo::kernel(Signal::SEGV));
    }
}

/// A handler is about to run: a sequence that it interrupts is over.
pub fn before_handler(task: &Arc<Task>, frame: &mut TrapFrame) {
    let Some(registration) = *task.rseq.lock() else { return };
    if abort_sequence(task, &registration, frame).is_err() {
        send::force(task, SigInfo::kernel(Signal::SEGV));
    }
}

/// Makes the sequences end that other threads of a process are in, up to the time of the call. Each processor that runs one of them is to be interrupted
/// after this (`membarrier`).
pub fn abort_others(task: &Task) {
    for thread in task.process.threads.lock().iter() {
        if thread.pid != task.pid {
            thread.thread.expect_switch();
        }
    }
}

fn tell(task: &Arc<Task>, registration: &Registration, cpu: u32) -> Result<(), Errno> {
    write::<Processor>(task, registration.address, &[cpu, cpu])?;
    write::<Place>(task, registration.address + PLACE, &[0, cpu])?;
    task.thread.set_processor_told(cpu);
    Ok(())
}

/// Stores what the program has not asked for now: for want of a frame it must not fail, as a fault of its own would not.
fn write<T: IntoBytes + Immutable>(task: &Arc<Task>, address: u64, value: &T) -> Result<(), Errno> {
    loop {
        let written = uaccess::write(address, value);
        if written.is_ok() || !oom::relieve_store(task, address, size_of::<T>() as u64) {
            return written;
        }
    }
}

/// Sends a thread that is inside the sequence that it has announced to where that is aborted. Any error means that what it has announced is not sound
/// (`rseq_get_rseq_cs` of Linux's `kernel/rseq.c`).
fn abort_sequence(task: &Arc<Task>, registration: &Registration, frame: &mut TrapFrame) -> Result<(), Errno> {
    let slot = registration.address + SEQUENCE;
    let address: u64 = uaccess::read(slot)?;
    if address == 0 {
        return Ok(());
    }
    let sequence: Sequence = uaccess::read(address)?;
    let limit = foldspace::addr::USER_END.get();
    let end = sequence.start.checked_add(sequence.len).ok_or(Errno::EINVAL)?;
    if sequence.start >= limit || end >= limit || sequence.abort >= limit || sequence.version > 0 {
        return Err(Errno::EINVAL);
    }
    if sequence.abort.wrapping_sub(sequence.start) < sequence.len {
        return Err(Errno::EINVAL);
    }
    let signature: u32 = uaccess::read(sequence.abort.wrapping_sub(4))?;
    if signature != registration.signature {
        return Err(Errno::EINVAL);
    }
    let inside = frame.rip.wrapping_sub(sequence.start) < sequence.len;
    if inside && (sequence.flags != 0 || uaccess::read::<u32>(registration.address + FLAGS)? != 0) {
        return Err(Errno::EINVAL);
    }
    write(task, slot, &0_u64)?;
    if inside {
        frame.rip = sequence.abort;
    }
    Ok(())
}
