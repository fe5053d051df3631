//! ELF files: what they say about themselves, and their segments as mappings.

use alloc::sync::Arc;
use alloc::vec::Vec;

use elf::abi;
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::segment::{ProgramHeader, SegmentTable};
use foldspace::addr::{PAGE_SIZE, USER_END};
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_linux::Errno;

/// Bytes of an ELF header for 64 bits, and of a program header.
const HEADER_SIZE: usize = 64;
const IDENT_SIZE: usize = 16;
const PROGRAM_HEADER_SIZE: usize = 56;
/// Longest path of an interpreter (`PATH_MAX`).
const MAX_INTERPRETER: u64 = 4096;

/// Where Linux puts a position-independent program that has an interpreter: two thirds of the user half (`ELF_ET_DYN_BASE`), without
/// randomisation.
pub const PIE_BASE: VirtAddr = VirtAddr(0x5555_5555_4000);
/// Where the heap of one without begins: the same, rounded up.
pub const PIE_HEAP: VirtAddr = VirtAddr(0x5555_5555_5000);

/// Everything private to the address space, and mprotect may allow anything.
const MAY_ALL: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);

/// The headers of an executable file for this machine.
pub struct Headers {
    header: FileHeader<LittleEndian>,
    segments: Vec<ProgramHeader>,
}

/// Where an image goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// At the addresses in the file, or, if it has no fixed ones, from here on.
    Program(VirtAddr),
    /// Wherever there is room, if it has no fixed addresses.
    Anywhere,
}

/// An image in an address space.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// What was added to the addresses in the file.
    pub bias: u64,
    /// First instruction.
    pub entry: VirtAddr,
    /// Where the program headers are; 0 if no segment holds them.
    pub headers: VirtAddr,
    /// How many there are.
    pub header_count: u64,
    /// Bytes of each.
    pub header_size: u64,
    /// One past the last byte of memory, zeroed memory included.
    pub end: VirtAddr,
    /// Code: first byte and one past the last.
    pub code: (VirtAddr, VirtAddr),
    /// Data: first byte and one past the last, of what the file holds.
    pub data: (VirtAddr, VirtAddr),
}

impl Headers {
    /// Reads and checks them (the checks of Linux's `load_elf_binary`).
    ///
    /// # Errors
    /// `ENOEXEC`: not an ELF executable for this machine. `EINVAL`: segments that make no sense.
    pub fn read(file: &Object) -> Result<Headers, Errno> {
        let mut bytes = [0; HEADER_SIZE];
        read_exactly(file, 0, &mut bytes).map_err(|_| Errno::ENOEXEC)?;
        let ident = parse_ident::<LittleEndian>(&bytes[..IDENT_SIZE]).map_err(|_| Errno::ENOEXEC)?;
        let class = ident.1;
        let header = FileHeader::parse_tail(ident, &bytes[IDENT_SIZE..]).map_err(|_| Errno::ENOEXEC)?;
        let size = usize::from(header.e_phnum) * PROGRAM_HEADER_SIZE;
        if class != Class::ELF64
            || !matches!(header.e_type, abi::ET_EXEC | abi::ET_DYN)
            || header.e_machine != abi::EM_X86_64
            || usize::from(header.e_phentsize) != PROGRAM_HEADER_SIZE
            || !(1..=0x1_0000).contains(&size)
        {
            return Err(Errno::ENOEXEC);
        }
        let mut table = Vec::new();
        table.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
        table.resize(size, 0);
        read_exactly(file, header.e_phoff, &mut table)?;
        let segments: Vec<ProgramHeader> = SegmentTable::new(LittleEndian, class, &table).iter().collect();
        let headers = Headers { header, segments };
        headers.check()?;
        Ok(headers)
    }

    fn check(&self) -> Result<(), Errno> {
        for segment in self.loadable() {
            let end = segment.p_vaddr.checked_add(segment.p_memsz).ok_or(Errno::EINVAL)?;
            let file_end = segment.p_offset.checked_add(segment.p_filesz).and_then(|end| end.checked_add(PAGE_SIZE));
            if segment.p_filesz > segment.p_memsz
                || end > USER_END.get()
                || file_end.is_none()
                || segment.p_vaddr % PAGE_SIZE != segment.p_offset % PAGE_SIZE
            {
                return Err(Errno::EINVAL);
            }
        }
        // Nothing to run.
        if self.loadable().next().is_none() { Err(Errno::ENOEXEC) } else { Ok(()) }
    }

    fn loadable(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.segments.iter().filter(|segment| segment.p_type == abi::PT_LOAD && segment.p_memsz > 0)
    }

    /// Whether it can go anywhere.
    pub fn is_position_independent(&self) -> bool {
        self.header.e_type == abi::ET_DYN
    }

    /// Whether its stack is to be executable.
    pub fn executable_stack(&self) -> bool {
        self.segments.iter().any(|segment| segment.p_type == abi::PT_GNU_STACK && segment.p_flags & abi::PF_X != 0)
    }

    /// Path of the dynamic linker, if it names one.
    ///
    /// # Errors
    /// `ENOEXEC`: a path that is none.
    pub fn interpreter(&self, file: &Object) -> Result<Option<Vec<u8>>, Errno> {
        let Some(segment) = self.segments.iter().find(|segment| segment.p_type == abi::PT_INTERP) else {
            return Ok(None);
        };
        if !(2..=MAX_INTERPRETER).contains(&segment.p_filesz) {
            return Err(Errno::ENOEXEC);
        }
        let mut path = alloc::vec![0; segment.p_filesz as usize];
        read_exactly(file, segment.p_offset, &mut path)?;
        if path.pop() != Some(0) {
            return Err(Errno::ENOEXEC);
        }
        let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
        path.truncate(end);
        Ok(Some(path))
    }

