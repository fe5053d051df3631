//! Who a process is and belongs to: numbers, groups, sessions, users, capabilities.

use alloc::sync::Arc;
use alloc::vec::Vec;

use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::credentials::{ALL_CAPABILITIES, CAP_SETGID, CAP_SETUID, Capabilities, Credentials};
use crate::process::user_namespace::Ids;
use crate::process::{Pid, tree};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::getpid, |ctx| told(ctx, ctx.task.tgid)),
    (Sysno::gettid, |ctx| told(ctx, ctx.task.pid)),
    (Sysno::getppid, |ctx| told(ctx, ctx.task.ppid())),
    (Sysno::getpgrp, |ctx| told(ctx, ctx.task.process.pgid())),
    (Sysno::getpgid, getpgid),
    (Sysno::setpgid, setpgid),
    (Sysno::getsid, getsid),
    (Sysno::setsid, setsid),
    (Sysno::getuid, |ctx| user(ctx, |ids| ids.uid)),
    (Sysno::geteuid, |ctx| user(ctx, |ids| ids.euid)),
    (Sysno::getgid, |ctx| group(ctx, |ids| ids.gid)),
    (Sysno::getegid, |ctx| group(ctx, |ids| ids.egid)),
    (Sysno::getresuid, getresuid),
    (Sysno::getresgid, getresgid),
    (Sysno::setuid, setuid),
    (Sysno::setgid, setgid),
    (Sysno::setreuid, setreuid),
    (Sysno::setregid, setregid),
    (Sysno::setresuid, setresuid),
    (Sysno::setresgid, setresgid),
    (Sysno::setfsuid, setfsuid),
    (Sysno::setfsgid, setfsgid),
    (Sysno::getgroups, getgroups),
    (Sysno::setgroups, setgroups),
    (Sysno::capget, capget),
    (Sysno::capset, capset),
];

/// "Leave as it is" in the calls that set ids.
const KEEP: u32 = u32::MAX;
/// `NGROUPS_MAX`.
const MAX_GROUPS: usize = 65_536;

/// A user as the caller is shown it.
fn user(ctx: &SyscallContext<'_>, which: fn(&Credentials) -> u32) -> SysResult {
    let ids = ctx.task.credentials();
    Ok(ids.shown_user(which(&ids)) as usize)
}

/// A group as the caller is shown it.
fn group(ctx: &SyscallContext<'_>, which: fn(&Credentials) -> u32) -> SysResult {
    let ids = ctx.task.credentials();
    Ok(ids.shown_group(which(&ids)) as usize)
}

/// A pid as the caller counts.
fn told(ctx: &SyscallContext<'_>, pid: Pid) -> SysResult {
    Ok(ctx.task.number_of(pid) as usize)
}

/// A pid argument of which 0 means the caller.
fn process_of(ctx: &SyscallContext<'_>, pid: u64) -> Result<Pid, Errno> {
    match pid as i32 {
        0 => Ok(ctx.task.tgid),
        ..0 => Err(Errno::ESRCH),
        pid => ctx.task.pid_of(pid as Pid).ok_or(Errno::ESRCH),
    }
}

fn getpgid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let pid = process_of(ctx, ctx.args[0])?;
    told(ctx, tree::process_of_thread(pid).ok_or(Errno::ESRCH)?.pgid())
}

fn setpgid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, pgid, ..] = ctx.args;
    if (pgid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let pid = process_of(ctx, pid)?;
    // A number that nobody has is no group's either.
    let pgid = if pgid as i32 == 0 { pid } else { ctx.task.pid_of(pgid as Pid).unwrap_or(0) };
    tree::set_group(&ctx.task.process, pid, pgid)?;
    Ok(0)
}

fn getsid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let pid = process_of(ctx, ctx.args[0])?;
    told(ctx, tree::process_of_thread(pid).ok_or(Errno::ESRCH)?.sid())
}

fn setsid(ctx: &mut SyscallContext<'_>) -> SysResult {
    told(ctx, tree::new_session(&ctx.task.process)?)
}

fn write_three(addresses: &[u64; 6], values: [u32; 3]) -> SysResult {
    for (address, value) in addresses.iter().zip(values) {
        uaccess::write(*address, &value)?;
    }
    Ok(0)
}

fn getresuid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let ids = ctx.task.credentials();
    write_three(&ctx.args, [ids.uid, ids.euid, ids.suid].map(|id| ids.shown_user(id)))
}

fn getresgid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let ids = ctx.task.credentials();
    write_three(&ctx.args, [ids.gid, ids.egid, ids.sgid].map(|id| ids.shown_group(id)))
}

/// Changes the caller's user ids and what follows from them.
fn change_user(ctx: &SyscallContext<'_>, change: impl FnOnce(&mut Credentials) -> Result<(), Errno>) -> SysResult {
    let before = ctx.task.credentials();
    let mut after = before.clone();
    change(&mut after)?;
    after.fsuid = after.euid;
    after.user_ids_changed(&before);
    ctx.task.set_credentials(after);
    Ok(0)
}

