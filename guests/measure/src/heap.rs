//! A small allocator that can fill what it hands out with a pattern, as hardened allocators do, in several ways.
//!
//! Sizes up to [`SPAN`] come in classes, four for each power of two. A class takes blocks from a span of fresh memory one after
//! another, and from those that were freed first. Blocks of [`LARGE`] bytes and more give their memory back to the kernel when
//! they are freed, whatever the way of filling, as production allocators do with their large blocks.

use crate::PAGE;
use std::io;
use std::ptr::NonNull;

/// What the memory is filled with, repeated.
pub const PATTERN: u8 = 0xab;
/// Bytes that are taken from the kernel at a time.
pub const SPAN: usize = 32 << 20;
/// From this size on, what is freed goes back to the kernel.
pub const LARGE: usize = 64 << 10;

const MAP_REFPAGE: libc::c_int = 0x20_0000;
/// `refpage_create(content, size, flags)`, a call of Foldspace's own.
const REFPAGE_CREATE: libc::c_long = 0x464f_4c44;

/// How memory gets its pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Not at all.
    None,
    /// Each block is written when it is handed out.
    Memset,
    /// The kernel maps a reference page all over (`MAP_REFPAGE`).
    ReferencePage,
    /// The same by a file of `refpage_create`.
    ReferenceFile,
}

impl Fill {
    /// All ways.
    pub const ALL: [Fill; 4] = [Fill::None, Fill::Memset, Fill::ReferencePage, Fill::ReferenceFile];

    /// A name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Fill::None => "none",
            Fill::Memset => "memset",
            Fill::ReferencePage => "refpage",
            Fill::ReferenceFile => "refpage_file",
        }
    }

    fn is_reference(self) -> bool {
        matches!(self, Fill::ReferencePage | Fill::ReferenceFile)
    }
}

/// Memory that was allocated. It is the heap's: [`Heap::free`] gives it back, dropping it does not.
#[derive(Debug)]
pub struct Block {
    base: NonNull<u8>,
    size: usize,
}

impl Block {
    /// Its size in bytes: that of its class.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Writes `length` bytes from `start` on.
    ///
    /// # Panics
    /// If the block has not all of them.
    pub fn write(&mut self, start: usize, length: usize, value: u8) {
        assert!(start <= self.size && length <= self.size - start);
        // SAFETY: inside the block, which is mapped as long as the heap lives; nobody else refers to it.
        unsafe { self.base.as_ptr().add(start).write_bytes(value, length) };
    }

    /// A byte of it.
    ///
    /// # Panics
    /// If the block has no such byte.
    pub fn read(&self, at: usize) -> u8 {
        assert!(at < self.size);
        // SAFETY: as in `write`.
        unsafe { self.base.as_ptr().add(at).read_volatile() }
    }
}

/// Memory that is one block and nothing else.
pub struct Fresh {
    block: Block,
    _mapping: Mapping,
}

impl Fresh {
    /// What may be written and read.
    pub fn block(&mut self) -> &mut Block {
        &mut self.block
    }
}

struct Class {
    size: usize,
    freed: Vec<Block>,
}

/// The allocator.
pub struct Heap {
    fill: Fill,
    /// The page that `MAP_REFPAGE` is given, or the file that is mapped.
    page: Option<Mapping>,
    file: libc::c_int,
    classes: Vec<Class>,
    spans: Vec<Mapping>,
    used: usize,
}

impl Heap {
    /// An empty heap.
    ///
    /// # Errors
    /// `Unsupported` where the kernel has no reference pages, and what its calls say.
    pub fn new(fill: Fill) -> io::Result<Heap> {
        let mut heap = Heap { fill, page: None, file: -1, classes: Vec::new(), spans: Vec::new(), used: SPAN };
        if fill.is_reference() {
            let page = Mapping::new(PAGE, libc::MAP_ANONYMOUS, -1, 0)?;
            // SAFETY: the mapping is new and a page long.
            unsafe { page.base.as_ptr().write_bytes(PATTERN, PAGE) };
            if fill == Fill::ReferenceFile {
                // SAFETY: the content is a page that is there.
                let file = unsafe { libc::syscall(REFPAGE_CREATE, page.base.as_ptr(), 16, 0) };
                if file < 0 {
                    return Err(unsupported());
                }
                heap.file = file as libc::c_int;
            }
            heap.page = Some(page);
            // A kernel that does not know the flag maps zeros.
            let probe = heap.map(PAGE)?;
            // SAFETY: the mapping is a page long.
            if unsafe { probe.base.as_ptr().read_volatile() } != PATTERN {
                return Err(unsupported());
            }
        }
        Ok(heap)
    }

