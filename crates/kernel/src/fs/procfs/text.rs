//! Files of `/proc` that are small texts: made anew whenever they are read from the start.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::sync::Mutex;

use super::node::{Node, ProcessFile, SystemFile, open_task, task};
use super::{process, sysctl, system};
use crate::errno::Errno;
use crate::fs::file::{Body, File, Whence, seek_within};
use crate::fs::io::{Sink, Supply, put_all};
use crate::fs::reserve;
use crate::picture;
use crate::process::Task;
use crate::process::credentials::Credentials;
use crate::process::pid_namespace::PidNamespace;
use crate::process::user_namespace::Ids;
use crate::sched;
use crate::syscall::SysResult;

/// An open text.
pub struct TextBody {
    node: Node,
    /// Whom it is about: the thread that had the number when the file was opened.
    task: Option<Arc<Task>>,
    /// Whose numbers it says.
    namespace: Arc<PidNamespace>,
    /// Who opened it.
    opener: Credentials,
    text: Mutex<Vec<u8>>,
}

impl TextBody {
    /// Opens. `ESRCH` if the process is gone.
    pub fn new(node: Node, namespace: Arc<PidNamespace>) -> Result<TextBody, Errno> {
        let about = match node {
            Node::ProcessFile { pid, file: ProcessFile::Environ | ProcessFile::Auxv } => Some(open_task(pid)?),
            Node::ProcessFile { pid, .. } | Node::FdInfo { pid, .. } => Some(task(pid)?),
            _ => None,
        };
        let opener = sched::with_current(|task| task.credentials());
        Ok(TextBody { node, task: about, namespace, opener, text: Mutex::new(Vec::new()) })
    }

    /// `ENOMEM` where there is no heap for it, be the text as short as it may: few are longer than a page, and those ask as they grow.
    fn make(&self) -> Result<Vec<u8>, Errno> {
        reserve::check_heap()?;
        let mut text = Vec::new();
        match (self.node, &self.task) {
            (Node::Setting(setting), _) => setting.show(&mut text),
            (Node::System(file), _) => system::text(file, &mut text)?,
            (Node::ProcessFile { file, .. }, Some(task)) => process::text(file, task, &self.namespace, &mut text)?,
            (Node::FdInfo { fd, .. }, Some(task)) => process::fd_info(task, fd, &self.namespace, &mut text)?,
            _ => return Err(Errno::EINVAL),
        }
        Ok(text)
    }

    fn is_setting(&self) -> bool {
        matches!(self.node, Node::Setting(_)) || matches!(self.node, Node::System(file) if file.is_setting())
    }

    /// A number counts where it is written at the start; what comes after it in the file is accepted and ignored, as Linux does
    /// (`sysctl_writes_strict`).
    fn write_setting(&self, open_file: &File, at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        let mut value = [0; 256];
        let len = from.remaining();
        let mut position = open_file.position.lock();
        let mut done = len;
        if at.unwrap_or(*position) == 0 {
            let part = &mut value[..len.min(256)];
            if from.take(part) < part.len() {
                return Err(Errno::EFAULT);
            }
            done = match self.node {
                Node::Setting(setting) => setting.set(part)?,
                Node::System(file) => sysctl::write(file, part)?,
                _ => return Err(Errno::EIO),
            };
        }
        if at.is_none() {
            *position += done as u64;
        }
        Ok(done)
    }

    fn write_map(&self, task: &Task, ids: Ids, value: &[u8]) -> Result<(), Errno> {
        let actor = sched::with_current(|task| task.credentials());
        task.credentials().user_namespace.write_map(ids, value, &self.opener, &actor)
    }

    fn is_map(&self) -> bool {
        matches!(self.node, Node::ProcessFile { file: ProcessFile::UidMap | ProcessFile::GidMap, .. })
    }

    fn set(&self, value: &[u8]) -> Result<(), Errno> {
        match (self.node, &self.task) {
            (Node::ProcessFile { file: ProcessFile::Comm, .. }, Some(task)) => {
                // A newline at the end is kept, as on Linux.
                task.set_comm(value);
                Ok(())
            }
            (Node::ProcessFile { file: ProcessFile::OomScoreAdj, .. }, Some(task)) => {
                let score = core::str::from_utf8(value.trim_ascii()).ok().and_then(|text| text.parse::<i32>().ok());
                let score = score.filter(|score| (-1000..=1000).contains(score)).ok_or(Errno::EINVAL)?;
                task.process.oom_score_adjustment.store(score, Ordering::Relaxed);
                Ok(())
            }
            (Node::ProcessFile { file: ProcessFile::UidMap, .. }, Some(task)) => {
                self.write_map(task, Ids::Users, value)
            }
            (Node::ProcessFile { file: ProcessFile::GidMap, .. }, Some(task)) => {
                self.write_map(task, Ids::Groups, value)
            }
            (Node::ProcessFile { file: ProcessFile::Setgroups, .. }, Some(task)) => {
                let denies = match value.trim_ascii_end() {
                    b"allow" => false,
                    b"deny" => true,
                    _ => return Err(Errno::EINVAL),
                };
                task.credentials().user_namespace.set_denies_groups(denies)
            }
            (Node::ProcessFile { file: ProcessFile::TimensOffsets, .. }, Some(task)) => {
                let namespace = task.namespaces.lock().time_for_children.clone();
                namespace.set_offsets(value, &self.opener)
            }
            // Linux's `sysrq_handle_crash`: how to see what a panic looks like. The other letters do nothing here.
            (Node::System(SystemFile::SysrqTrigger), _) => {
                assert!(value.first() != Some(&b'c'), "sysrq triggered crash");
                Ok(())
            }
            (Node::System(SystemFile::Snapshot), _) => {
                picture::take(value.trim_ascii());
                Ok(())
            }
            _ => Err(Errno::EIO),
        }
    }
}

impl Body for TextBody {
    fn read(&self, file: &File, at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let mut position = file.position.lock();
        let offset = at.unwrap_or(*position);
        if offset > 0 && self.is_setting() {
            // A number is read in one piece (`do_proc_dointvec`).
            return Ok(0);
        }
        let mut text = self.text.lock();
        if offset == 0 || text.is_empty() {
            *text = self.make()?;
        }
        let rest = usize::try_from(offset).ok().and_then(|offset| text.get(offset..)).unwrap_or(&[]);
        let done = put_all(rest, out)?;
        if at.is_none() {
            *position += done as u64;
        }
        Ok(done)
    }

    fn write(&self, open_file: &File, at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        let mut value = [0; 4096];
        let len = from.remaining();
        if matches!(self.node, Node::Setting(_)) || matches!(self.node, Node::System(file) if sysctl::is_writable(file))
        {
            return self.write_setting(open_file, at, from);
        }
        // Maps are as long as a page less one byte, in one piece from the start; else 256 bytes will do.
        let begins = at.unwrap_or(*open_file.position.lock()) == 0;
        if len > if self.is_map() { 4095 } else { 256 } || self.is_map() && !begins {
            return Err(Errno::EINVAL);
        }
        if from.take(&mut value[..len]) < len {
            return Err(Errno::EFAULT);
        }
        self.set(&value[..len])?;
        if at.is_none() {
            *open_file.position.lock() += len as u64;
        }
        Ok(len)
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64, Errno> {
        match whence {
            Whence::Set | Whence::Current => seek_within(&mut file.position.lock(), 0, offset, whence),
            _ => Err(Errno::EINVAL),
        }
    }

    fn has_position(&self) -> bool {
        true
    }
}
