//! System V message queues (msgget(2), msgop(2), msgctl(2)).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::sync::Mutex;
use syscalls::Sysno;

use super::{Guarded, IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, Permissions, Shown, current, now};
use crate::errno::Errno;
use crate::fs::procfs::system::Text;
use crate::fs::reserve;
use crate::mm::uaccess;
use crate::process::Pid;
use crate::sched::{self, WaitQueue};
use crate::syscall::{Handler, SysResult, SyscallContext};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] =
    &[(Sysno::msgget, msgget), (Sysno::msgsnd, msgsnd), (Sysno::msgrcv, msgrcv), (Sysno::msgctl, msgctl)];

/// Linux's limits (`linux/msg.h`): bytes of a message, bytes in a queue, queues.
pub const LONGEST: usize = 8192;
pub const QUEUE_BYTES: usize = 16_384;
pub const QUEUES: usize = 32_000;

const MSG_NOERROR: u32 = 0o10000;
const MSG_EXCEPT: u32 = 0o20000;
const MSG_COPY: u32 = 0o40000;
const MSG_STAT: u32 = 11;
const MSG_INFO: u32 = 12;
const MSG_STAT_ANY: u32 = 13;

#[derive(Clone)]
struct Message {
    kind: i64,
    bytes: Vec<u8>,
}

struct State {
    permissions: Permissions,
    messages: VecDeque<Message>,
    bytes: usize,
    most: usize,
    sent: (u64, Pid),
    received: (u64, Pid),
    changed: u64,
    removed: bool,
}

/// Appends `/proc/sysvipc/msg`: the queues of the current thread's namespace.
pub fn table(text: &mut Text<'_>) {
    text.bytes(b"       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n");
    for (id, queue) in current().messages.numbered() {
        let state = queue.state.lock();
        let Shown { key, mode, owners: [uid, gid, cuid, cgid] } = state.permissions.shown();
        let number = |pid: Pid| sched::with_current(|task| task.number_of(pid));
        text.put(format_args!(
            "{key:>10} {id:>10}  {mode:>4o}  {:>10} {:>10} {:>5} {:>5} {uid:>5} {gid:>5} {cuid:>5} {cgid:>5} {:>10} {:>10} {:>10}\n",
            state.bytes,
            state.messages.len(),
            number(state.sent.1),
            number(state.received.1),
            state.sent.0,
            state.received.0,
            state.changed,
        ));
    }
}

/// A queue.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: WaitQueue,
}

impl Guarded for Queue {
    fn permissions(&self) -> Permissions {
        self.state.lock().permissions
    }
}

fn msgget(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [key, flags, ..] = ctx.args;
    let make = |permissions| {
        let state = State {
            permissions,
            messages: VecDeque::new(),
            bytes: 0,
            most: QUEUE_BYTES,
            sent: (0, 0),
            received: (0, 0),
            changed: now(),
            removed: false,
        };
        Ok(Queue { state: Mutex::new(state), changed: WaitQueue::new() })
    };
    current().messages.get(key as i32, flags as u32, &ctx.task.credentials(), |_| Ok(()), make)
}

/// Waits for `attempt`; a queue that goes away meanwhile is `EIDRM`.
fn wait<T>(
    queue: &Queue,
    flags: u32,
    busy: Errno,
    mut attempt: impl FnMut(&mut State) -> Option<T>,
) -> Result<T, Errno> {
    let mut look = || {
        let mut state = queue.state.lock();
        if state.removed { Some(Err(Errno::EIDRM)) } else { attempt(&mut state).map(Ok) }
    };
    let done = match look() {
        Some(done) => done,
        None if flags & IPC_NOWAIT != 0 => return Err(busy),
        None => queue.changed.wait_until(look).map_err(|_| Errno::ERESTARTNOHAND)?,
    }?;
    queue.changed.wake_all();
    Ok(done)
}

fn msgsnd(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [id, address, len, flags, ..] = ctx.args;
    let kind: i64 = uaccess::read(address)?;
    let len = usize::try_from(len as i64).ok().filter(|&len| len <= LONGEST).ok_or(Errno::EINVAL)?;
    if (id as i32) < 0 || kind < 1 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = reserve::room_for(len)?;
    bytes.resize(len, 0);
    uaccess::read_bytes(address.wrapping_add(8), &mut bytes)?;
    let queue = current().messages.find(id as i32)?;
    queue.permissions().permit(&ctx.task.credentials(), 2)?;
    let mut message = Some(Message { kind, bytes });
    wait(&queue, flags as u32, Errno::EAGAIN, |state| {
        if state.bytes + len > state.most || state.messages.len() >= state.most {
            return None;
        }
        state.messages.extend(message.take());
        state.bytes += len;
        state.sent = (now(), ctx.task.tgid);
        Some(())
    })?;
    Ok(0)
}