fn change_group(ctx: &SyscallContext<'_>, change: impl FnOnce(&mut Credentials) -> Result<(), Errno>) -> SysResult {
    let mut after = ctx.task.credentials();
    change(&mut after)?;
    after.fsgid = after.egid;
    ctx.task.set_credentials(after);
    Ok(0)
}

/// `EPERM` unless one of `allowed` is `id`.
fn one_of(id: u32, allowed: &[u32]) -> Result<(), Errno> {
    if allowed.contains(&id) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Which id the caller means. `EINVAL`: none.
fn id(ctx: &SyscallContext<'_>, ids: Ids, value: u64) -> Result<u32, Errno> {
    ctx.task.credentials().user_namespace.id_of(ids, value as u32).ok_or(Errno::EINVAL)
}

/// The same, where [`KEEP`] stays.
fn id_or_keep(ctx: &SyscallContext<'_>, ids: Ids, value: u64) -> Result<u32, Errno> {
    if value as u32 == KEEP { Ok(KEEP) } else { id(ctx, ids, value) }
}

/// Whether the caller may become any user,
fn may_be_any(ids: &Credentials) -> bool {
    ids.may_here(CAP_SETUID)
}

/// or be in any group.
fn may_be_in_any(ids: &Credentials) -> bool {
    ids.may_here(CAP_SETGID)
}

fn setuid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let uid = id(ctx, Ids::Users, ctx.args[0])?;
    change_user(ctx, |ids| {
        if may_be_any(ids) {
            (ids.uid, ids.suid) = (uid, uid);
        } else {
            one_of(uid, &[ids.uid, ids.suid])?;
        }
        ids.euid = uid;
        Ok(())
    })
}

fn setgid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let gid = id(ctx, Ids::Groups, ctx.args[0])?;
    change_group(ctx, |ids| {
        if may_be_in_any(ids) {
            (ids.gid, ids.sgid) = (gid, gid);
        } else {
            one_of(gid, &[ids.gid, ids.sgid])?;
        }
        ids.egid = gid;
        Ok(())
    })
}

fn setreuid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let real = id_or_keep(ctx, Ids::Users, ctx.args[0])?;
    let effective = id_or_keep(ctx, Ids::Users, ctx.args[1])?;
    change_user(ctx, |ids| {
        let old = ids.clone();
        if real != KEEP {
            if !may_be_any(&old) {
                one_of(real, &[old.uid, old.euid])?;
            }
            ids.uid = real;
        }
        if effective != KEEP {
            if !may_be_any(&old) {
                one_of(effective, &[old.uid, old.euid, old.suid])?;
            }
            ids.euid = effective;
        }
        if real != KEEP || effective != KEEP && effective != old.uid {
            ids.suid = ids.euid;
        }
        Ok(())
    })
}

fn setregid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let real = id_or_keep(ctx, Ids::Groups, ctx.args[0])?;
    let effective = id_or_keep(ctx, Ids::Groups, ctx.args[1])?;
    change_group(ctx, |ids| {
        let old = ids.clone();
        if real != KEEP {
            if !may_be_in_any(&old) {
                one_of(real, &[old.gid, old.egid])?;
            }
            ids.gid = real;
        }
        if effective != KEEP {
            if !may_be_in_any(&old) {
                one_of(effective, &[old.gid, old.egid, old.sgid])?;
            }
            ids.egid = effective;
        }
        if real != KEEP || effective != KEEP && effective != old.gid {
            ids.sgid = ids.egid;
        }
        Ok(())
    })
}

fn setresuid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [first, second, third, ..] = ctx.args;
    let wanted = |value| id_or_keep(ctx, Ids::Users, value);
    let wanted = [wanted(first)?, wanted(second)?, wanted(third)?];
    change_user(ctx, |ids| {
        let (old, privileged) = ([ids.uid, ids.euid, ids.suid], may_be_any(ids));
        for (slot, value) in [&mut ids.uid, &mut ids.euid, &mut ids.suid].into_iter().zip(wanted) {
            if value != KEEP {
                if !privileged {
                    one_of(value, &old)?;
                }
                *slot = value;
            }
        }
        Ok(())
    })
}

fn setresgid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [first, second, third, ..] = ctx.args;
    let wanted = |value| id_or_keep(ctx, Ids::Groups, value);
    let wanted = [wanted(first)?, wanted(second)?, wanted(third)?];
    change_group(ctx, |ids| {
        let (old, privileged) = ([ids.gid, ids.egid, ids.sgid], may_be_in_any(ids));
        for (slot, value) in [&mut ids.gid, &mut ids.egid, &mut ids.sgid].into_iter().zip(wanted) {
            if value != KEEP {
                if !privileged {
                    one_of(value, &old)?;
                }
                *slot = value;
            }
        }
        Ok(())
    })
}

/// Returns the id before, whether or not it could be changed.
fn setfsuid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let mut ids = ctx.task.credentials();
    let old = ids.shown_user(ids.fsuid);
    if let Ok(new) = id(ctx, Ids::Users, ctx.args[0])
        && (may_be_any(&ids) || [ids.uid, ids.euid, ids.suid, ids.fsuid].contains(&new))
    {
        ids.fsuid = new;
        ctx.task.set_credentials(ids);
    }
    Ok(old as usize)
}

