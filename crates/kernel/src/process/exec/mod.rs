//! exec: another program in the same process.
//!
//! The new address space is built completely before anything of the old program is given up, so a failure leaves the caller as it was.

pub mod arguments;
mod script;
mod stack;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use foldspace::addr::USER_END;
use foldspace::space::Layout;
use foldspace::{AddressSpace, VirtAddr};
use foldspace_image::{Base, Headers, PIE_BASE, PIE_HEAP};
use linux_raw_sys::general as raw;

use super::credentials::Credentials;
use super::exit::release_memory;
use super::futex::Leaving;
use super::signal::SigSet;
use super::signal::state::AlternateStack;
use super::timer::posix;
use super::user_namespace::Ids;
use super::{Pid, Task, ptrace, restore_point, rseq, tree};
use crate::arch::{Breakpoints, FpuState, LiveRegisters, TrapFrame};
use crate::errno::Errno;
use crate::fs::{self, ExecFile};
use crate::mm::memory;
use crate::process::task::inherited_exec_gain;
use crate::syscall::memory::READ_IMPLIES_EXEC;
use arguments::Arguments;
use script::Script;

/// Gaps are searched downwards from here: room for the stack above, no randomisation (Linux's `mmap_base`).
pub const MMAP_BASE: VirtAddr = VirtAddr(USER_END.get() - (128 << 20));

/// How many scripts may name scripts as their interpreters.
const MAX_SCRIPTS: usize = 5;

/// Sets the set-user-id bits apart.
const SET_USER_ID: u32 = raw::S_ISUID;
const SET_GROUP_ID: u32 = raw::S_ISGID;

/// A program ready to run.
pub struct Program {
    space: Arc<AddressSpace>,
    entry: VirtAddr,
    stack_pointer: VirtAddr,
    file: ExecFile,
    filename: Vec<u8>,
    credentials: Credentials,
    /// The thread that called exec.
    caller: Pid,
    /// Signals that it starts with blocked: those of the thread that called exec.
    blocked: SigSet,
}

/// Replaces the caller's program by `file`, which was found as `filename`. On success the frame is that of the new program.
///
/// # Errors
/// See execve(2). Nothing has changed then, unless other threads were already ended.
pub fn execute(
    task: &Arc<Task>,
    frame: &mut TrapFrame,
    file: ExecFile,
    filename: &[u8],
    arguments: Arguments,
) -> Result<(), Errno> {
    let program = prepare(task, file, filename, arguments)?;
    let process = &task.process;
    let leader_lives = process.leader().is_some_and(|first| first.is_leader());
    if !task.is_leader() && leader_lives {
        // The new program goes by the process's number, so it is the first thread that runs it; this one ends with the others.
        return if process.hand_over(program) { Ok(()) } else { Err(Errno::EAGAIN) };
    }
    if !process.become_single_threaded(task) {
        return Err(Errno::EAGAIN);
    }
    commit(task, frame, program);
    Ok(())
}

/// Everything that can fail.
fn prepare(task: &Arc<Task>, file: ExecFile, filename: &[u8], arguments: Arguments) -> Result<Program, Errno> {
    let (file, arguments) = resolve_scripts(task, file, filename, arguments)?;
    let headers = Headers::read(&file.object)?;
    let interpreter = match headers.interpreter(&file.object)? {
        Some(path) => {
            let file = open(task, &path)?;
            let headers = Headers::read(&file.object).map_err(|_| Errno::ELIBBAD)?;
            Some((file, headers))
        }
        None => None,
    };
    let lock_limit = task.lock_limit();
    let layout = {
        let limits = task.process.limits.lock();
        Layout {
            mmap_base: MMAP_BASE,
            stack_limit: limits.soft(raw::RLIMIT_STACK),
            data_limit: limits.soft(raw::RLIMIT_DATA),
            data_limit_hard: limits.hard(raw::RLIMIT_DATA),
            address_space_limit: limits.soft(raw::RLIMIT_AS),
            lock_limit,
            ..Layout::default()
        }
    };
    let stack_limit = layout.stack_limit;
    let space = AddressSpace::new(memory(), layout)?;
    space.set_fork_mode(task.space().fork_mode());

    let base = if interpreter.is_some() { Base::Program(PIE_BASE) } else { Base::Anywhere };
    let image = headers.load(&space, &file.object, base)?;
    let heap = match headers.is_position_independent() && interpreter.is_none() {
        true => PIE_HEAP,
        false => image.end.page_ceil().ok_or(Errno::ENOMEM)?,
    };
    space.update_layout(|layout| {
        layout.start_brk = heap;
        layout.brk = heap;
        layout.code = image.code;
        layout.data = image.data;
    });
    let (entry, interpreter_base) = match &interpreter {
        Some((file, headers)) => {
            let loaded = headers.load(&space, &file.object, Base::Anywhere).map_err(|error| match error {
                Errno::ENOMEM => Errno::ENOMEM,
                _ => Errno::ELIBBAD,
            })?;
            (loaded.entry, loaded.bias)
        }
        None => (image.entry, 0),
    };
    let (credentials, secure) = credentials_after(task, &file);
    let facts = stack::Facts {
        image: &image,
        interpreter_base,
        filename,
        credentials: &credentials,
        secure,
        executable: headers.executable_stack(),
    };
    let stack_pointer = stack::build(&space, &arguments, &facts, stack_limit)?;
    let blocked = task.signals.lock().blocked;
    let filename = filename.to_vec();
    Ok(Program { space, entry, stack_pointer, file, filename, credentials, caller: task.pid, blocked })
}