    /// A block of at least `size` bytes, filled as this heap does it.
    ///
    /// # Errors
    /// What `mmap` says (`ENOMEM`).
    ///
    /// # Panics
    /// If `size` is more than [`SPAN`].
    pub fn allocate(&mut self, size: usize) -> io::Result<Block> {
        let size = class_size(size);
        assert!(size <= SPAN, "no class is as large");
        let class = self.class(size);
        if let Some(mut block) = self.classes[class].freed.pop() {
            let given_back = size >= LARGE && self.fill.is_reference();
            if self.fill != Fill::None && !given_back {
                block.write(0, size, PATTERN);
            }
            return Ok(block);
        }
        if SPAN - self.used < size {
            let span = self.map(SPAN)?;
            self.spans.push(span);
            self.used = 0;
        }
        let span = self.spans.last().expect("there is one now");
        // SAFETY: the class fits into what is left of the span.
        let base = unsafe { span.base.add(self.used) };
        self.used += size;
        let mut block = Block { base, size };
        if self.fill == Fill::Memset {
            block.write(0, size, PATTERN);
        }
        Ok(block)
    }

    /// Memory of its own from the kernel, filled as this heap does it; it goes back when it is dropped.
    ///
    /// # Errors
    /// What `mmap` says (`ENOMEM`).
    pub fn fresh(&self, size: usize) -> io::Result<Fresh> {
        let mapping = self.map(size)?;
        let mut block = Block { base: mapping.base, size };
        if self.fill == Fill::Memset {
            block.write(0, size, PATTERN);
        }
        Ok(Fresh { block, _mapping: mapping })
    }

    /// Takes a block back.
    pub fn free(&mut self, block: Block) {
        if block.size >= LARGE {
            // SAFETY: the block's pages are its own (classes of this size are whole pages), and nobody uses it any more.
            unsafe { libc::madvise(block.base.as_ptr().cast(), block.size, libc::MADV_DONTNEED) };
        }
        let class = self.class(block.size);
        self.classes[class].freed.push(block);
    }

    fn class(&mut self, size: usize) -> usize {
        self.classes.iter().position(|class| class.size == size).unwrap_or_else(|| {
            self.classes.push(Class { size, freed: Vec::new() });
            self.classes.len() - 1
        })
    }

    fn map(&self, length: usize) -> io::Result<Mapping> {
        match (self.fill, &self.page) {
            (Fill::ReferencePage, Some(page)) => {
                Mapping::new(length, MAP_REFPAGE, -1, page.base.as_ptr() as libc::off_t)
            }
            (Fill::ReferenceFile, _) => Mapping::new(length, 0, self.file, 0),
            _ => Mapping::new(length, libc::MAP_ANONYMOUS, -1, 0),
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.file >= 0 {
            // SAFETY: the descriptor is this heap's own.
            unsafe { libc::close(self.file) };
        }
    }
}

/// A class for each quarter of a power of two; whole pages from two pages on.
fn class_size(size: usize) -> usize {
    let step = (size.max(64).next_power_of_two() / 8).max(16);
    let rounded = size.max(16).next_multiple_of(step);
    if rounded > PAGE { rounded.next_multiple_of(PAGE) } else { rounded }
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the kernel has no reference pages")
}

struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

impl Mapping {
    /// A new private mapping at an address of the kernel's choice.
    fn new(length: usize, flags: libc::c_int, file: libc::c_int, offset: libc::off_t) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_PRIVATE | flags, file, offset) };
        if base == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // A kernel that does not know MAP_REFPAGE misses a file.
            let unknown = flags == MAP_REFPAGE && error.raw_os_error() == Some(libc::EBADF);
            return Err(if unknown { unsupported() } else { error });
        }
        // Small pages, as everywhere here; a kernel without huge ones answers EINVAL, which is as good.
        // SAFETY: the range is this mapping's own; the advice changes no content.
        unsafe { libc::madvise(base, length, libc::MADV_NOHUGEPAGE) };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        Ok(Mapping { base, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and nobody uses it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// How much of what is allocated is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// One page in a hundred.
    Sparse,
    /// Every second page.
    Half,
    /// All of it.
    Dense,
}

impl Use {
    /// All of them.
    pub const ALL: [Use; 3] = [Use::Sparse, Use::Half, Use::Dense];

    /// A name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Use::Sparse => "sparse",
            Use::Half => "half",
            Use::Dense => "dense",
        }
    }

    fn one_in(self) -> usize {
        match self {
            Use::Sparse => 100,
            Use::Half => 2,
            Use::Dense => 1,
        }
    }
}

