//! System V semaphores (semget(2), semop(2), semctl(2)).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::sync::Mutex;
use syscalls::Sysno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Guarded, IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, Permissions, Shown, current, now};
use crate::errno::Errno;
use crate::fs::procfs::system::Text;
use crate::fs::reserve;
use crate::mm::uaccess;
use crate::process::Pid;
use crate::sched::WaitQueue;
use crate::syscall::time::{Timespec, deadline_after};
use crate::syscall::{Handler, SysResult, SyscallContext};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::semget, semget),
    (Sysno::semop, |ctx| operate(ctx, None)),
    (Sysno::semtimedop, semtimedop),
    (Sysno::semctl, semctl),
];

/// Linux's limits (`linux/sem.h`): semaphores in a set, operations of a call, sets, value.
const PER_SET: usize = 32_000;
const PER_CALL: u64 = 500;
pub(super) const SETS: usize = 32_000;
const HIGHEST: i32 = 32_767;

const SEM_UNDO: u32 = 0x1000;
const GETPID: u32 = 11;
const GETVAL: u32 = 12;
const GETALL: u32 = 13;
const GETNCNT: u32 = 14;
const GETZCNT: u32 = 15;
const SETVAL: u32 = 16;
const SETALL: u32 = 17;
const SEM_STAT: u32 = 18;
const SEM_INFO: u32 = 19;
const SEM_STAT_ANY: u32 = 20;

#[derive(Clone, Copy, Default)]
struct Semaphore {
    value: i32,
    /// Who changed it last.
    pid: Pid,
}

struct State {
    permissions: Permissions,
    semaphores: Vec<Semaphore>,
    /// What each process that ends gives back, by semaphore.
    undo: BTreeMap<Pid, BTreeMap<usize, i32>>,
    /// For each call that waits: the semaphore, and whether it waits for it to be zero.
    waiting: Vec<(usize, bool)>,
    operated: u64,
    changed: u64,
    removed: bool,
}

/// What `/proc/sys/kernel/sem` says: of a set, of all, of a call, and sets.
pub fn limits() -> String {
    format!("{PER_SET}\t{}\t{PER_CALL}\t{SETS}", PER_SET * SETS)
}

/// Appends `/proc/sysvipc/sem`: the sets of the current thread's namespace.
pub fn table(text: &mut Text<'_>) {
    text.bytes(b"       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n");
    for (id, set) in current().semaphores.numbered() {
        let state = set.state.lock();
        let Shown { key, mode, owners: [uid, gid, cuid, cgid] } = state.permissions.shown();
        text.put(format_args!(
            "{key:>10} {id:>10}  {mode:>4o} {:>10} {uid:>5} {gid:>5} {cuid:>5} {cgid:>5} {:>10} {:>10}\n",
            state.semaphores.len(),
            state.operated,
            state.changed,
        ));
    }
}

/// A set of semaphores.
pub(super) struct Set {
    state: Mutex<State>,
    waiters: WaitQueue,
}

impl Guarded for Set {
    fn permissions(&self) -> Permissions {
        self.state.lock().permissions
    }
}

/// Whether any process ever asked for something to be undone at its end.
static UNDONE: AtomicBool = AtomicBool::new(false);

/// `struct sembuf`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Operation {
    number: u16,
    change: i16,
    flags: i16,
}

impl Operation {
    fn has(&self, flag: u32) -> bool {
        u32::from(self.flags as u16) & flag != 0
    }
}

fn semget(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [key, count, flags, ..] = ctx.args;
    let count = usize::try_from(count as i32).ok().filter(|&count| count <= PER_SET).ok_or(Errno::EINVAL)?;
    let fits = |set: &Set| if count > set.state.lock().semaphores.len() { Err(Errno::EINVAL) } else { Ok(()) };
    let make = |permissions| {
        if count == 0 {
            return Err(Errno::EINVAL);
        }
        let mut semaphores = reserve::room_for(count)?;
        semaphores.resize(count, Semaphore::default());
        let state = State {
            permissions,
            semaphores,
            undo: BTreeMap::new(),
            waiting: Vec::new(),
            operated: 0,
            changed: now(),
            removed: false,
        };
        Ok(Set { state: Mutex::new(state), waiters: WaitQueue::new() })
    };
    current().semaphores.get(key as i32, flags as u32, &ctx.task.credentials(), fits, make)
}

fn semtimedop(ctx: &mut SyscallContext<'_>) -> SysResult {
    let deadline = match ctx.args[3] {
        0 => None,
        address => Some(deadline_after(uaccess::read::<Timespec>(address)?.to_nanos()?)),
    };
    operate(ctx, deadline)
}

