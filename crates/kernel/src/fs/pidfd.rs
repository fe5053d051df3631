//! Process descriptors (pidfd_open(2)): a process, or one thread of one, by an open file. Its number may go to another process meanwhile; what
//! the descriptor means stays.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};

use super::dentry::Dentry;
use super::file::{Body, File, OpenFlags, Ready};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply};
use super::superblock;
use crate::errno::Errno;
use crate::process::tree::{self, Life};
use crate::process::{Pid, Process, Task};
use crate::syscall::SysResult;

/// What a descriptor means.
#[derive(Clone)]
pub struct PidFd {
    process: Arc<Process>,
    /// Just this thread (`PIDFD_THREAD`).
    thread: Option<(Pid, Weak<Task>)>,
}

impl PidFd {
    /// A process.
    pub fn process(process: Arc<Process>) -> PidFd {
        PidFd { process, thread: None }
    }

    /// One thread.
    pub fn thread(task: &Arc<Task>) -> PidFd {
        PidFd { process: task.process.clone(), thread: Some((task.pid, Arc::downgrade(task))) }
    }

    /// The process, or that of the thread.
    pub fn of(&self) -> &Arc<Process> {
        &self.process
    }

    /// Whether it means one thread.
    pub fn is_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// How far it has come.
    pub fn life(&self) -> Life {
        let process = tree::life(&self.process);
        match &self.thread {
            Some((pid, task)) if process == Life::Running && self.live_thread(*pid, task).is_none() => {
                // The first thread stays as a zombie until all have ended; others leave nothing.
                if *pid == self.process.pid { Life::Zombie } else { Life::Gone }
            }
            _ => process,
        }
    }

    fn live_thread(&self, pid: Pid, task: &Weak<Task>) -> Option<Arc<Task>> {
        let task = task.upgrade()?;
        self.process.threads.lock().iter().any(|thread| thread.pid == pid).then_some(task)
    }

    /// The thread that it means, or any of the process. `ESRCH` if none is alive.
    pub fn task(&self) -> Result<Arc<Task>, Errno> {
        let task = match &self.thread {
            Some((pid, task)) => self.live_thread(*pid, task),
            None => self.process.leader(),
        };
        task.ok_or(Errno::ESRCH)
    }

    /// The number that it goes by in this moment; `None` once it has been waited for.
    pub fn number(&self) -> Option<Pid> {
        let pid = self.thread.as_ref().map_or(self.process.pid, |(pid, _)| *pid);
        (self.life() != Life::Gone).then_some(pid)
    }

    /// An open file for it.
    pub fn open(self, flags: OpenFlags) -> Arc<File> {
        let inode = Inode::new(superblock::anon_inodes(), Kind::Anonymous, Attributes::new(0o700));
        let dentry = Dentry::nowhere(b"anon_inode:[pidfd]".to_vec(), inode);
        File::new(dentry, flags | OpenFlags::READ_WRITE, Box::new(self))
    }
}

impl Body for PidFd {
    fn read(&self, _file: &File, _at: Option<u64>, _out: &mut dyn Sink) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn ready(&self, _file: &File) -> Ready {
        match self.life() {
            Life::Running => Ready::empty(),
            Life::Zombie => Ready::READABLE,
            Life::Gone => Ready::READABLE | Ready::HANG_UP,
        }
    }

    fn pidfd(&self) -> Option<&PidFd> {
        Some(self)
    }
}
