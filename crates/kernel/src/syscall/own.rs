//! Calls that Linux does not have. Their numbers are far above any that it gives out: they begin with "FOLD" in ASCII.

use linux_raw_sys::general as raw;

use super::memory::call;
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::refpage;
use crate::mm::{is_scarce, uaccess};
use crate::process::restore_point;

/// `refpage_create(const void *content, unsigned size, unsigned long flags)`.
const REFPAGE_CREATE: u64 = 0x464f_4c44;

/// `restore_point_set()`.
const RESTORE_POINT_SET: u64 = REFPAGE_CREATE + 1;
/// `restore_point_return(int value)`.
const RESTORE_POINT_RETURN: u64 = REFPAGE_CREATE + 2;
/// `restore_point_drop()`.
const RESTORE_POINT_DROP: u64 = REFPAGE_CREATE + 3;
/// `restore_point_changes(struct { u64 start, end; } *rows, size_t most)`.
const RESTORE_POINT_CHANGES: u64 = REFPAGE_CREATE + 4;

/// Rows that `restore_point_changes` writes at once, at most.
const MOST_ROWS: u64 = 1 << 16;

/// What does a call of that number, if it is one of these.
pub fn handler(number: u64) -> Option<Handler> {
    Some(match number {
        REFPAGE_CREATE => refpage_create,
        RESTORE_POINT_SET => restore_point_set,
        RESTORE_POINT_RETURN => restore_point_return,
        RESTORE_POINT_DROP => restore_point_drop,
        RESTORE_POINT_CHANGES => restore_point_changes,
        _ => return None,
    })
}

/// A descriptor, closed by exec, whose private mappings show `size` bytes of the caller's over and over until they are written to.
fn refpage_create(ctx: &mut SyscallContext<'_>) -> SysResult {
    if is_scarce() {
        return Err(Errno::ENOMEM);
    }
    let [content, size, flags, ..] = ctx.args;
    let reference = call(ctx, |caller| foldspace_linux::refpage_create(caller, content, size as u32, flags))?;
    let limit = ctx.task.process.limits.lock().soft(raw::RLIMIT_NOFILE) as usize;
    let file = refpage::create(reference);
    Ok(ctx.task.files.lock().insert_from(0, limit, file, AtExec::Close)? as usize)
}

/// 0; and again whenever the process goes back to it: then what it was given by `restore_point_return`.
fn restore_point_set(ctx: &mut SyscallContext<'_>) -> SysResult {
    restore_point::set(ctx.task, ctx.frame)?;
    Ok(0)
}

/// Does not return: the call of `restore_point_set` does, once more, with `value`, which is 1 to `INT_MAX`.
fn restore_point_return(ctx: &mut SyscallContext<'_>) -> SysResult {
    let value = ctx.args[0] as i32;
    if value <= 0 {
        return Err(Errno::EINVAL);
    }
    restore_point::go_back(ctx.task, ctx.frame)?;
    Ok(value as usize)
}

fn restore_point_drop(ctx: &mut SyscallContext<'_>) -> SysResult {
    if restore_point::forget(ctx.task) { Ok(0) } else { Err(Errno::ENOENT) }
}

/// The rows of pages that were stored to since the process was kept, upwards, as many as there is room for; how many there are.
fn restore_point_changes(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [to, most, ..] = ctx.args;
    let (rows, count) = restore_point::changes(ctx.task, most.min(MOST_ROWS) as usize)?;
    for (number, row) in rows.iter().enumerate() {
        let address = to.checked_add(16 * number as u64).ok_or(Errno::EFAULT)?;
        uaccess::write(address, &[row.start().get(), row.end().get()])?;
    }
    Ok(count)
}
