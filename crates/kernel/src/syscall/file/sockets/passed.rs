//! What goes along with the bytes of local sockets (unix(7), cmsg(3)): open files and who sends.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use linux_raw_sys::net;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::descriptor_limit;
use crate::errno::Errno;
use crate::fs::File;
use crate::fs::fdtable::AtExec;
use crate::fs::socket::{Owner, Parcel, Socket};
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::credentials::{CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN};
use crate::process::user_namespace::Ids;

/// `SCM_RIGHTS`, `SCM_CREDENTIALS`.
const RIGHTS: u32 = 1;
const CREDENTIALS: u32 = 2;
/// Most files that one message takes (`SCM_MAX_FD`).
const FILES_MAX: usize = 253;
/// Bytes of control messages that one call takes (`net.core.optmem_max`).
const CONTROL_MAX: u64 = 20_480;

/// `struct cmsghdr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ControlHeader {
    len: u64,
    level: u32,
    kind: u32,
}

/// Control messages begin at multiples of this.
const ALIGNMENT: u64 = 8;
const HEADER: u64 = size_of::<ControlHeader>() as u64;

/// Nothing but who sends.
pub fn nothing(socket: &Socket) -> Parcel {
    Parcel { sender: Some(Owner::current()), ..Parcel::from(socket.name()) }
}

/// Reads the control messages of a call that sends.
///
/// # Errors
/// `EINVAL`: malformed, or too many files. `EBADF`. `EPERM`: somebody else's credentials. `ENOBUFS`: too long.
pub fn read(task: &Task, socket: &Socket, control: u64, len: u64) -> Result<Parcel, Errno> {
    let mut parcel = nothing(socket);
    if len == 0 {
        return Ok(parcel);
    }
    if len > CONTROL_MAX {
        return Err(Errno::ENOBUFS);
    }
    let mut files = Vec::new();
    let mut at = 0;
    while len - at >= HEADER {
        let header: ControlHeader = uaccess::read(control + at)?;
        if header.len < HEADER || header.len > len - at {
            return Err(Errno::EINVAL);
        }
        let (data, bytes) = (control + at + HEADER, header.len - HEADER);
        if header.level == net::SOL_SOCKET && socket.inet().is_none() {
            match header.kind {
                RIGHTS => take_files(task, data, bytes, &mut files)?,
                CREDENTIALS if bytes == size_of::<[u32; 3]>() as u64 => {
                    parcel.sender = Some(credentials(task, uaccess::read(data)?)?);
                }
                _ => return Err(Errno::EINVAL),
            }
        }
        at = (at + header.len).next_multiple_of(ALIGNMENT).min(len);
    }
    if !files.is_empty() {
        parcel.files = files.into();
    }
    Ok(parcel)
}

fn take_files(task: &Task, data: u64, bytes: u64, files: &mut Vec<Arc<File>>) -> Result<(), Errno> {
    let count = bytes as usize / size_of::<i32>();
    if files.len() + count > FILES_MAX {
        return Err(Errno::EINVAL);
    }
    files.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    for index in 0..count as u64 {
        let fd: i32 = uaccess::read(data + index * size_of::<i32>() as u64)?;
        files.push(task.files.lock().get(fd)?);
    }
    Ok(())
}

/// A program may say that it is itself, in any of its roles (`scm_check_creds`).
fn credentials(task: &Task, [pid, uid, gid]: [u32; 3]) -> Result<Owner, Errno> {
    let own = task.credentials();
    let known = task.pid_of(pid);
    let id_of = |ids, number| own.user_namespace.id_of(ids, number).ok_or(Errno::EINVAL);
    let (uid, gid) = (id_of(Ids::Users, uid)?, id_of(Ids::Groups, gid)?);
    let fits = (known == Some(task.tgid) || own.may_in(&task.process.pid_namespace.owner, CAP_SYS_ADMIN))
        && ([own.uid, own.euid, own.suid].contains(&uid) || own.may_here(CAP_SETUID))
        && ([own.gid, own.egid, own.sgid].contains(&gid) || own.may_here(CAP_SETGID));
    if !fits {
        return Err(Errno::EPERM);
    }
    Ok(Owner { pid: known.ok_or(Errno::ESRCH)?, uid, gid })
}

/// Writes what came along as far as there is room; returns the bytes written and the flags that say what was lost.
pub fn write(
    task: &Task,
    socket: &Socket,
    parcel: Option<&Parcel>,
    (control, room): (u64, u64),
    flags: u32,
) -> Result<(u64, u32), Errno> {
    let Some(parcel) = parcel else { return Ok((0, 0)) };
    let (mut at, mut lost) = (0, 0);
    let room = if control == 0 { 0 } else { room };
    if socket.options.wants_credentials.load(Ordering::Relaxed) && socket.inet().is_none() {
        let sender = parcel.sender.map_or([0, 65_534, 65_534], |owner| owner.shown_to(task));
        let len = HEADER + size_of_val(&sender) as u64;
        if room < HEADER {
            lost = net::MSG_CTRUNC;
        } else {
            // What does not fit is cut, and the header says so (`put_cmsg`).
            let len = len.min(room);
            lost = if len < HEADER + size_of_val(&sender) as u64 { net::MSG_CTRUNC } else { 0 };
            uaccess::write(control, &ControlHeader { len, level: net::SOL_SOCKET, kind: CREDENTIALS })?;
            uaccess::write_bytes(control + HEADER, &sender.as_bytes()[..(len - HEADER) as usize])?;
            at = len.next_multiple_of(ALIGNMENT).min(room);
        }
    }
    if parcel.files.is_empty() {
        return Ok((at, lost));
    }
    let fits = (room - at).saturating_sub(HEADER) as usize / size_of::<i32>();
    let at_exec = AtExec::from_flag(flags, net::MSG_CMSG_CLOEXEC);
    let mut given = 0;
    let limit = descriptor_limit(task);
    for file in parcel.files.iter().take(fits) {
        let Ok(fd) = task.files.lock().insert_from(0, limit, file.clone(), at_exec) else { break };
        let place = control + at + HEADER + given as u64 * size_of::<i32>() as u64;
        if uaccess::write(place, &fd).is_err() {
            let removed = task.files.lock().remove(fd);
            drop(removed);
            break;
        }
        given += 1;
    }
    if given < parcel.files.len() {
        lost |= net::MSG_CTRUNC;
    }
    if given > 0 {
        let len = HEADER + (given * size_of::<i32>()) as u64;
        uaccess::write(control + at, &ControlHeader { len, level: net::SOL_SOCKET, kind: RIGHTS })?;
        at = (at + len).next_multiple_of(ALIGNMENT).min(room);
    }
    Ok((at, lost))
}