/// Follows `#!` lines to a program that is none.
fn resolve_scripts(
    task: &Task,
    mut file: ExecFile,
    filename: &[u8],
    mut arguments: Arguments,
) -> Result<(ExecFile, Arguments), Errno> {
    let mut name = filename.to_vec();
    for _ in 0..=MAX_SCRIPTS {
        let mut head = [0; script::HEAD];
        let len = file.read_at(0, &mut head)?;
        let Some(Script { interpreter, argument }) = Script::parse(&head[..len])? else { return Ok((file, arguments)) };
        let mut first: Vec<&[u8]> = Vec::with_capacity(3);
        first.push(&interpreter);
        first.extend(argument.as_deref());
        first.push(&name);
        arguments.argv = arguments.argv.with_first_replaced(&first)?;
        file = open(task, &interpreter)?;
        name = interpreter;
    }
    Err(Errno::ELOOP)
}

fn open(task: &Task, path: &[u8]) -> Result<ExecFile, Errno> {
    let context = task.fs.lock().clone();
    fs::open_exec(&context, path)
}

/// Who the new program acts as: set-id bits count unless the process gave that up. The flag says whether they did.
fn credentials_after(task: &Task, file: &ExecFile) -> (Credentials, bool) {
    let mut credentials = task.credentials();
    let before = credentials.clone();
    let (permissions, owner, group) = file.permissions();
    // Somebody whom one's namespace does not know is not to be had (`bprm_fill_uid`).
    let namespace = &before.user_namespace;
    let known = namespace.number_of(Ids::Users, owner).is_some() && namespace.number_of(Ids::Groups, group).is_some();
    if !task.process.no_new_privileges.load(Ordering::Relaxed) && known && !fs::mount::ignores_set_ids(file.dentry()) {
        if permissions & SET_USER_ID != 0 {
            credentials.euid = owner;
        }
        // Without group execution the bit means mandatory locking.
        if permissions & SET_GROUP_ID != 0 && permissions & raw::S_IXGRP != 0 {
            credentials.egid = group;
        }
    }
    credentials.suid = credentials.euid;
    credentials.fsuid = credentials.euid;
    credentials.sgid = credentials.egid;
    credentials.fsgid = credentials.egid;
    credentials.program_changed(credentials.euid != before.euid || credentials.egid != before.egid);
    let secure = credentials.uid != credentials.euid || credentials.gid != credentials.egid;
    (credentials, secure)
}

/// The point of no return and what follows: the current thread, alone in its process, becomes the program.
pub(super) fn commit(task: &Arc<Task>, frame: &mut TrapFrame, program: Program) {
    release_memory(task, Leaving::Exec);
    posix::delete_all(&task.process);
    restore_point::forget(task);
    rseq::forget(task);
    task.set_space(program.space);

    task.files.unshare();
    let closed = task.files.lock().close_on_exec();
    drop(closed);

    let process = &task.process;
    process.handlers.unshare();
    process.handlers.lock().reset_caught();
    {
        let mut signals = task.signals.lock();
        signals.blocked = program.blocked;
        signals.alternate = AlternateStack::DISABLED;
        signals.saved = None;
        signals.restart = None;
        signals.continuation = None;
    }
    task.set_credentials(program.credentials);
    let before = process.exe.lock().replace(Arc::new(program.file));
    drop(before);
    process.dumpable.store(true, Ordering::Relaxed);
    let exec_gain = inherited_exec_gain(process.exec_gain.load(Ordering::Relaxed));
    process.exec_gain.store(exec_gain, Ordering::Relaxed);
    process.membarrier.store(0, Ordering::Relaxed);
    // As for every 64-bit program (`set_personality_64bit` of Linux's `arch/x86/kernel/process_64.c`).
    process.personality.fetch_and(!READ_IMPLIES_EXEC, Ordering::Relaxed);
    task.set_comm(program.filename.rsplit(|&byte| byte == b'/').next().unwrap_or_default());
    *task.dispatch.lock() = None;
    super::time_namespace::executed(task);
    tree::executed(process.pid);

    task.thread.set_live_registers(LiveRegisters::default());
    task.thread.set_breakpoints(Breakpoints::default());
    task.thread.set_fpu(&FpuState::new());
    let (entry, stack_pointer) = (program.entry.get(), program.stack_pointer.get());
    let call = frame.orig_rax;
    *frame = TrapFrame { orig_rax: call, ..TrapFrame::new_program(entry, stack_pointer) };
    ptrace::stops::executed(task, frame, program.caller);
}