    /// First and one past the last page that it covers, and the alignment that it wants.
    fn extent(&self) -> (u64, u64, u64) {
        let start = self.loadable().map(|segment| segment.p_vaddr).min().unwrap_or(0) & !(PAGE_SIZE - 1);
        let end = self.loadable().map(|segment| segment.p_vaddr + segment.p_memsz).max().unwrap_or(0);
        let alignment = self.loadable().map(|segment| segment.p_align).filter(|align| align.is_power_of_two()).max();
        (start, end.next_multiple_of(PAGE_SIZE), alignment.unwrap_or(PAGE_SIZE).max(PAGE_SIZE))
    }

    fn bias(&self, space: &AddressSpace, base: Base) -> Result<u64, Errno> {
        if !self.is_position_independent() {
            return Ok(0);
        }
        let (start, end, alignment) = self.extent();
        let address = match base {
            Base::Program(base) => base.get() & !(alignment - 1),
            Base::Anywhere => {
                // Found by mapping something of that size for a moment.
                let slack = alignment - PAGE_SIZE;
                let len = (end - start).checked_add(slack).ok_or(Errno::ENOMEM)?;
                let found = space.map(MapRequest {
                    placement: Placement::Anywhere,
                    len,
                    flags: MAY_ALL,
                    backing: Backing::Anonymous,
                    page_offset: 0,
                })?;
                space.unmap(PageRange::from_len(found, len).ok_or(Errno::ENOMEM)?)?;
                found.get().checked_next_multiple_of(alignment).ok_or(Errno::ENOMEM)?
            }
        };
        Ok(address.wrapping_sub(start))
    }

    /// Maps all segments.
    ///
    /// # Errors
    /// `ENOMEM`: no room or memory. `EINVAL`: addresses outside the user half.
    pub fn load(&self, space: &AddressSpace, file: &Arc<Object>, base: Base) -> Result<Image, Errno> {
        let bias = self.bias(space, base)?;
        let place = |address: u64| VirtAddr(address.wrapping_add(bias));
        let (first, _, _) = self.extent();
        let start = place(first);
        let mut image = Image {
            bias,
            entry: place(self.header.e_entry),
            headers: VirtAddr(0),
            header_count: u64::from(self.header.e_phnum),
            header_size: PROGRAM_HEADER_SIZE as u64,
            end: start,
            code: (VirtAddr(u64::MAX), VirtAddr(0)),
            data: (VirtAddr(0), VirtAddr(0)),
        };
        for segment in self.loadable() {
            map_segment(space, file, segment, place(segment.p_vaddr))?;
            let (start, file_end) = (place(segment.p_vaddr), place(segment.p_vaddr + segment.p_filesz));
            let header_offset = self.header.e_phoff;
            if (segment.p_offset..segment.p_offset + segment.p_filesz).contains(&header_offset) {
                image.headers = place(header_offset - segment.p_offset + segment.p_vaddr);
            }
            if segment.p_flags & abi::PF_X != 0 {
                image.code = (image.code.0.min(start), image.code.1.max(file_end));
            }
            image.data = (image.data.0.max(start), image.data.1.max(file_end));
            image.end = image.end.max(place(segment.p_vaddr + segment.p_memsz));
        }
        if image.code.0 > image.code.1 {
            image.code = (start, start);
        }
        Ok(image)
    }
}

/// Maps one segment at `start`: pages of the file, then zeros.
fn map_segment(
    space: &AddressSpace,
    file: &Arc<Object>,
    segment: &ProgramHeader,
    start: VirtAddr,
) -> Result<(), Errno> {
    let mut flags = MAY_ALL;
    flags.set(VmaFlags::READ, segment.p_flags & abi::PF_R != 0);
    flags.set(VmaFlags::WRITE, segment.p_flags & abi::PF_W != 0);
    flags.set(VmaFlags::EXEC, segment.p_flags & abi::PF_X != 0);
    let first_page = start.page_floor();
    let file_end = start.checked_add(segment.p_filesz).ok_or(Errno::EINVAL)?;
    let memory_end = start.checked_add(segment.p_memsz).and_then(VirtAddr::page_ceil).ok_or(Errno::EINVAL)?;
    let mut mapped_to = first_page;
    if segment.p_filesz > 0 {
        mapped_to = file_end.page_ceil().ok_or(Errno::EINVAL)?;
        space.map(MapRequest {
            placement: Placement::Fixed(first_page),
            len: mapped_to.get() - first_page.get(),
            flags,
            backing: Backing::Object(file.clone()),
            page_offset: (segment.p_offset - start.page_offset() as u64) / PAGE_SIZE,
        })?;
        if segment.p_memsz > segment.p_filesz && flags.contains(VmaFlags::WRITE) {
            // The rest of the last page shows what follows in the file: the program is to see zeros.
            let zeros = [0; PAGE_SIZE as usize];
            let rest = (mapped_to.get() - file_end.get()) as usize;
            if space.write_forced(file_end, &zeros[..rest]) != rest {
                return Err(Errno::ENOMEM);
            }
        }
    }
    if memory_end > mapped_to {
        // Zeroed memory is always readable and writable, as Linux's `vm_brk_flags` makes it.
        space.map(MapRequest {
            placement: Placement::Fixed(mapped_to),
            len: memory_end.get() - mapped_to.get(),
            flags: MAY_ALL | VmaFlags::READ | VmaFlags::WRITE | (flags & VmaFlags::EXEC),
            backing: Backing::Anonymous,
            page_offset: 0,
        })?;
    }
    Ok(())
}

fn read_exactly(file: &Object, offset: u64, out: &mut [u8]) -> Result<(), Errno> {
    if file.read_at(offset, out)? == out.len() { Ok(()) } else { Err(Errno::ENOEXEC) }
}
