//! `/proc/PID/maps` (proc_pid_maps(5), `show_map_vma` in Linux's `fs/proc/task_mmu.c`).

use alloc::vec::Vec;

use super::text::Columns;
use crate::addr::{PAGE_SHIFT, VirtAddr};
use crate::backing::Identity;
use crate::space::{AddressSpace, Marks};
use crate::vma::{Backing, Version, Vma, VmaFlags};

/// Column at which a name begins, at the earliest.
const NAME_COLUMN: usize = 73;

/// One instant of an address space, to be read piece by piece: however long that takes and whatever happens meanwhile, the lines are of
/// the moment when it was made.
pub struct Maps {
    vmas: Version,
    marks: Marks,
}

impl AddressSpace {
    /// What `/proc/PID/maps` shows now. O(1); takes no lock, and no writer waits for it.
    pub fn maps(&self) -> Maps {
        let (marks, vmas) = self.with_marks(|| self.vmas());
        Maps { vmas, marks }
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
        let (identity, offset) = origin(vma);
        header((vma.start(), vma.end()), vma.flags, offset, identity, out);
        let fixed_end = out.len();
        name(vma, &self.marks, out);
        if out.len() > fixed_end {
            escape(fixed_end, out);
            pad(line_start, fixed_end, out);
        }
        out.push(b'\n');
    }
}

/// Device and inode of the file behind a VMA, and the byte of it at which the VMA starts; zeros without one.
pub(super) fn origin(vma: &Vma) -> (Identity, u64) {
    let identity = match &vma.backing {
        Backing::Object(object) => object.identity(),
        Backing::Reference(reference) => match reference.file() {
            Some(file) => file.identity(),
            None => return Default::default(),
        },
        Backing::Anonymous => return Default::default(),
    };
    (identity, vma.page_offset << PAGE_SHIFT)
}

/// Appends the last column, by Linux's precedence: file, heap, stack, given name, nothing.
pub(super) fn name(vma: &Vma, marks: &Marks, out: &mut Vec<u8>) {
    let referred = match &vma.backing {
        Backing::Reference(reference) => reference.file(),
        _ => None,
    };
    if let Backing::Object(object) = &vma.backing {
        match &vma.name {
            Some(name) => bracketed(b"anon_shmem:", name, out),
            _ => object.path(out),
        }
    } else if let Some(file) = referred {
        file.path(out);
    } else if vma.start() < marks.brk && vma.end() > marks.start_brk {
        out.extend_from_slice(b"[heap]");
    } else if vma.start() <= marks.start_stack && marks.start_stack <= vma.end() {
        out.extend_from_slice(b"[stack]");
    } else if let Some(name) = &vma.name {
        bracketed(b"anon:", name, out);
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

/// Escapes what must not be in a line: a newline, which only a path can have.
fn escape(start: usize, out: &mut Vec<u8>) {
    while let Some(at) = out[start..].iter().position(|byte| *byte == b'\n') {
        out.splice(start + at..start + at + 1, *b"\\012");
    }
}