/// How an attempt to do all operations of a call ended.
enum Attempt {
    Done,
    /// This one cannot be done now.
    Blocked(Operation),
}

impl State {
    /// Does all operations, or none.
    fn attempt(&mut self, operations: &[Operation], pid: Pid) -> Result<Attempt, Errno> {
        let mut values: BTreeMap<usize, i32> = BTreeMap::new();
        for operation in operations {
            let number = usize::from(operation.number);
            let value = values.entry(number).or_insert(self.semaphores[number].value);
            let after = *value + i32::from(operation.change);
            if operation.change == 0 && *value != 0 || after < 0 {
                return Ok(Attempt::Blocked(*operation));
            }
            if after > HIGHEST {
                return Err(Errno::ERANGE);
            }
            *value = after;
        }
        for operation in operations.iter().filter(|operation| operation.has(SEM_UNDO)) {
            UNDONE.store(true, Ordering::Relaxed);
            let undo = self.undo.entry(pid).or_default().entry(usize::from(operation.number)).or_default();
            *undo -= i32::from(operation.change);
        }
        for (number, value) in values {
            self.semaphores[number] = Semaphore { value, pid };
        }
        self.operated = now();
        Ok(Attempt::Done)
    }
}

/// semop(2) and semtimedop(2). Errors in Linux's order (`__do_semtimedop` of `ipc/sem.c`).
fn operate(ctx: &SyscallContext<'_>, deadline: Option<u64>) -> SysResult {
    let [id, address, count, ..] = ctx.args;
    let (id, count) = (id as i32, u64::from(count as u32));
    if count < 1 || id < 0 {
        return Err(Errno::EINVAL);
    }
    if count > PER_CALL {
        return Err(Errno::E2BIG);
    }
    let mut operations: Vec<Operation> = reserve::room_for(count as usize)?;
    for index in 0..count {
        operations.push(uaccess::read(address.wrapping_add(index * size_of::<Operation>() as u64))?);
    }
    let set = current().semaphores.find(id)?;
    let alters = operations.iter().any(|operation| operation.change != 0);
    {
        let state = set.state.lock();
        if operations.iter().any(|operation| usize::from(operation.number) >= state.semaphores.len()) {
            return Err(Errno::EFBIG);
        }
        state.permissions.permit(&ctx.task.credentials(), if alters { 2 } else { 4 })?;
    }
    let mut first = true;
    let mut attempt = || {
        let mut state = set.state.lock();
        let removed = if first { Errno::EINVAL } else { Errno::EIDRM };
        if state.removed {
            return Some(Err(removed));
        }
        match state.attempt(&operations, ctx.task.tgid) {
            Ok(Attempt::Done) => Some(Ok(())),
            Ok(Attempt::Blocked(operation)) if operation.has(IPC_NOWAIT) => Some(Err(Errno::EAGAIN)),
            Ok(Attempt::Blocked(operation)) => {
                if core::mem::take(&mut first) {
                    state.waiting.push((usize::from(operation.number), operation.change == 0));
                }
                None
            }
            Err(error) => Some(Err(error)),
        }
    };
    let waited = match deadline {
        Some(deadline) => set.waiters.wait_until_deadline(deadline, &mut attempt),
        None => set.waiters.wait_until(&mut attempt).map(Some),
    };
    if !first {
        let mut state = set.state.lock();
        let mine = operations.iter().map(|operation| (usize::from(operation.number), operation.change == 0));
        let position = mine.into_iter().find_map(|mine| state.waiting.iter().position(|other| *other == mine));
        position.map(|position| state.waiting.swap_remove(position));
    }
    match waited {
        Ok(Some(result)) => result?,
        Ok(None) => return Err(Errno::EAGAIN),
        // Never starts again (signal(7)).
        Err(_) => return Err(Errno::EINTR),
    }
    if alters {
        set.waiters.wake_all();
    }
    Ok(0)
}

/// What a process that has ended left to be undone (`exit_sem`).
pub fn process_ended(pid: Pid) {
    if !UNDONE.load(Ordering::Relaxed) {
        return;
    }
    for set in current().semaphores.all() {
        let undone = {
            let mut state = set.state.lock();
            let undo = state.undo.remove(&pid);
            for (number, change) in undo.iter().flatten() {
                let semaphore = &mut state.semaphores[*number];
                *semaphore = Semaphore { value: (semaphore.value + change).clamp(0, HIGHEST), pid };
            }
            undo.is_some()
        };
        if undone {
            set.waiters.wake_all();
        }
    }
}