/// Returns the id before, whether or not it could be changed.
fn setfsgid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let mut ids = ctx.task.credentials();
    let old = ids.shown_group(ids.fsgid);
    if let Ok(new) = id(ctx, Ids::Groups, ctx.args[0])
        && (may_be_in_any(&ids) || [ids.gid, ids.egid, ids.sgid, ids.fsgid].contains(&new))
    {
        ids.fsgid = new;
        ctx.task.set_credentials(ids);
    }
    Ok(old as usize)
}

fn getgroups(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [size, list, ..] = ctx.args;
    let size = usize::try_from(size as i32).map_err(|_| Errno::EINVAL)?;
    let ids = ctx.task.credentials();
    let groups = &ids.groups;
    if size != 0 {
        if groups.len() > size {
            return Err(Errno::EINVAL);
        }
        for (index, group) in groups.iter().enumerate() {
            uaccess::write(list.wrapping_add(4 * index as u64), &ids.shown_group(*group))?;
        }
    }
    Ok(groups.len())
}

fn setgroups(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [size, list, ..] = ctx.args;
    let mut ids = ctx.task.credentials();
    if !may_be_in_any(&ids) || !ids.user_namespace.may_set_groups() {
        return Err(Errno::EPERM);
    }
    let size = usize::try_from(size as u32).map_err(|_| Errno::EINVAL)?;
    if size > MAX_GROUPS {
        return Err(Errno::EINVAL);
    }
    let mut groups = Vec::new();
    groups.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
    for index in 0..size {
        let number = uaccess::read::<u32>(list.wrapping_add(4 * index as u64))?;
        groups.push(id(ctx, Ids::Groups, number.into())?);
    }
    ids.groups = Arc::from(groups);
    ctx.task.set_credentials(ids);
    Ok(0)
}

/// `_LINUX_CAPABILITY_VERSION_1`, which has 32 bits; 2 and 3 have 64.
const VERSION_1: u32 = 0x1998_0330;
const VERSION_2: u32 = 0x2007_1026;
const VERSION_3: u32 = 0x2008_0522;

/// Checks the version in a header, and how many words per set it has. An unknown one is answered with the one preferred.
fn capability_words(header: u64) -> Result<usize, Errno> {
    match uaccess::read::<u32>(header)? {
        VERSION_1 => Ok(1),
        VERSION_2 | VERSION_3 => Ok(2),
        _ => {
            uaccess::write(header, &VERSION_3)?;
            Err(Errno::EINVAL)
        }
    }
}

fn capget(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [header, data, ..] = ctx.args;
    let words = match capability_words(header) {
        // Asking for the version only is no error.
        Err(Errno::EINVAL) if data == 0 => return Ok(0),
        words => words?,
    };
    let pid: i32 = uaccess::read(header.wrapping_add(4))?;
    if pid < 0 {
        return Err(Errno::EINVAL);
    }
    let sets = match pid {
        0 => ctx.task.credentials().capabilities,
        pid => ctx.task.find(pid as Pid).ok_or(Errno::ESRCH)?.credentials().capabilities,
    };
    if data == 0 {
        return Ok(0);
    }
    for word in 0..words {
        let part = |set: u64| (set >> (32 * word)) as u32;
        let record = [part(sets.effective), part(sets.permitted), part(sets.inheritable)];
        uaccess::write(data.wrapping_add(12 * word as u64), &record)?;
    }
    Ok(0)
}

fn capset(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [header, data, ..] = ctx.args;
    let words = capability_words(header)?;
    let pid: i32 = uaccess::read(header.wrapping_add(4))?;
    if pid != 0 && pid as Pid != ctx.task.own_number() {
        return Err(Errno::EPERM);
    }
    let old = ctx.task.credentials().capabilities;
    let mut sets = Capabilities { effective: 0, permitted: 0, inheritable: 0, ..old };
    for word in 0..words {
        let [effective, permitted, inheritable] = uaccess::read::<[u32; 3]>(data.wrapping_add(12 * word as u64))?;
        let part = |bits: u32| u64::from(bits) << (32 * word);
        sets.effective |= part(effective);
        sets.permitted |= part(permitted);
        sets.inheritable |= part(inheritable);
    }
    sets.effective &= ALL_CAPABILITIES;
    sets.permitted &= ALL_CAPABILITIES;
    sets.inheritable &= ALL_CAPABILITIES;
    let mut ids = ctx.task.credentials();
    if sets.permitted & !old.permitted != 0
        || sets.effective & !sets.permitted != 0
        || sets.inheritable & !(old.inheritable | old.permitted) != 0
        || sets.inheritable & !(old.inheritable | old.bounding) != 0
    {
        return Err(Errno::EPERM);
    }
    sets.ambient &= sets.permitted & sets.inheritable;
    ids.capabilities = sets;
    ctx.task.set_credentials(ids);
    Ok(0)
}
