//! fork(2): the snapshot is a process. Stores are those of the parent while a child keeps the state. Going back is what a fork server does: the child that has
//! stored ends, and another is forked and runs.

use std::{fs, io};

use anyhow::{Context, Result, ensure};

use super::{PAGE, Region, Round, Way, content, timed};

/// See the module.
pub struct Fork {
    memory: Region,
}

impl Fork {
    pub fn new(size: usize, resident: usize) -> Result<Fork> {
        Ok(Fork { memory: Region::anonymous(size)?.filled(resident) })
    }

    /// A child that does `act`, says so, and waits to be killed.
    fn child(&self, act: impl FnOnce()) -> Result<Child> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        ensure!(made == 0, "pipe: {}", io::Error::last_os_error());
        // SAFETY: the child makes system calls and touches mappings only; this program has one thread here.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            act();
            // SAFETY: one byte; then nothing but waiting.
            unsafe {
                libc::write(ends[1], [1_u8].as_ptr().cast(), 1);
                loop {
                    libc::pause();
                }
            }
        }
        ensure!(pid > 0, "fork: {}", io::Error::last_os_error());
        // SAFETY: ours.
        unsafe { libc::close(ends[1]) };
        Ok(Child { pid, ready: ends[0] })
    }
}

struct Child {
    pid: i32,
    ready: i32,
}

impl Child {
    fn wait_until_ready(&self) -> Result<()> {
        // SAFETY: room for one byte.
        let read = unsafe { libc::read(self.ready, [0_u8].as_mut_ptr().cast(), 1) };
        ensure!(read == 1, "the child ended early");
        Ok(())
    }

    /// Bytes of page tables.
    fn tables(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:")).context("no VmPTE")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our child, which is waited for here and nowhere else; our descriptor.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            libc::close(self.ready);
        }
    }
}

impl Way for Fork {
    fn round(&mut self, pages: &[u64]) -> Result<Round> {
        let (kept, snapshot) = timed(|| self.child(|| ()))?;
        kept.wait_until_ready()?;
        let ((), writes) = timed(|| {
            pages.iter().for_each(|page| self.memory.store(*page, 0));
            Ok(())
        })?;
        let bytes = kept.tables()? + (pages.len() * PAGE) as u64;
        drop(kept);
        pages.iter().for_each(|page| self.memory.store(*page, content(*page)));
        let stored = self.child(|| pages.iter().for_each(|page| self.memory.store(*page, 0)))?;
        stored.wait_until_ready()?;
        let (next, restore) = timed(|| {
            drop(stored);
            let next = self.child(|| ())?;
            next.wait_until_ready()?;
            Ok(next)
        })?;
        drop(next);
        ensure!(pages.iter().all(|page| self.memory.load(*page) == content(*page)), "fork came back wrong");
        Ok(Round { snapshot, writes, restore, bytes })
    }
}
