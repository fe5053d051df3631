//! Calls about nodes of memory (numa(7)): there is one, with number 0. What is asked for is checked as on Linux, kept and reported.

use foldspace::VirtAddr;
use syscalls::Sysno;

use super::memory::in_space;
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::Pid;
use crate::process::access::{AccessAs, may_access};
use crate::process::credentials::CAP_SYS_NICE;
use crate::process::policy::MemoryPolicy;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::set_mempolicy, set_mempolicy),
    (Sysno::get_mempolicy, get_mempolicy),
    (Sysno::mbind, mbind),
    (Sysno::migrate_pages, migrate_pages),
];

/// The nodes that there are.
const NODES: u64 = 1;
/// How many nodes a mask may name (`MAX_NUMNODES` of a distribution's Linux).
const MAX_NODES: u64 = 1024;

const F_NUMA_BALANCING: u32 = 1 << 13;
const F_RELATIVE_NODES: u32 = 1 << 14;
const F_STATIC_NODES: u32 = 1 << 15;
const F_ALL: u32 = F_NUMA_BALANCING | F_RELATIVE_NODES | F_STATIC_NODES;

const DEFAULT: u32 = 0;
const PREFERRED: u32 = 1;
const BIND: u32 = 2;
const INTERLEAVE: u32 = 3;
const LOCAL: u32 = 4;
/// The first number that is no mode (`MPOL_MAX`).
const MODES: u32 = 7;

/// A mask of nodes from a program (`get_nodes` of Linux's `mm/mempolicy.c`): the first 64; further ones must not be set.
fn read_nodes(address: u64, bits: u64) -> Result<u64, Errno> {
    let bits = bits.wrapping_sub(1);
    if bits == 0 || address == 0 {
        return Ok(0);
    }
    if bits > foldspace::addr::PAGE_SIZE * 8 {
        return Err(Errno::EINVAL);
    }
    let mut first = 0;
    for index in 0..bits.div_ceil(64) {
        let mut word: u64 = uaccess::read(address.wrapping_add(index * 8))?;
        let left = bits - index * 64;
        if left < 64 {
            word &= (1 << left) - 1;
        }
        if index * 64 >= MAX_NODES && word != 0 {
            return Err(Errno::EINVAL);
        }
        if index == 0 {
            first = word;
        }
    }
    Ok(first)
}

/// A policy from its parts (`sanitize_mpol_flags`, `mpol_new`, `mpol_set_nodemask`).
fn policy(mode: u32, nodes: impl FnOnce() -> Result<u64, Errno>) -> Result<MemoryPolicy, Errno> {
    let (mut mode, flags) = (mode & !F_ALL, mode & F_ALL);
    let fixed = flags & (F_STATIC_NODES | F_RELATIVE_NODES);
    if mode >= MODES || fixed == F_STATIC_NODES | F_RELATIVE_NODES || flags & F_NUMA_BALANCING != 0 && mode != BIND {
        return Err(Errno::EINVAL);
    }
    let given = nodes()?;
    match mode {
        DEFAULT if given != 0 => return Err(Errno::EINVAL),
        DEFAULT => return Ok(MemoryPolicy::default()),
        PREFERRED if given == 0 && fixed != 0 => return Err(Errno::EINVAL),
        PREFERRED if given == 0 => mode = LOCAL,
        LOCAL if given != 0 || fixed != 0 => return Err(Errno::EINVAL),
        LOCAL => {}
        _ if given == 0 => return Err(Errno::EINVAL),
        _ => {}
    }
    // Relative ones count round and round through those that there are.
    let nodes = if flags & F_RELATIVE_NODES != 0 && given != 0 { NODES } else { given & NODES };
    if mode != LOCAL && nodes == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(MemoryPolicy { mode, flags, given, nodes })
}

fn set_mempolicy(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [mode, mask, bits, ..] = ctx.args;
    let policy = policy(mode as u32, || read_nodes(mask, bits))?;
    *ctx.task.memory_policy.lock() = policy;
    Ok(0)
}

