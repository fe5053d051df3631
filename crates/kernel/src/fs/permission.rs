//! Who may do what with a file (`path_resolution(7)`, "Permissions").

use alloc::sync::Arc;

use bitflags::bitflags;

use super::dentry::Dentry;
use super::inode::Inode;
use super::mount;
use crate::errno::Errno;
use crate::process::credentials::{CAP_DAC_OVERRIDE, CAP_FOWNER, Credentials};
use crate::sched;

bitflags! {
    /// What is to be done; the bits of `access(2)` and of each digit of a mode.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Wanted: u32 {
        /// Run it; of a directory: go through it.
        const EXECUTE = 1;
        /// Write it; of a directory: make and remove names.
        const WRITE = 2;
        /// Read it; of a directory: list it.
        const READ = 4;
    }
}

/// Who asks: user, group, supplementary groups.
pub struct Asker {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Whose files bits do not keep it from, if it may do so at all.
    pub overrides: Option<Credentials>,
}

impl Asker {
    /// The current task, as file systems see it; `None` for root, which may do all but execute what nobody may, and early at boot.
    pub fn current() -> Option<Asker> {
        sched::try_with_current(|task| {
            let credentials = task.credentials();
            (!credentials.is_privileged()).then_some(Asker {
                uid: credentials.fsuid,
                gid: credentials.fsgid,
                groups: credentials.groups.clone(),
                overrides: (!credentials.user_namespace.is_first()).then_some(credentials),
            })
        })
        .flatten()
    }

    /// Whether all that is wanted is allowed (`generic_permission` of `fs/namei.c`).
    pub fn may(&self, inode: &Inode, wanted: Wanted) -> bool {
        let attributes = *inode.attributes.lock();
        let of = (attributes.uid, attributes.gid);
        let overrides = self.overrides.as_ref();
        if overrides.map_or(self.uid == 0, |who| who.may_to_file(of, CAP_DAC_OVERRIDE)) {
            return root_may(inode, wanted);
        }
        let in_group = attributes.gid == self.gid || self.groups.contains(&attributes.gid);
        let shift = match (attributes.uid == self.uid, in_group) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        Wanted::from_bits_truncate(attributes.permissions >> shift).contains(wanted)
    }

    /// The same as a result.
    pub fn check(&self, inode: &Inode, wanted: Wanted) -> Result<(), Errno> {
        if self.may(inode, wanted) { Ok(()) } else { Err(Errno::EACCES) }
    }
}

/// Root may execute what anyone may, and search every directory.
fn root_may(inode: &Inode, wanted: Wanted) -> bool {
    let executable = inode.is_directory() || inode.attributes.lock().permissions & 0o111 != 0;
    !wanted.contains(Wanted::EXECUTE) || executable
}

/// `EACCES` unless the current task may do what is wanted.
pub fn check(inode: &Inode, wanted: Wanted) -> Result<(), Errno> {
    let allowed = match Asker::current() {
        Some(asker) => asker.may(inode, wanted),
        None => root_may(inode, wanted),
    };
    if allowed { Ok(()) } else { Err(Errno::EACCES) }
}

/// Whether names may be made in a directory: `EACCES`, `EROFS`.
pub fn check_make(directory: &Arc<Dentry>) -> Result<(), Errno> {
    mount::check_writable(directory)?;
    check(&directory.inode, Wanted::WRITE | Wanted::EXECUTE)
}

/// Whether an entry may be removed from a directory: `EACCES`; `EPERM` if the directory is sticky, and neither it nor the entry is the caller's.
pub fn check_remove(directory: &Arc<Dentry>, entry: &Dentry) -> Result<(), Errno> {
    check_make(directory)?;
    let Some(asker) = Asker::current() else { return Ok(()) };
    let (sticky, owner) = {
        let attributes = directory.inode.attributes.lock();
        (attributes.permissions & 0o1000 != 0, attributes.uid)
    };
    let of = {
        let attributes = entry.inode.attributes.lock();
        (attributes.uid, attributes.gid)
    };
    let may = asker.overrides.as_ref().is_some_and(|who| who.may_to_file(of, CAP_FOWNER));
    if sticky && asker.uid != owner && asker.uid != of.0 && !may { Err(Errno::EPERM) } else { Ok(()) }
}
