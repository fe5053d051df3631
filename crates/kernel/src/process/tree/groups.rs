//! Process groups and sessions: who moves where.

use core::sync::atomic::Ordering;

use super::lock;
use crate::errno::Errno;
use crate::process::{Pid, Process};

/// `setpgid`: moves process `pid` to group `pgid` on behalf of `caller`. Errors in Linux's order.
pub fn set_group(caller: &Process, pid: Pid, pgid: Pid) -> Result<(), Errno> {
    let mut tree = lock();
    let node = tree.node(pid).ok_or(Errno::ESRCH)?;
    let process = node.process.clone();
    if process.ppid() == caller.pid {
        if process.sid() != caller.sid() {
            return Err(Errno::EPERM);
        }
        if node.executed {
            return Err(Errno::EACCES);
        }
    } else if process.pid != caller.pid {
        return Err(Errno::ESRCH);
    }
    if process.sid() == process.pid {
        return Err(Errno::EPERM);
    }
    if pgid != pid && !tree.nodes().any(|node| node.process.pgid() == pgid && node.process.sid() == caller.sid()) {
        return Err(Errno::EPERM);
    }
    if process.pgid() != pgid {
        tree.join(pgid);
        let old = process.pgid.swap(pgid, Ordering::Relaxed);
        tree.leave(old);
    }
    Ok(())
}

/// `setsid`: makes `process` the leader of a new session and group.
pub fn new_session(process: &Process) -> Result<Pid, Errno> {
    let mut tree = lock();
    let pid = process.pid;
    if process.sid() == pid || tree.entries.get(&pid).is_some_and(|entry| entry.members > 0) {
        return Err(Errno::EPERM);
    }
    tree.join(pid);
    tree.join(pid);
    let old_group = process.pgid.swap(pid, Ordering::Relaxed);
    let old_session = process.sid.swap(pid, Ordering::Relaxed);
    tree.leave(old_group);
    tree.leave(old_session);
    Ok(pid)
}