fn get_mempolicy(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [mode, mask, bits, address, flags, _] = ctx.args;
    let flags = flags as u32;
    const F_NODE: u32 = 1;
    const F_ADDR: u32 = 2;
    const F_MEMS_ALLOWED: u32 = 4;
    if mask != 0 && bits < u64::from(NODES.count_ones()) || flags & !(F_NODE | F_ADDR | F_MEMS_ALLOWED) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & F_MEMS_ALLOWED != 0 {
        if flags & (F_NODE | F_ADDR) != 0 {
            return Err(Errno::EINVAL);
        }
        return report(mode, 0, mask, bits, NODES);
    }
    let mut policy = *ctx.task.memory_policy.lock();
    if flags & F_ADDR != 0 {
        // What mbind says is not kept: areas have the default.
        policy = MemoryPolicy::default();
        let at = VirtAddr(address);
        let mapped =
            in_space(|space| space.vmas().view().find_at_or_after(at).is_some_and(|vma| vma.range.contains(at)))?;
        if !mapped {
            return Err(Errno::EFAULT);
        }
    } else if address != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & F_NODE != 0 {
        // The node of the page, which is faulted in for that, or the next one to interleave.
        if flags & F_ADDR != 0 {
            let mut byte = [0];
            uaccess::read_bytes(address, &mut byte)?;
        } else if policy.mode != INTERLEAVE {
            return Err(Errno::EINVAL);
        }
        return report(mode, 0, mask, bits, policy.nodes);
    }
    let remembered = policy.flags & (F_STATIC_NODES | F_RELATIVE_NODES) != 0;
    let nodes = if remembered { policy.given } else { policy.nodes };
    report(mode, policy.mode | policy.flags, mask, bits, nodes)
}

/// Writes what was asked for; addresses of 0 are for what was not.
fn report(mode: u64, value: u32, mask: u64, bits: u64, nodes: u64) -> SysResult {
    if mode != 0 {
        uaccess::write(mode, &value)?;
    }
    if mask != 0 {
        for index in 0..bits.wrapping_sub(1).div_ceil(64) {
            uaccess::write(mask.wrapping_add(index * 8), &if index == 0 { nodes } else { 0 })?;
        }
    }
    Ok(0)
}

/// Checks what is asked of a range; with one node there is nothing to remember that would make a difference.
fn mbind(ctx: &mut SyscallContext<'_>) -> SysResult {
    const STRICT: u32 = 1;
    const MOVE: u32 = 2;
    const MOVE_ALL: u32 = 4;
    let [start, len, mode, mask, bits, flags] = ctx.args;
    let flags = flags as u32;
    let policy = policy(mode as u32, || read_nodes(mask, bits))?;
    if flags & !(STRICT | MOVE | MOVE_ALL) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MOVE_ALL != 0 && !ctx.task.credentials().may(CAP_SYS_NICE) {
        return Err(Errno::EPERM);
    }
    if !start.is_multiple_of(super::memory::PAGE) {
        return Err(Errno::EINVAL);
    }
    let len = super::memory::round_up(len).ok_or(Errno::EINVAL)?;
    let end = start.checked_add(len).ok_or(Errno::EINVAL)?;
    let whole = in_space(|space| {
        let version = space.vmas();
        let mut at = start;
        for vma in version.view().iter().filter(|vma| vma.end().get() > start) {
            if vma.start().get() > at || at >= end {
                break;
            }
            at = vma.end().get();
        }
        at >= end
    })?;
    // The default may be set where nothing is.
    if len != 0 && !whole && policy.mode != DEFAULT {
        return Err(Errno::EFAULT);
    }
    Ok(0)
}

/// There is nowhere to move anything.
fn migrate_pages(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, bits, from, to, ..] = ctx.args;
    read_nodes(from, bits)?;
    let to = read_nodes(to, bits)?;
    let task = match pid as Pid {
        0 => ctx.task.clone(),
        pid => ctx.task.find(pid).ok_or(Errno::ESRCH)?,
    };
    if !may_access(ctx.task, &task, AccessAs::Real) {
        return Err(Errno::EPERM);
    }
    if to & NODES == 0 { Err(Errno::EINVAL) } else { Ok(0) }
}
