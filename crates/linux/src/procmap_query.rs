//! ioctl(PROCMAP_QUERY) on an open maps file.

use alloc::sync::Arc;
use alloc::vec::Vec;

use foldspace::proc::{Found, Query, Reach};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, VirtAddr};
use linux_raw_sys::general::procmap_query_flags as raw;

use crate::build_id::BuildId;
use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{PAGE, is_user};
use crate::vector::number;

/// The request: `_IOWR('f', 17, struct procmap_query)`.
pub const PROCMAP_QUERY: u32 = 0xc068_6611;

/// Bytes of `struct procmap_query`.
const SIZE: usize = 104;
/// What there must be of it at least: up to the address that is asked about.
const LEAST: u64 = 24;
/// The longest name that is given out, with its NUL (`PATH_MAX`).
const MAX_NAME: usize = 4096;

/// Flags that name one of the manager's.
const FLAGS: [(u64, VmaFlags); 4] = [
    (raw::PROCMAP_QUERY_VMA_READABLE as u64, VmaFlags::READ),
    (raw::PROCMAP_QUERY_VMA_WRITABLE as u64, VmaFlags::WRITE),
    (raw::PROCMAP_QUERY_VMA_EXECUTABLE as u64, VmaFlags::EXEC),
    (raw::PROCMAP_QUERY_VMA_SHARED as u64, VmaFlags::SHARED),
];
const COVERING_OR_NEXT: u64 = raw::PROCMAP_QUERY_COVERING_OR_NEXT_VMA as u64;
const FILE_BACKED: u64 = raw::PROCMAP_QUERY_FILE_BACKED_VMA as u64;

/// Where each field of `struct procmap_query` begins.
mod at {
    pub const QUERY_FLAGS: usize = 8;
    pub const QUERY_ADDR: usize = 16;
    pub const VMA_START: usize = 24;
    pub const VMA_END: usize = 32;
    pub const VMA_FLAGS: usize = 40;
    pub const VMA_PAGE_SIZE: usize = 48;
    pub const VMA_OFFSET: usize = 56;
    pub const INODE: usize = 64;
    /// From here on 32 bits each.
    pub const DEV_MAJOR: usize = 72;
    pub const DEV_MINOR: usize = 76;
    pub const VMA_NAME_SIZE: usize = 80;
    pub const BUILD_ID_SIZE: usize = 84;
    /// And 64 again.
    pub const VMA_NAME_ADDR: usize = 88;
    pub const BUILD_ID_ADDR: usize = 96;
}

/// ioctl(fd, [`PROCMAP_QUERY`], address): one VMA of the address space that the file `fd` is bound to. `find` gives that address space, and `ESRCH` if it
/// is gone; it is asked after the arguments were checked.
///
/// # Errors
///
/// `EFAULT`: something cannot be read or written. `E2BIG`: a structure of more than a page, or a longer one than is known with something in what is
/// not known. `EINVAL`: one that is too short, unknown flags, a buffer without size or a size without buffer. `ENOENT`: there is no such VMA.
/// `ENAMETOOLONG`: the name, or the build id, is longer than its buffer.
pub fn procmap_query(
    caller: &impl Caller,
    address: u64,
    find: impl FnOnce() -> Result<Arc<AddressSpace>, Errno>,
) -> Result<(), Errno> {
    // Linux's order: `do_procmap_query` in fs/proc/task_mmu.c.
    let mut asked = Asked::read(caller.space(), address)?;
    let query = asked.query()?;
    let space = find()?;
    let found = space.query(&query).ok_or(Errno::ENOENT)?;
    drop(space);
    asked.answer(&found);
    let build_id = asked.build_id(&found)?;
    let name = asked.name(&found)?;
    write(caller.space(), asked.long(at::VMA_NAME_ADDR), &name)?;
    write(caller.space(), asked.long(at::BUILD_ID_ADDR), build_id.as_ref().map_or(&[], BuildId::bytes))?;
    write(caller.space(), address, &asked.bytes[..asked.len])
}

/// A `struct procmap_query`.
struct Asked {
    bytes: [u8; SIZE],
    /// How much of it the caller knows of.
    len: usize,
}

impl Asked {
    /// The structure at `address`, whose size its first field says (`copy_struct_from_user`).
    fn read(space: &AddressSpace, address: u64) -> Result<Asked, Errno> {
        let mut size = [0; 8];
        read(space, address, &mut size)?;
        let size = number(&size);
        if size > PAGE {
            return Err(Errno::E2BIG);
        }
        if size < LEAST {
            return Err(Errno::EINVAL);
        }
        let mut asked = Asked { bytes: [0; SIZE], len: (size as usize).min(SIZE) };
        let mut done = SIZE as u64;
        while done < size {
            let mut rest = [0; 64];
            let part = (size - done).min(rest.len() as u64);
            read(space, address.wrapping_add(done), &mut rest[..part as usize])?;
            if rest.iter().any(|byte| *byte != 0) {
                return Err(Errno::E2BIG);
            }
            done += part;
        }
        read(space, address, &mut asked.bytes[..asked.len])?;
        Ok(asked)
    }

