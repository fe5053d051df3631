//! The calls that change what is mapped.

use foldspace_classic::{Area, Backing, Operation, Process, VmaFlags};

use super::{PAGE, READ_WRITE, Translator, USER_PAGES, pages_of};
use crate::strace::{Call, Damage, flags_of, number};

/// The number in an argument.
fn argument(call: &Call, index: usize) -> Result<u64, Damage> {
    call.args.get(index).and_then(|text| number(text)).ok_or(Damage::BadArgument)
}

/// The text of an argument.
fn text(call: &Call, index: usize) -> Result<&str, Damage> {
    call.args.get(index).map(String::as_str).ok_or(Damage::BadArgument)
}

fn protection(text: &str) -> VmaFlags {
    flags_of(text).fold(VmaFlags::empty(), |flags, name| {
        flags
            | match name {
                "PROT_READ" => VmaFlags::READ,
                "PROT_WRITE" => VmaFlags::WRITE,
                "PROT_EXEC" => VmaFlags::EXECUTE,
                _ => VmaFlags::empty(),
            }
    })
}

impl Translator {
    pub(super) fn mmap(&mut self, process: Process, call: &Call, result: u64) -> Result<(), Damage> {
        let area = pages_of(result, argument(call, 1)?)?;
        let how = text(call, 3)?;
        let has = |name: &str| flags_of(how).any(|flag| flag == name);
        let mut flags = protection(text(call, 2)?);
        flags.set(VmaFlags::SHARED, has("MAP_SHARED") || has("MAP_SHARED_VALIDATE"));
        let backing = if has("MAP_ANONYMOUS") || has("MAP_ANON") {
            Backing::Anonymous
        } else {
            // With `-y` the path stands behind the descriptor; without, a descriptor's number is all there is.
            Backing::File { file: self.file(text(call, 4)?), offset: argument(call, 5)? / PAGE }
        };
        self.map(process, area, backing, flags);
        Ok(())
    }

    pub(super) fn map(&mut self, process: Process, area: Area, backing: Backing, flags: VmaFlags) {
        self.about(process).map(area);
        self.out.operations.push(Operation::Map { process, area, backing, flags });
        if flags.contains(VmaFlags::WRITE) && !flags.contains(VmaFlags::SHARED) {
            self.store_in(process, area);
        }
    }

    fn file(&mut self, descriptor: &str) -> u32 {
        let known = self.files.len() as u32;
        *self.files.entry(descriptor.to_string()).or_insert(known)
    }

    pub(super) fn munmap(&mut self, process: Process, call: &Call) -> Result<(), Damage> {
        let area = pages_of(argument(call, 0)?, argument(call, 1)?)?;
        self.unmap(process, area);
        Ok(())
    }

    fn unmap(&mut self, process: Process, area: Area) {
        self.about(process).unmap(area);
        self.out.operations.push(Operation::Unmap { process, area });
    }

    pub(super) fn mprotect(&mut self, process: Process, call: &Call) -> Result<(), Damage> {
        let (start, len) = (argument(call, 0)?, argument(call, 1)?);
        if len == 0 {
            return Ok(());
        }
        let area = pages_of(start, len)?;
        if !self.about(process).is_mapped(area.start) {
            // Of the program's image, which exec has mapped: data that has been relocated.
            let image = Backing::File { file: self.file("the program"), offset: 0 };
            self.map(process, area, image, READ_WRITE);
        }
        let set = protection(text(call, 2)?);
        self.out.operations.push(Operation::Change { process, area, clear: VmaFlags::ACCESS, set });
        if set.contains(VmaFlags::WRITE) {
            // Such as the arena of a thread's heap, or a thread's stack above its guard. In shared memory a store leaves no page.
            self.store_in(process, area);
        }
        Ok(())
    }

    pub(super) fn mremap(&mut self, process: Process, call: &Call, result: u64) -> Result<(), Damage> {
        let (old, old_len, len) = (argument(call, 0)?, argument(call, 1)?, argument(call, 2)?);
        if old_len == 0 {
            // Another mapping of shared memory, which has no pages of its own.
            self.map(process, pages_of(result, len)?, Backing::Anonymous, READ_WRITE | VmaFlags::SHARED);
            return Ok(());
        }
        let (from, new) = (pages_of(old, old_len)?, pages_of(result, len)?);
        let kept = from.pages().min(new.pages());
        if let Some(rest) = Area::new(from.start + kept, from.end) {
            self.unmap(process, rest);
        }
        let (from, to) = (Area { end: from.start + kept, ..from }, Area { end: new.start + kept, ..new });
        if from.start != to.start {
            let about = self.about(process);
            about.unmap(from);
            about.map(to);
            self.out.operations.push(Operation::Move { process, from, to: to.start });
        }
        if let Some(more) = Area::new(to.end, new.end) {
            self.about(process).map(more);
            self.out.operations.push(Operation::Grow { process, end: to.end, pages: more.pages() });
            self.store_in(process, more);
        }
        Ok(())
    }

    pub(super) fn brk(&mut self, process: Process, result: u64) -> Result<(), Damage> {
        let new = result.div_ceil(PAGE);
        if new > USER_PAGES {
            return Err(Damage::BadArgument);
        }
        let before = self.about(process).brk.replace(result);
        let Some(before) = before else { return Ok(()) };
        let old = before.div_ceil(PAGE);
        if let Some(more) = Area::new(old, new) {
            self.map(process, more, Backing::Anonymous, READ_WRITE);
        } else if let Some(less) = Area::new(new, old) {
            self.unmap(process, less);
        }
        Ok(())
    }

    pub(super) fn madvise(&mut self, process: Process, call: &Call) -> Result<(), Damage> {
        let (start, len) = (argument(call, 0)?, argument(call, 1)?);
        let none = VmaFlags::empty();
        let (clear, set) = match text(call, 2)? {
            "MADV_DONTFORK" => (none, VmaFlags::DONT_FORK),
            "MADV_DOFORK" => (VmaFlags::DONT_FORK, none),
            "MADV_DONTNEED" | "MADV_FREE" if len > 0 => {
                self.out.operations.push(Operation::Discard { process, area: pages_of(start, len)? });
                return Ok(());
            }
            _ => return Ok(()),
        };
        if len > 0 {
            self.out.operations.push(Operation::Change { process, area: pages_of(start, len)?, clear, set });
        }
        Ok(())
    }
}