fn semctl(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [id, number, command, argument, ..] = ctx.args;
    let (id, command) = (id as i32, command as u32);
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let who = ctx.task.credentials();
    match command {
        IPC_INFO | SEM_INFO => {
            // `struct seminfo`: of the last two, the sets and semaphores in use or two constants.
            let all = current().semaphores.all();
            let semaphores: usize = all.iter().map(|set| set.state.lock().semaphores.len()).sum();
            let (used, total) = if command == SEM_INFO { (all.len(), semaphores) } else { (20, HIGHEST as usize) };
            let (sets, each) = (SETS as i32, PER_SET as i32);
            let whole = sets.saturating_mul(each);
            let record =
                [whole, sets, whole, whole, each, PER_CALL as i32, PER_CALL as i32, used as i32, HIGHEST, total as i32];
            uaccess::write(argument, &record)?;
            Ok(current().semaphores.highest())
        }
        IPC_STAT | SEM_STAT | SEM_STAT_ANY => {
            let (id, set) =
                if command == IPC_STAT { (0, current().semaphores.find(id)?) } else { current().semaphores.at(id)? };
            let record = {
                let state = set.state.lock();
                if command != SEM_STAT_ANY {
                    state.permissions.permit(&who, 4)?;
                }
                let mut record = [0; 13];
                record[..6].copy_from_slice(&state.permissions.words());
                (record[6], record[8], record[10]) = (state.operated, state.changed, state.semaphores.len() as u64);
                record
            };
            uaccess::write(argument, &record)?;
            Ok(id as usize)
        }
        IPC_RMID | IPC_SET => {
            let new = if command == IPC_SET { Some(Permissions::read_new(argument)?) } else { None };
            let set = current().semaphores.find(id)?;
            set.permissions().owned_by(&who)?;
            match new {
                Some(new) => {
                    let mut state = set.state.lock();
                    state.permissions.set(new);
                    state.changed = now();
                }
                None => {
                    current().semaphores.remove(id, &set)?;
                    set.state.lock().removed = true;
                    set.waiters.wake_all();
                }
            }
            Ok(0)
        }
        GETALL | SETALL => {
            let set = current().semaphores.find(id)?;
            let count = {
                let state = set.state.lock();
                state.permissions.permit(&who, if command == GETALL { 4 } else { 2 })?;
                state.semaphores.len()
            };
            let place = |index: usize| argument.wrapping_add(index as u64 * 2);
            if command == GETALL {
                let values: Vec<u16> = set.state.lock().semaphores.iter().map(|one| one.value as u16).collect();
                for (index, value) in values.iter().enumerate() {
                    uaccess::write(place(index), value)?;
                }
                return Ok(0);
            }
            let mut values = reserve::room_for(count)?;
            for index in 0..count {
                let value = i32::from(uaccess::read::<u16>(place(index))?);
                if value > HIGHEST {
                    return Err(Errno::ERANGE);
                }
                values.push(value);
            }
            assign(ctx, &set, values.into_iter().enumerate());
            Ok(0)
        }
        GETPID | GETVAL | GETNCNT | GETZCNT | SETVAL => {
            let set = current().semaphores.find(id)?;
            let number = {
                let state = set.state.lock();
                let number = usize::try_from(number as i32).ok();
                let number = number.filter(|&number| number < state.semaphores.len()).ok_or(Errno::EINVAL)?;
                state.permissions.permit(&who, if command == SETVAL { 2 } else { 4 })?;
                let count = |zero| state.waiting.iter().filter(|waiting| **waiting == (number, zero)).count();
                match command {
                    GETPID => return Ok(ctx.task.number_of(state.semaphores[number].pid) as usize),
                    GETVAL => return Ok(state.semaphores[number].value as usize),
                    GETNCNT => return Ok(count(false)),
                    GETZCNT => return Ok(count(true)),
                    _ => number,
                }
            };
            let value = argument as i32;
            if !(0..=HIGHEST).contains(&value) {
                return Err(Errno::ERANGE);
            }
            assign(ctx, &set, core::iter::once((number, value)));
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Sets values; nobody undoes anything of these semaphores any more.
fn assign(ctx: &SyscallContext<'_>, set: &Set, values: impl Iterator<Item = (usize, i32)>) {
    {
        let mut state = set.state.lock();
        for (number, value) in values {
            state.semaphores[number] = Semaphore { value, pid: ctx.task.tgid };
            for undo in state.undo.values_mut() {
                undo.remove(&number);
            }
        }
        state.changed = now();
    }
    set.waiters.wake_all();
}
