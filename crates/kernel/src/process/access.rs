//! Whether one process may look into another (`ptrace_may_access` of Linux's `kernel/ptrace.c`; ptrace(2), "Ptrace access mode checking").

use core::sync::atomic::Ordering;

use super::Task;

/// As whom the asker acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessAs {
    /// With its real ids (`PTRACE_MODE_REALCREDS`): calls that name their target.
    Real,
    /// With those that file systems see (`PTRACE_MODE_FSCREDS`): `/proc`, and calls about a pidfd.
    FileSystem,
}

/// Whether `asker` may read or write the memory of `target`. Threads of one process always may.
pub fn may_access(asker: &Task, target: &Task, with: AccessAs) -> bool {
    if asker.tgid == target.tgid {
        return true;
    }
    let (from, to) = (asker.credentials(), target.credentials());
    if from.may_in(&to.user_namespace, super::credentials::CAP_SYS_PTRACE) {
        return true;
    }
    let (uid, gid) = match with {
        AccessAs::Real => (from.uid, from.gid),
        AccessAs::FileSystem => (from.fsuid, from.fsgid),
    };
    let is_same = [to.uid, to.euid, to.suid].iter().all(|&id| id == uid)
        && [to.gid, to.egid, to.sgid].iter().all(|&id| id == gid);
    is_same && target.process.dumpable.load(Ordering::Relaxed)
}
