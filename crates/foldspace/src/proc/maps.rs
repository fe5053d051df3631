//! `/proc/PID/maps` (proc_pid_maps(5), `show_map_vma` in Linux's `fs/proc/task_mmu.c`).

use alloc::vec::Vec;

use super::text::Columns;
use crate::addr::{PAGE_SHIFT, VirtAddr};
use crate::backing::Identity;
use crate::space::{AddressSpace, Layout};
use crate::vma::{Backing, Version, Vma, VmaFlags};

/// Column at which a name begins, at the earliest.
const NAME_COLUMN: usize = 73;

/// One instant of an address space, to be read piece by piece: however long that takes and whatever happens meanwhile, the lines are of
/// the moment when it was made.
pub struct Maps {
    vmas: Version,
    layout: Layout,
}

impl AddressSpace {
    /// What `/proc/PID/maps` shows now. O(1).
    pub fn maps(&self) -> Maps {
        let layout = self.layout();
        Maps { vmas: self.vmas(), layout }
    }
}

impl Maps {
    /// Appends the line of the first VMA that ends above `from`, and returns where to go on; `None` (and no line) at the end. O(log VMAs).
    pub fn line(&self, from: VirtAddr, out: &mut Vec<u8>) -> Option<VirtAddr> {
        let vma = self.vmas.view().find_at_or_after(from)?;
        self.write(vma, out);
        Some(vma.end())
    }

    /// Appends lines as [`Maps::line`] does, until `out` has `bytes` or more. O(lines + log VMAs).
    pub fn lines(&self, from: VirtAddr, bytes: usize, out: &mut Vec<u8>) -> Option<VirtAddr> {
        let mut vmas = self.vmas.view().iter_from(from);
        let mut next = Some(from);
        while out.len() < bytes {
            let vma = vmas.next();
            next = vma.map(Vma::end);
            let Some(vma) = vma else { break };
            self.write(vma, out);
        }
        next
    }

    /// All lines.
    pub fn text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for vma in self.vmas.view().iter() {
            self.write(vma, &mut out);
        }
        out
    }

    /// The VMAs that it shows.
    pub fn vmas(&self) -> &Version {
        &self.vmas
    }

    pub(super) fn write(&self, vma: &Vma, out: &mut Vec<u8>) {
        let line_start = out.len();
        let (identity, offset) = match &vma.backing {
            Backing::Object(object) => (object.identity(), vma.page_offset << PAGE_SHIFT),
            Backing::Reference(reference) => match reference.file() {
                Some(file) => (file.identity(), vma.page_offset << PAGE_SHIFT),
                None => Default::default(),
            },
            Backing::Anonymous => Default::default(),
        };
        header((vma.start(), vma.end()), vma.flags, offset, identity, out);
        let fixed_end = out.len();
        self.name(vma, out);
        if out.len() > fixed_end {
            pad(line_start, fixed_end, out);
        }
        out.push(b'\n');
    }

    /// The last column, by Linux's precedence: file, heap, stack, given name, nothing.
    fn name(&self, vma: &Vma, out: &mut Vec<u8>) {
        if let Backing::Object(object) = &vma.backing {
            match &vma.name {
                Some(name) if object.is_anonymous() => bracketed(b"anon_shmem:", name, out),
                _ => escaped_path(|path| object.path(path), out),
            }
        } else if let Backing::Reference(reference) = &vma.backing
            && let Some(file) = reference.file()
        {
            escaped_path(|path| file.path(path), out);
        } else if vma.start() < self.layout.brk && vma.end() > self.layout.start_brk {
            out.extend_from_slice(b"[heap]");
        } else if vma.start() <= self.layout.start_stack && self.layout.start_stack <= vma.end() {
            out.extend_from_slice(b"[stack]");
        } else if let Some(name) = &vma.name {
            bracketed(b"anon:", name, out);
        }
    }
}

/// What precedes the name, with the space after it.
pub(super) fn header(
    (start, end): (VirtAddr, VirtAddr),
    flags: VmaFlags,
    offset: u64,
    identity: Identity,
    out: &mut Vec<u8>,
) {
    let letter = |flag, yes: u8| if flags.contains(flag) { yes } else { b'-' };
    let mut columns = Columns::new();
    columns.hex(start.get(), 8);
    columns.put([b'-']);
    columns.hex(end.get(), 8);
    columns.put([
        b' ',
        letter(VmaFlags::READ, b'r'),
        letter(VmaFlags::WRITE, b'w'),
        letter(VmaFlags::EXEC, b'x'),
        if flags.contains(VmaFlags::SHARED) { b's' } else { b'p' },
        b' ',
    ]);
    match offset {
        0 => columns.put(*b"00000000"),
        _ => columns.hex(offset, 8),
    }
    columns.put([b' ']);
    columns.short_hex(identity.major.into());
    columns.put([b':']);
    columns.short_hex(identity.minor.into());
    columns.put([b' ']);
    columns.decimal(identity.inode);
    columns.put([b' ']);
    out.extend_from_slice(columns.text());
}

/// Moves the name that was written at `name` to its column in the line that starts at `line`.
pub(super) fn pad(line: usize, name: usize, out: &mut Vec<u8>) {
    let padding = NAME_COLUMN.saturating_sub(name - line);
    out.splice(name..name, core::iter::repeat_n(b' ', padding));
}

fn bracketed(kind: &[u8], name: &[u8], out: &mut Vec<u8>) {
    out.push(b'[');
    out.extend_from_slice(kind);
    out.extend_from_slice(name);
    out.push(b']');
}

/// Only a newline is escaped in a path.
fn escaped_path(path: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    let start = out.len();
    path(out);
    while let Some(at) = out[start..].iter().position(|byte| *byte == b'\n') {
        out.splice(start + at..start + at + 1, *b"\\012");
    }
}
