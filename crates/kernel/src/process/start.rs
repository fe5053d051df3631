//! The first process.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::sync::Mutex;
use foldspace::AddressSpace;
use foldspace::space::{ForkMode, Layout};

use super::credentials::Credentials;
use super::exec::{self, arguments::Arguments};
use super::exit::{ExitStatus, exit_thread};
use super::namespaces::Namespaces;
use super::signal::SigSet;
use super::signal::state::{AlternateStack, TaskSignals};
use super::slot::Slot;
use super::task::{COMM_LEN, TIMER_SLACK, Trap, prepare_exit};
use super::{Process, Task, tree};
use crate::arch::{FpuState, LiveRegisters, TrapFrame};
use crate::boot::info::info;
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::open::{NewFile, open};
use crate::fs::{self, FdTable, FsContext};
use crate::mm::memory;
use crate::sched::{self, Thread};

/// The program that starts everything.
const INIT_PATH: &[u8] = b"/init";
/// What it finds in its environment, as on Linux.
const ENVIRONMENT: [&[u8]; 2] = [b"HOME=/", b"TERM=linux"];
/// What it has open as 0, 1 and 2.
const CONSOLE: &[u8] = b"/dev/console";

/// Makes the first process, which will run `/init`. The root file system is in place; the scheduler need not run yet.
///
/// # Panics
/// Without memory for it.
pub fn start_init() {
    prepare_exit();
    let thread = Thread::new().expect("memory for the first thread");
    let space = AddressSpace::new(memory(), Layout::default()).expect("memory for the first process");
    if let Some(mode) = fork_mode() {
        space.set_fork_mode(mode);
    }
    thread.prepare(
        space.clone(),
        &TrapFrame::new_program(0, 0),
        &FpuState::new(),
        LiveRegisters::default(),
        become_init,
    );
    let process = Arc::new(Process::first());
    let task = {
        let mut tree = tree::lock();
        let pid = tree.allocate().expect("no number is taken yet");
        assert_eq!(pid, tree::INIT, "the first process is the first task");
        let task = Arc::new(Task {
            pid,
            tgid: pid,
            thread,
            process: process.clone(),
            files: Slot::new(FdTable::default()),
            fs: Slot::new(FsContext::new(fs::mount::root().clone())),
            signals: Mutex::new(TaskSignals::new(SigSet::EMPTY, AlternateStack::DISABLED)),
            clear_child_tid: AtomicU64::new(0),
            rseq: Mutex::new(None),
            io_priority: AtomicU32::new(0),
            timer_slack: Mutex::new((TIMER_SLACK, TIMER_SLACK)),
            robust_list: AtomicU64::new(0),
            futexes_released: AtomicBool::new(false),
            namespaces: Mutex::new(Namespaces::first()),
            class: Mutex::default(),
            memory_policy: Mutex::default(),
            space: Mutex::new(space),
            comm: Mutex::new([0; COMM_LEN]),
            credentials: Mutex::new(Credentials::root()),
            vfork_done: Mutex::new(None),
            trace: Mutex::default(),
            tracing: AtomicU32::new(0),
            seccomp: Mutex::default(),
            dispatch: Mutex::default(),
            writes_back: AtomicBool::new(false),
            passed_stop: AtomicU64::new(0),
            rested_in: AtomicU64::new(0),
            awaited_access: AtomicU64::new(0),
            awaited_by: AtomicU64::new(0),
            last_trap: Mutex::new(Trap::default()),
        });
        process.threads.lock().push(task.clone());
        tree.insert_process(&task, None);
        task
    };
    sched::spawn(task);
}

/// What the kernel's command line says about forks (`foldspace.fork`); every process inherits it.
fn fork_mode() -> Option<ForkMode> {
    match info().option("foldspace.fork")? {
        "copy" => Some(ForkMode::Copy),
        "leaf" => Some(ForkMode::Leaf),
        "full" => Some(ForkMode::Full),
        other => {
            log::warn!("foldspace.fork={other} is not copy, leaf or full: ignored");
            None
        }
    }
}

/// The first thing that the first process does, in the kernel.
fn become_init() {
    let result = {
        let task = sched::current();
        open_console(&task);
        execute_init(&task)
    };
    if let Err(error) = result {
        log::error!("cannot run /init: {error:?}");
        exit_thread(ExitStatus::Exited(127));
    }
}

fn open_console(task: &Task) {
    let context = task.fs.lock().clone();
    let new = NewFile { permissions: 0, owner: (0, 0) };
    let Ok(console) = open(&context, &context.cwd, CONSOLE, OpenFlags::READ_WRITE, new) else {
        log::warn!("no /dev/console: /init starts without open files");
        return;
    };
    let mut files = task.files.lock();
    for _ in 0..3 {
        // An empty table has room.
        let _ = files.insert(console.clone(), AtExec::Keep);
    }
}

fn execute_init(task: &Arc<Task>) -> Result<(), Errno> {
    let context = task.fs.lock().clone();
    let file = fs::open_exec(&context, INIT_PATH)?;
    let mut arguments = Arguments::default();
    arguments.argv.push(INIT_PATH)?;
    for variable in ENVIRONMENT {
        arguments.envp.push(variable)?;
    }
    exec::execute(task, task.thread.frame(), file, INIT_PATH, arguments)
}