fn msgrcv(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [id, address, room, kind, flags, _] = ctx.args;
    let (kind, flags) = (kind as i64, flags as u32);
    let room = usize::try_from(room as i64).map_err(|_| Errno::EINVAL)?;
    if (id as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let copies = flags & MSG_COPY != 0;
    if copies && flags & (MSG_EXCEPT | IPC_NOWAIT) != IPC_NOWAIT {
        return Err(Errno::EINVAL);
    }
    let queue = current().messages.find(id as i32)?;
    queue.permissions().permit(&ctx.task.credentials(), 4)?;
    let message = wait(&queue, flags, Errno::ENOMSG, |state| {
        let kinds = state.messages.iter().map(|message| message.kind);
        let index = match kind {
            // Not a kind then, but which of them.
            _ if copies => usize::try_from(kind).ok().filter(|&index| index < state.messages.len()),
            0 => (!state.messages.is_empty()).then_some(0),
            1.. if flags & MSG_EXCEPT != 0 => kinds.into_iter().position(|other| other != kind),
            1.. => kinds.into_iter().position(|other| other == kind),
            // The lowest kind up to the number.
            _ => {
                let most = kind.checked_neg().unwrap_or(i64::MAX);
                kinds
                    .enumerate()
                    .filter(|(_, other)| *other <= most)
                    .min_by_key(|(_, other)| *other)
                    .map(|(index, _)| index)
            }
        }?;
        if state.messages[index].bytes.len() > room && flags & MSG_NOERROR == 0 {
            return Some(Err(Errno::E2BIG));
        }
        if copies {
            return Some(Ok(state.messages[index].clone()));
        }
        let message = state.messages.remove(index)?;
        state.bytes -= message.bytes.len();
        state.received = (now(), ctx.task.tgid);
        Some(Ok(message))
    })??;
    let len = message.bytes.len().min(room);
    uaccess::write(address, &message.kind)?;
    uaccess::write_bytes(address.wrapping_add(8), &message.bytes[..len])?;
    Ok(len)
}

fn msgctl(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [id, command, buffer, ..] = ctx.args;
    let (id, command) = (id as i32, command as u32);
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let who = ctx.task.credentials();
    match command {
        IPC_INFO | MSG_INFO => {
            // `struct msginfo`: the first, second and seventh are what is in use, or Linux's constants.
            let all = current().messages.all();
            let messages: usize = all.iter().map(|queue| queue.state.lock().messages.len()).sum();
            let bytes: usize = all.iter().map(|queue| queue.state.lock().bytes).sum();
            let (pool, map, headers) = match command {
                MSG_INFO => (all.len(), messages, bytes),
                _ => (QUEUES * QUEUE_BYTES / 1024, QUEUE_BYTES, QUEUE_BYTES),
            };
            let record = [pool, map, LONGEST, QUEUE_BYTES, QUEUES, 16, headers].map(|number| number as i32);
            uaccess::write(buffer, &record)?;
            uaccess::write(buffer.wrapping_add(28), &u16::MAX)?;
            Ok(current().messages.highest())
        }
        IPC_STAT | MSG_STAT | MSG_STAT_ANY => {
            let (id, queue) =
                if command == IPC_STAT { (0, current().messages.find(id)?) } else { current().messages.at(id)? };
            let record = {
                let state = queue.state.lock();
                if command != MSG_STAT_ANY {
                    state.permissions.permit(&who, 4)?;
                }
                let mut record = [0; 15];
                record[..6].copy_from_slice(&state.permissions.words());
                let rest = [
                    state.sent.0,
                    state.received.0,
                    state.changed,
                    state.bytes as u64,
                    state.messages.len() as u64,
                    state.most as u64,
                    u64::from(ctx.task.number_of(state.sent.1)) | u64::from(ctx.task.number_of(state.received.1)) << 32,
                ];
                record[6..13].copy_from_slice(&rest);
                record
            };
            uaccess::write(buffer, &record)?;
            Ok(id as usize)
        }
        IPC_SET => {
            let new = Permissions::read_new(buffer)?;
            let most: u64 = uaccess::read(buffer.wrapping_add(11 * 8))?;
            let queue = current().messages.find(id)?;
            queue.permissions().owned_by(&who)?;
            if most as usize > QUEUE_BYTES && !who.is_privileged() {
                return Err(Errno::EPERM);
            }
            {
                let mut state = queue.state.lock();
                state.permissions.set(new);
                state.most = most as usize;
                state.changed = now();
            }
            queue.changed.wake_all();
            Ok(0)
        }
        IPC_RMID => {
            let queue = current().messages.find(id)?;
            queue.permissions().owned_by(&who)?;
            current().messages.remove(id, &queue)?;
            let messages = {
                let mut state = queue.state.lock();
                state.removed = true;
                core::mem::take(&mut state.messages)
            };
            drop(messages);
            queue.changed.wake_all();
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}