    fn query(&self) -> Result<Query, Errno> {
        let flags = self.long(at::QUERY_FLAGS);
        let known = FLAGS.iter().fold(COVERING_OR_NEXT | FILE_BACKED, |known, (flag, _)| known | flag);
        if flags & !known != 0 {
            return Err(Errno::EINVAL);
        }
        for (size, buffer) in [(at::VMA_NAME_SIZE, at::VMA_NAME_ADDR), (at::BUILD_ID_SIZE, at::BUILD_ID_ADDR)] {
            if (self.int(size) == 0) != (self.long(buffer) == 0) {
                return Err(Errno::EINVAL);
            }
        }
        let wanted = FLAGS.iter().filter(|(flag, _)| flags & flag != 0);
        Ok(Query {
            addr: VirtAddr(self.long(at::QUERY_ADDR)),
            reach: if flags & COVERING_OR_NEXT != 0 { Reach::CoveringOrNext } else { Reach::Covering },
            all: wanted.fold(VmaFlags::empty(), |all, (_, flag)| all | *flag),
            any: if flags & FILE_BACKED != 0 { VmaFlags::FILE } else { VmaFlags::empty() },
        })
    }

    fn answer(&mut self, found: &Found) {
        let (vma, (identity, offset)) = (found.vma(), found.origin());
        let has = FLAGS.iter().filter(|(_, flag)| vma.flags.contains(*flag));
        self.put(at::VMA_START, &vma.start().get().to_ne_bytes());
        self.put(at::VMA_END, &vma.end().get().to_ne_bytes());
        self.put(at::VMA_FLAGS, &has.fold(0, |flags, (flag, _)| flags | flag).to_ne_bytes());
        self.put(at::VMA_PAGE_SIZE, &PAGE.to_ne_bytes());
        self.put(at::VMA_OFFSET, &offset.to_ne_bytes());
        self.put(at::INODE, &identity.inode.to_ne_bytes());
        self.put(at::DEV_MAJOR, &identity.major.to_ne_bytes());
        self.put(at::DEV_MINOR, &identity.minor.to_ne_bytes());
    }

    /// The build id, if it is asked for and there is one; its size goes into the answer.
    fn build_id(&mut self, found: &Found) -> Result<Option<BuildId>, Errno> {
        let room = self.int(at::BUILD_ID_SIZE) as usize;
        if room == 0 {
            return Ok(None);
        }
        let Backing::Object(file) = &found.vma().backing else {
            self.put(at::BUILD_ID_SIZE, &0u32.to_ne_bytes());
            return Ok(None);
        };
        let read = |offset, out: &mut [u8]| (file.read_at(offset, out) == Ok(out.len())).then_some(());
        let build_id = BuildId::of(read);
        let len = build_id.as_ref().map_or(0, |id| id.bytes().len());
        if len > room {
            return Err(Errno::ENAMETOOLONG);
        }
        self.put(at::BUILD_ID_SIZE, &(len as u32).to_ne_bytes());
        Ok(build_id)
    }

    /// The name with its NUL, if it is asked for and there is one; its size goes into the answer.
    fn name(&mut self, found: &Found) -> Result<Vec<u8>, Errno> {
        let mut name = Vec::new();
        let room = (self.int(at::VMA_NAME_SIZE) as usize).min(MAX_NAME);
        if room > 0 {
            found.name(&mut name);
            if !name.is_empty() {
                name.push(0);
            }
            if name.len() > room {
                return Err(Errno::ENAMETOOLONG);
            }
            self.put(at::VMA_NAME_SIZE, &(name.len() as u32).to_ne_bytes());
        }
        Ok(name)
    }

    fn long(&self, at: usize) -> u64 {
        number(&self.bytes[at..at + 8])
    }

    fn int(&self, at: usize) -> u32 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|byte| self.bytes[at + byte]);
        u32::from_ne_bytes([a, b, c, d])
    }

    fn put(&mut self, at: usize, field: &[u8]) {
        self.bytes[at..at + field.len()].copy_from_slice(field);
    }
}

fn read(space: &AddressSpace, address: u64, out: &mut [u8]) -> Result<(), Errno> {
    let whole = is_user(address, out.len() as u64) && space.read(VirtAddr(address), out) == out.len();
    if whole { Ok(()) } else { Err(Errno::EFAULT) }
}

fn write(space: &AddressSpace, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    let whole = is_user(address, bytes.len() as u64) && space.write(VirtAddr(address), bytes) == bytes.len();
    if whole { Ok(()) } else { Err(Errno::EFAULT) }
}
