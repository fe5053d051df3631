//! What threads share: `unshare`, `setns`, `kcmp`.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;
use smallvec::SmallVec;
use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::fs::path::FsContext;
use crate::mm::uaccess;
use crate::process::access::{AccessAs, may_access};
use crate::process::credentials::{CAP_SYS_ADMIN, CAP_SYS_CHROOT};
use crate::process::namespaces::{self, Namespace, NamespaceKind, Namespaces};
use crate::process::{Pid, Task};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::unshare, unshare), (Sysno::setns, setns), (Sysno::kcmp, kcmp)];

/// All kinds of namespaces.
const NAMESPACES: u32 = namespaces::KNOWN;

/// unshare(2).
fn unshare(ctx: &mut SyscallContext<'_>) -> SysResult {
    const PARTS: u32 =
        raw::CLONE_THREAD | raw::CLONE_FS | raw::CLONE_SIGHAND | raw::CLONE_VM | raw::CLONE_FILES | raw::CLONE_SYSVSEM;
    let flags = ctx.args[0];
    if flags & !u64::from(PARTS | NAMESPACES) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut flags = flags as u32;
    let task = ctx.task;
    if flags & raw::CLONE_NEWUSER != 0 {
        flags |= raw::CLONE_THREAD | raw::CLONE_FS;
    }
    // Each of these means those before it, and none can be had while it is shared (`check_unshare_flags`).
    if flags & (raw::CLONE_THREAD | raw::CLONE_SIGHAND | raw::CLONE_VM) != 0 {
        let alone = task.process.threads.lock().len() == 1;
        let handlers_alone = task.process.handlers.is_exclusive();
        let with_handlers = flags & (raw::CLONE_SIGHAND | raw::CLONE_VM) != 0;
        if !alone || with_handlers && !handlers_alone || flags & raw::CLONE_VM != 0 && task.shares_space() {
            return Err(Errno::EINVAL);
        }
    }
    let credentials = namespaces::prepare(flags & NAMESPACES, task)?;
    let owner =
        credentials.as_ref().map_or_else(|| task.credentials().user_namespace, |new| new.user_namespace.clone());
    if flags & namespaces::KNOWN != 0 {
        let now = task.namespaces.lock().clone();
        let mut context = task.fs.lock().clone();
        let new = now.with_new(flags, task, &owner, &mut context)?;
        let before = core::mem::replace(&mut *task.namespaces.lock(), new);
        drop((before, now));
        if flags & raw::CLONE_NEWNS != 0 {
            // New mounts are for one's own root and current directory.
            drop(task.fs.replace(context));
        }
    }
    if let Some(credentials) = credentials {
        task.set_credentials(credentials);
    }
    if flags & raw::CLONE_FS != 0 {
        task.fs.unshare();
    }
    if flags & raw::CLONE_FILES != 0 {
        task.files.unshare();
    }
    Ok(0)
}