/// Allocates about `mib` MiB in blocks of 256 bytes to 1 MiB, most of the memory in large ones, and writes pages of it, or
/// blocks that are smaller. The result keeps it all.
///
/// # Errors
/// What the heap says.
pub fn allocate_and_use(heap: &mut Heap, mib: usize, usage: Use) -> io::Result<Vec<Block>> {
    // Of each MiB of large blocks there are some small ones; together 1.25 MiB.
    const SIZES: [(usize, usize); 5] = [(1 << 20, 1), (96 << 10, 2), (16 << 10, 3), (4 << 10, 2), (256, 32)];
    let mut blocks = Vec::new();
    let (mut allocated, mut pieces) = (0, 0);
    while allocated < mib << 20 {
        for (size, count) in SIZES {
            for _ in 0..count {
                let mut block = heap.allocate(size)?;
                allocated += block.size();
                for start in (0..block.size()).step_by(PAGE) {
                    pieces += 1;
                    if pieces % usage.one_in() == 0 {
                        block.write(start, PAGE.min(block.size() - start), 1);
                    }
                }
                blocks.push(block);
            }
        }
    }
    Ok(blocks)
}

/// Whether what is allocated holds what it should: the pattern, or what was written.
pub fn holds_the_pattern(blocks: &[Block], usage: Use, fill: Fill) -> bool {
    let untouched = if fill == Fill::None { 0 } else { PATTERN };
    let mut pieces = 0;
    blocks.iter().all(|block| {
        (0..block.size()).step_by(PAGE).all(|start| {
            pieces += 1;
            let wanted = if pieces % usage.one_in() == 0 { 1 } else { untouched };
            let last = (start + PAGE).min(block.size()) - 1;
            block.read(start) == wanted && block.read(last) == wanted
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_quarters_of_powers_of_two() {
        assert_eq!([1, 64, 65, 100, 128, 129].map(class_size), [16, 64, 80, 112, 128, 160]);
        assert_eq!(
            [4096, 4097, 16 << 10, 96 << 10, 1 << 20].map(class_size),
            [4096, 8192, 16 << 10, 96 << 10, 1 << 20]
        );
    }

    #[test]
    fn blocks_are_filled_also_when_they_are_used_again() {
        let mut heap = Heap::new(Fill::Memset).unwrap();
        for size in [100, 5000, LARGE, 1 << 20] {
            let mut block = heap.allocate(size).unwrap();
            block.write(0, size, 7);
            let first = block.base;
            heap.free(block);
            let again = heap.allocate(size).unwrap();
            assert_eq!(again.base, first);
            assert!((0..again.size()).all(|at| again.read(at) == PATTERN), "{size}");
        }
    }

    #[test]
    fn what_is_used_is_what_was_asked_for() {
        for (usage, fill) in [(Use::Sparse, Fill::Memset), (Use::Half, Fill::None), (Use::Dense, Fill::Memset)] {
            let mut heap = Heap::new(fill).unwrap();
            let blocks = allocate_and_use(&mut heap, 4, usage).unwrap();
            assert!(holds_the_pattern(&blocks, usage, fill));
            assert!(usage == Use::Dense || !holds_the_pattern(&blocks, Use::Dense, fill));
        }
    }
}
