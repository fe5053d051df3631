//! Who may do what: `access`, `chmod`, `chown`.

use linux_raw_sys::general as raw;

use super::{Base, check_flags, content_file, last_link, path};
use crate::errno::Errno;
use crate::fs::inode::{Attributes, Timestamp, mode};
use crate::fs::permission::{Asker, Wanted};
use crate::fs::{Inode, mount};
use crate::process::Task;
use crate::process::credentials::{CAP_CHOWN, CAP_FOWNER};
use crate::process::user_namespace::Ids;
use crate::syscall::SysResult;

/// faccessat2(2)
pub fn access(task: &Task, dirfd: i32, path_address: u64, wanted: u32, flags: u32) -> SysResult {
    if wanted & !(raw::R_OK | raw::W_OK | raw::X_OK) != 0 {
        return Err(Errno::EINVAL);
    }
    check_flags(flags, raw::AT_EACCESS | raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH)?;
    let dentry = Base::at(task, dirfd).resolve_with(&path(path_address)?, flags, last_link(flags))?;
    let credentials = task.credentials();
    let (uid, gid) = match flags & raw::AT_EACCESS {
        0 => (credentials.uid, credentials.gid),
        _ => (credentials.fsuid, credentials.fsgid),
    };
    let overrides = (!credentials.user_namespace.is_first()).then(|| credentials.clone());
    let asker = Asker { uid, gid, groups: credentials.groups, overrides };
    asker.check(&dentry.inode, Wanted::from_bits_truncate(wanted))?;
    let written = wanted & raw::W_OK != 0 && (dentry.inode.is_directory() || dentry.inode.regular().is_some());
    if written {
        mount::check_writable(&dentry)?;
    }
    Ok(0)
}

/// `EPERM` unless the caller owns the inode or is root.
pub(super) fn require_owner(task: &Task, inode: &Inode) -> Result<(), Errno> {
    let credentials = task.credentials();
    let of = {
        let attributes = inode.attributes.lock();
        (attributes.uid, attributes.gid)
    };
    let may = credentials.is_privileged() || credentials.may_to_file(of, CAP_FOWNER);
    if may || credentials.fsuid == of.0 { Ok(()) } else { Err(Errno::EPERM) }
}

fn set_permissions(task: &Task, inode: &Inode, permissions: u32) -> SysResult {
    require_owner(task, inode)?;
    if inode.is_symlink() {
        return Err(Errno::EOPNOTSUPP);
    }
    let now = Timestamp::now();
    let mut attributes = inode.attributes.lock();
    if let Some(regular) = inode.regular() {
        regular.seals().check_mode(attributes.permissions, permissions)?;
    }
    attributes.permissions = permissions & mode::PERMISSIONS;
    attributes.changed = now;
    Ok(0)
}

/// fchmodat2(2)
pub fn chmod(task: &Task, dirfd: i32, path_address: u64, permissions: u32, flags: u32) -> SysResult {
    check_flags(flags, raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH)?;
    let dentry = Base::at(task, dirfd).resolve_with(&path(path_address)?, flags, last_link(flags))?;
    mount::check_writable(&dentry)?;
    set_permissions(task, &dentry.inode, permissions)
}

/// fchmod(2)
pub fn fchmod(task: &Task, fd: i32, permissions: u32) -> SysResult {
    set_permissions(task, content_file(task, fd)?.inode(), permissions)
}

/// An owner that stays as it is.
const UNCHANGED: u32 = u32::MAX;

fn set_owner(task: &Task, inode: &Inode, [uid, gid]: [u32; 2]) -> SysResult {
    let credentials = task.credentials();
    let id_of = |ids, number| match number {
        UNCHANGED => Ok(UNCHANGED),
        number => credentials.user_namespace.id_of(ids, number).ok_or(Errno::EINVAL),
    };
    let (uid, gid) = (id_of(Ids::Users, uid)?, id_of(Ids::Groups, gid)?);
    let now = Timestamp::now();
    let mut attributes = inode.attributes.lock();
    let is_owner = credentials.fsuid == attributes.uid;
    let may_set_uid = uid == UNCHANGED || (is_owner && uid == attributes.uid);
    let in_group = gid == credentials.fsgid || credentials.groups.contains(&gid);
    let may_set_gid = gid == UNCHANGED || (is_owner && (gid == attributes.gid || in_group));
    let of = (attributes.uid, attributes.gid);
    let permitted =
        credentials.is_privileged() || credentials.may_to_file(of, CAP_CHOWN) || (may_set_uid && may_set_gid);
    if !permitted {
        return Err(Errno::EPERM);
    }
    let Attributes { uid: old_uid, gid: old_gid, permissions, .. } = *attributes;
    attributes.uid = if uid == UNCHANGED { old_uid } else { uid };
    attributes.gid = if gid == UNCHANGED { old_gid } else { gid };
    if !inode.is_directory() {
        // A program does not stay set-id under a new owner. Set-gid without group execution means something else, and stays.
        let set_gid = if permissions & 0o010 != 0 { 0o2000 } else { 0 };
        attributes.permissions = permissions & !(0o4000 | set_gid);
    }
    attributes.changed = now;
    Ok(0)
}

/// fchownat(2)
pub fn chown(task: &Task, dirfd: i32, path_address: u64, owners: [u32; 2], flags: u32) -> SysResult {
    check_flags(flags, raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH)?;
    let dentry = Base::at(task, dirfd).resolve_with(&path(path_address)?, flags, last_link(flags))?;
    mount::check_writable(&dentry)?;
    set_owner(task, &dentry.inode, owners)
}

/// fchown(2)
pub fn fchown(task: &Task, fd: i32, owners: [u32; 2]) -> SysResult {
    set_owner(task, content_file(task, fd)?.inode(), owners)
}