/// setns(2): into a namespace that a file stands for, or some of those of the process that a pidfd does.
fn setns(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [fd, wanted, ..] = ctx.args;
    let wanted = wanted as u32;
    let file = ctx.task.files.lock().get(fd as i32)?;
    let mut entered = SmallVec::<[Namespace; 8]>::new();
    if let Some(namespace) = file.body.namespace() {
        if wanted != 0 && wanted != namespace.flag() {
            return Err(Errno::EINVAL);
        }
        entered.push(namespace.clone());
    } else if let Some(pidfd) = file.body.pidfd() {
        if wanted == 0 || wanted & !namespaces::KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        let target = pidfd.of().leader().ok_or(Errno::ESRCH)?;
        if !may_access(ctx.task, &target, AccessAs::Real) {
            return Err(Errno::EPERM);
        }
        let kinds = [
            NamespaceKind::Uts,
            NamespaceKind::Ipc,
            NamespaceKind::Mnt,
            NamespaceKind::Cgroup,
            NamespaceKind::Net,
            NamespaceKind::Pid,
            NamespaceKind::User,
            NamespaceKind::Time,
        ];
        let all = kinds.into_iter().filter_map(|kind| Namespaces::of(&target, kind));
        entered.extend(all.filter(|namespace| wanted & namespace.flag() != 0));
    } else {
        return Err(Errno::EINVAL);
    }
    let (task, mut credentials) = (ctx.task, ctx.task.credentials());
    // Of users first: whoever enters it may enter what belongs to it (`userns_install`).
    for namespace in &entered {
        let Namespace::User(user) = namespace else { continue };
        let alone = task.process.threads.lock().len() == 1 && task.fs.is_exclusive();
        if Arc::ptr_eq(user, &credentials.user_namespace) || !alone {
            return Err(Errno::EINVAL);
        }
        if !credentials.may_in(user, CAP_SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        credentials = credentials.all_powerful_in(user.clone());
    }
    for namespace in entered.iter().filter(|namespace| !matches!(namespace, Namespace::User(_))) {
        if matches!(namespace, Namespace::Time(_)) && task.process.threads.lock().len() != 1 {
            return Err(Errno::EUSERS);
        }
        let may = |capability| {
            credentials.may_here(capability)
                && namespace.owner().is_none_or(|owner| credentials.may_in(owner, capability))
        };
        if !may(CAP_SYS_ADMIN) || matches!(namespace, Namespace::Mnt(_)) && !credentials.may_here(CAP_SYS_CHROOT) {
            return Err(Errno::EPERM);
        }
    }
    // Of processes, only into one's own namespace or one below it (`pidns_install`).
    let above = &ctx.task.process.pid_namespace;
    if entered.iter().any(|namespace| matches!(namespace, Namespace::Pid(pid) if !pid.is_within(above))) {
        return Err(Errno::EINVAL);
    }
    let mounts = entered.iter().find_map(|namespace| match namespace {
        Namespace::Mnt(mnt) => Some(mnt.root().uncovered()),
        _ => None,
    });
    if mounts.is_some() && !ctx.task.fs.is_exclusive() {
        return Err(Errno::EINVAL);
    }
    let enters_users = entered.iter().any(|namespace| matches!(namespace, Namespace::User(_)));
    let before = ctx.task.namespaces.lock().clone();
    let mut new = Namespaces::clone(&before);
    for namespace in entered {
        new.enter(namespace);
    }
    *ctx.task.namespaces.lock() = Arc::new(new);
    if enters_users {
        task.set_credentials(credentials);
    }
    if let Some(root) = mounts {
        let umask = ctx.task.fs.lock().umask;
        drop(ctx.task.fs.replace(FsContext { cwd: root.clone(), root, umask }));
    }
    Ok(0)
}

/// The task of a number. `ESRCH`.
fn task(ctx: &SyscallContext<'_>, pid: u64) -> Result<Arc<Task>, Errno> {
    ctx.task.find(pid as Pid).ok_or(Errno::ESRCH)
}

/// kcmp(2): 0 if both use the same, 1 and 2 for an order among those that do not.
fn kcmp(ctx: &mut SyscallContext<'_>) -> SysResult {
    const FILE: u32 = 0;
    const VM: u32 = 1;
    const FILES: u32 = 2;
    const FS: u32 = 3;
    const SIGHAND: u32 = 4;
    const IO: u32 = 5;
    const SYSVSEM: u32 = 6;
    const EPOLL_TARGET: u32 = 7;
    let [first, second, kind, index1, index2, _] = ctx.args;
    let (first, second) = (task(ctx, first)?, task(ctx, second)?);
    if ![&first, &second].into_iter().all(|task| may_access(ctx.task, task, AccessAs::Real)) {
        return Err(Errno::EPERM);
    }
    if kind as u32 == EPOLL_TARGET {
        let [set, fd, offset]: [u32; 3] = uaccess::read(index2)?;
        let file = first.files.lock().get(index1 as i32)?;
        let set = second.files.lock().get(set as i32)?;
        let epoll = set.body.epoll().ok_or(Errno::EINVAL)?;
        let target = epoll.target(fd as i32, offset as usize).ok_or(Errno::ENOENT)?;
        return Ok(order(&(Arc::as_ptr(&file) as usize), &(Arc::as_ptr(&target) as usize)));
    }
    let key = |task: &Arc<Task>, index: u64| -> Result<usize, Errno> {
        Ok(match kind as u32 {
            FILE => Arc::as_ptr(&task.files.lock().get(index as i32)?) as usize,
            VM => Arc::as_ptr(&task.space()) as usize,
            FILES => task.files.identity(),
            FS => task.fs.identity(),
            SIGHAND => task.process.handlers.identity(),
            // Nobody has any of these.
            IO | SYSVSEM => 0,
            _ => return Err(Errno::EINVAL),
        })
    };
    Ok(order(&key(&first, index1)?, &key(&second, index2)?))
}

fn order(first: &usize, second: &usize) -> usize {
    match first.cmp(second) {
        core::cmp::Ordering::Equal => 0,
        core::cmp::Ordering::Less => 1,
        core::cmp::Ordering::Greater => 2,
    }
}
