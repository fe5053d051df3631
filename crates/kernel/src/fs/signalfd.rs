//! signalfd(2): signals that are read instead of handled. Whoever reads gets his own.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::sync::Mutex;

use super::dentry::Dentry;
use super::file::{Body, File, OpenFlags, Ready};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply};
use super::{poll, superblock};
use crate::errno::Errno;
use crate::process::signal::info::code;
use crate::process::signal::{self, SigInfo, SigSet, Signal};
use crate::sched::{self, WaitQueue};
use crate::syscall::SysResult;

/// Bytes of `struct signalfd_siginfo`.
const RECORD: usize = 128;

/// All that wait in a read: they look again when a signal was sent that nobody takes at once.
static READERS: WaitQueue = WaitQueue::new();

/// A window on signals.
pub struct SignalFd {
    wanted: Mutex<SigSet>,
}

/// Makes those that wait look again: a signal waits now that its receiver blocks.
pub fn notify() {
    if READERS.has_waiters() {
        READERS.wake_all();
    }
    poll::notify();
}

/// Makes one.
pub fn create(wanted: SigSet, flags: OpenFlags) -> Arc<File> {
    let inode = Inode::new(superblock::anon_inodes(), Kind::Anonymous, Attributes::new(0o600));
    let dentry = Dentry::nowhere(b"anon_inode:[signalfd]".to_vec(), inode);
    File::new(dentry, flags | OpenFlags::READ_WRITE, Box::new(SignalFd { wanted: Mutex::new(wanted) }))
}

impl SignalFd {
    /// Changes which signals it shows.
    pub fn set(&self, wanted: SigSet) {
        *self.wanted.lock() = wanted;
        notify();
    }

    fn take(&self) -> Option<SigInfo> {
        let wanted = *self.wanted.lock();
        sched::with_current(|task| signal::take(task, wanted))
    }
}

impl Body for SignalFd {
    fn read(&self, file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        if out.room() < RECORD {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        while out.room() >= RECORD {
            let info = match self.take() {
                Some(info) => info,
                None if done > 0 => break,
                None if file.non_blocking() => return Err(Errno::EAGAIN),
                None => READERS.wait_until(|| self.take())?,
            };
            if out.put(&record(&info)) < RECORD {
                return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
            }
            done += RECORD;
        }
        Ok(done)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn ready(&self, _file: &File) -> Ready {
        let wanted = *self.wanted.lock();
        let pending = sched::with_current(|task| {
            let own = task.signals.lock().pending.set();
            own.union(task.process.pending.lock().set())
        });
        if pending.intersection(wanted).is_empty() { Ready::empty() } else { Ready::READABLE }
    }

    fn signals(&self) -> Option<&SignalFd> {
        Some(self)
    }
}

/// `struct signalfd_siginfo` (`linux/signalfd.h`): which fields mean something goes by the code (`signalfd_copyinfo`).
fn record(info: &SigInfo) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    let low = |word: u64| (word as u32).to_le_bytes();
    let high = |word: u64| ((word >> 32) as u32).to_le_bytes();
    let fields = info.fields();
    put(0, &info.signo.to_le_bytes());
    put(4, &info.errno.to_le_bytes());
    put(8, &info.code.to_le_bytes());
    let faults = [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::TRAP];
    let from_kernel = info.code > 0 && info.code != code::SI_KERNEL;
    if info.code == code::SI_TIMER {
        put(24, &low(fields[0]));
        put(32, &high(fields[0]));
        put(48, &fields[1].to_le_bytes());
        put(44, &low(fields[1]));
    } else if from_kernel && info.signal() == Signal::CHLD {
        put(12, &low(fields[0]));
        put(16, &high(fields[0]));
        put(40, &low(fields[1]));
        put(56, &fields[2].to_le_bytes());
        put(64, &fields[3].to_le_bytes());
    } else if from_kernel && faults.contains(&info.signal()) {
        put(72, &fields[0].to_le_bytes());
    } else {
        put(12, &low(fields[0]));
        put(16, &high(fields[0]));
        if info.code < 0 {
            put(44, &low(fields[1]));
            put(48, &fields[1].to_le_bytes());
        }
    }
    record
}
