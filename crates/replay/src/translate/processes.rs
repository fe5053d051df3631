//! The calls that begin and end threads and address spaces.

use foldspace_classic::{Area, Backing, Operation, Process, VmaFlags};

use super::{READ_WRITE, Translator};
use crate::strace::{Call, Damage, flags_of};

/// The stack that exec makes: 132 KiB below 0x7ffffffff000 (`setup_arg_pages` in Linux's `fs/exec.c`).
const STACK: Area = Area { start: 0x7_ffff_ffff - 33, end: 0x7_ffff_ffff };
/// Keeps a stack from merging with what is mapped right below: it grows down.
const GROWS_DOWN: VmaFlags = VmaFlags::from_bits_retain(1 << 8);

impl Translator {
    /// A thread in an address space of its own, with nothing but a stack.
    pub(super) fn begin_program(&mut self, pid: u32) {
        let process = Process(self.next);
        self.next += 1;
        self.threads.insert(pid, process);
        let about = self.about(process);
        about.users = 1;
        about.map(STACK);
        self.out.operations.push(Operation::Start { process });
        let flags = READ_WRITE | GROWS_DOWN;
        self.out.operations.push(Operation::Map { process, area: STACK, backing: Backing::Anonymous, flags });
        for page in 1..=self.stores.of_stack.min(STACK.pages()) {
            self.store(process, STACK.end - page);
        }
    }

    pub(super) fn exec(&mut self, pid: u32) {
        self.notes.execs += 1;
        self.leave(pid);
        self.begin_program(pid);
    }

    /// A thread has gone; the last one takes its address space with it.
    pub(super) fn leave(&mut self, pid: u32) {
        let Some(process) = self.threads.remove(&pid) else { return };
        let about = self.about(process);
        about.users = about.users.saturating_sub(1);
        if about.users == 0 {
            self.spaces.remove(&process);
            self.recent.forget(process);
            self.out.operations.push(Operation::Exit { process });
        }
    }

    pub(super) fn clone(&mut self, parent: Process, call: &Call, result: u64) -> Result<(), Damage> {
        let child = u32::try_from(result).map_err(|_| Damage::BadArgument)?;
        // A number that is in use still: its end is missing from the log.
        self.leave(child);
        // `clone` names its flags in one of its arguments, `clone3` in a field of a structure.
        let shares = call.name == "vfork" || call.args.iter().any(|arg| shares_memory(arg));
        if shares {
            self.notes.clones += 1;
            self.about(parent).users += 1;
            self.threads.insert(child, parent);
        } else {
            self.notes.forks += 1;
            let process = Process(self.next);
            self.next += 1;
            self.threads.insert(child, process);
            let (brk, mapped) = (self.about(parent).brk, self.about(parent).mapped.clone());
            *self.about(process) = super::About { users: 1, brk, mapped };
            self.out.operations.push(Operation::Fork { parent, child: process });
            self.recent.fork(parent, process);
            for both in [parent, process] {
                for page in self.recent.of(both) {
                    self.out.operations.push(Operation::Store { process: both, page });
                }
            }
        }
        // Before what waits already: those are its parent's later events.
        for event in self.waiting.remove(&child).unwrap_or_default().into_iter().rev() {
            self.ready.push_front(event);
        }
        Ok(())
    }
}

fn shares_memory(arg: &str) -> bool {
    let flags = arg.trim_start_matches('{').split(',').find_map(|field| field.trim().strip_prefix("flags="));
    flags.is_some_and(|flags| flags_of(flags).any(|flag| flag == "CLONE_VM"))
}
