//! Regular files: an [`Object`] and what is around it.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use crate::sync::Mutex;
use foldspace::Object;
use foldspace::backing::{Identity, Source};

use super::dentry::Dentry;
use super::file::{Body, File, Mappable, OpenFlags, Whence, seek_within};
use super::inode::{Attributes, DeviceNumber, Inode, Kind, Writing};
use super::io::{CHUNK, PageBuffer, Sink, Supply, done_or_fault};
use super::reserve;
use super::seal::Seals;
use super::superblock::{self, FsType, Superblock};
use crate::errno::Errno;
use crate::mm;
use crate::process::limits;
use crate::syscall::SysResult;

/// A page, bytes.
const PAGE: u64 = 4096;

/// Transfers of up to so many bytes go through a buffer on the stack.
const SMALL: usize = 256;

/// How a mapping of the file is named in `/proc/PID/maps`.
enum Label {
    /// By the name it has now.
    Name(Weak<Dentry>),
    /// By the last name it had.
    Removed(Vec<u8>),
}

/// What the memory manager needs to know of a file: where its bytes come from, and how to show it.
struct FileSource {
    device: DeviceNumber,
    inode: u64,
    /// Initial content, from the archive; pages past its end are zero.
    content: &'static [u8],
    label: Arc<Mutex<Label>>,
    /// Whether it is a memfd.
    in_memory_only: bool,
    /// Whether it is for those alone who map it.
    secret: bool,
}

impl Source for FileSource {
    fn fill(&self, index: u64, page: &mut [u8]) -> foldspace::Result<()> {
        let start = usize::try_from(index * PAGE).unwrap_or(usize::MAX).min(self.content.len());
        let end = start.saturating_add(page.len()).min(self.content.len());
        page[..end - start].copy_from_slice(&self.content[start..end]);
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity { major: self.device.major, minor: self.device.minor, inode: self.inode }
    }

    fn is_shared_memory(&self) -> bool {
        self.in_memory_only
    }

    /// What came from the archive is there again whenever it is wanted.
    fn commits_pages(&self) -> bool {
        self.content.is_empty()
    }

    /// Memfds are not, as on Linux, where `transparent_hugepage/shmem_enabled` says so at first.
    fn is_placed_by_tables(&self) -> bool {
        !self.in_memory_only && !self.secret
    }

    fn is_secret(&self) -> bool {
        self.secret
    }

    fn is_unlinked(&self) -> bool {
        !self.secret && matches!(&*self.label.lock(), Label::Removed(_))
    }

    fn path(&self, out: &mut Vec<u8>) {
        match &*self.label.lock() {
            Label::Name(dentry) => {
                if let Some(dentry) = dentry.upgrade() {
                    dentry.path(None, out);
                }
            }
            Label::Removed(path) => out.extend_from_slice(path),
        }
    }
}

/// What becomes of the end of a file that gets pages past it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The file grows.
    Moves,
    /// It is as long as before (`FALLOC_FL_KEEP_SIZE`).
    Stays,
}

/// The content of a regular file.
pub struct Regular {
    object: Arc<Object>,
    label: Arc<Mutex<Label>>,
    /// Whether the content came from the archive, so that blocks are counted by length (they are in the archive, cached or not).
    from_archive: bool,
    /// Held by whoever changes content or length (Linux's `i_rwsem`, held for writing): a write is done as a whole, at an end that stays where it is
    /// (`O_APPEND`), and under seals that stay as they are.
    change: Mutex<()>,
    seals: Mutex<Seals>,
}

impl Regular {
    /// A new inode for a regular file with this content.
    pub fn create(
        superblock: &Arc<Superblock>,
        attributes: Attributes,
        content: &'static [u8],
    ) -> Result<Arc<Inode>, Errno> {
        let number = superblock.next_inode();
        let label = Arc::new(Mutex::new(Label::Removed(Vec::new())));
        let source = FileSource {
            device: superblock.device,
            inode: number,
            content,
            label: label.clone(),
            in_memory_only: Arc::ptr_eq(superblock, superblock::shmem()),
            secret: superblock.kind == FsType::Secretmem,
        };
        let object = Object::new(mm::memory(), Box::new(source), content.len() as u64)?;
        mm::objects::made(&object);
        let regular = Regular {
            object,
            label,
            from_archive: !content.is_empty(),
            change: Mutex::new(()),
            seals: Mutex::new(Seals::SEAL),
        };
        Ok(Inode::numbered(superblock, number, Kind::Regular(regular), attributes))
    }

    /// The pages.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Makes mappings show this name. Called when the file gets its first name.
    pub fn set_name(&self, dentry: &Arc<Dentry>) {
        *self.label.lock() = Label::Name(Arc::downgrade(dentry));
    }

    /// Makes mappings show the name that `dentry` had, once it is removed.
    pub fn name_removed(&self, dentry: &Arc<Dentry>) {
        let shown =
            matches!(&*self.label.lock(), Label::Name(name) if core::ptr::eq(name.as_ptr(), Arc::as_ptr(dentry)));
        if shown {
            let mut path = Vec::new();
            dentry.path(None, &mut path);
            *self.label.lock() = Label::Removed(path);
        }
    }

    /// Makes mappings show this text.
    pub fn set_label(&self, text: &[u8]) {
        *self.label.lock() = Label::Removed(text.to_vec());
    }

    /// What may not be done to it.
    pub fn seals(&self) -> Seals {
        *self.seals.lock()
    }

    /// Changes the seals to what `change` makes of them, unless that fails.
    pub fn change_seals(&self, change: impl FnOnce(Seals) -> Result<Seals, Errno>) -> Result<(), Errno> {
        let _change = self.change.lock();
        let mut seals = self.seals.lock();
        *seals = change(*seals)?;
        Ok(())
    }

    /// 512-byte blocks in use.
    pub fn blocks(&self) -> u64 {
        let pages = if self.from_archive { self.object.len().div_ceil(PAGE) } else { self.object.resident_pages() };
        pages * (PAGE / 512)
    }

    /// Sets the length. `EFBIG` beyond what a file can have, `ENOSPC` without memory, `EPERM` against a seal.
    pub fn set_len(&self, len: u64) -> Result<(), Errno> {
        let _change = self.change.lock();
        self.set_len_locked(len)
    }

    fn set_len_locked(&self, len: u64) -> Result<(), Errno> {
        if len > i64::MAX as u64 {
            return Err(Errno::EFBIG);
        }
        // Once it has a length, that is what it keeps (`secretmem_setattr`).
        if self.object.is_secret() && !self.object.is_empty() {
            return Err(Errno::EINVAL);
        }
        self.seals().check_len(self.object.len(), len)?;
        self.object.set_len(len).map_err(no_space)
    }

    /// Gives pages to `start..end`, also past the end of the file. Errors in the order of Linux's `shmem_fallocate`.
    pub fn allocate(&self, start: u64, end: u64, at_end: End) -> Result<(), Errno> {
        let _change = self.change.lock();
        let len = self.object.len();
        if end > len && self.seals().contains(Seals::GROW) {
            return Err(Errno::EPERM);
        }
        self.object.ensure(start..end).map_err(no_space)?;
        if at_end == End::Moves && end > self.object.len() {
            self.set_len_locked(end)?;
        }
        Ok(())
    }

    /// Makes `start..end` a hole: pages that lie in it go, also where they are mapped shared, and bytes around them become zeros. `EPERM` against
    /// a seal.
    pub fn punch_hole(&self, start: u64, end: u64) -> Result<(), Errno> {
        let _change = self.change.lock();
        if self.seals().forbid_writing() {
            return Err(Errno::EPERM);
        }
        self.object.punch_hole(start..end).map_err(no_space)
    }

    /// Zeroes `start..end`, as far as it lies below the end of the file.
    pub fn zero(&self, start: u64, end: u64) -> Result<(), Errno> {
        static ZEROS: [u8; CHUNK] = [0; CHUNK];
        let _change = self.change.lock();
        let mut at = start;
        let end = end.min(self.object.len());
        while at < end {
            let step = (PAGE - at % PAGE).min(end - at);
            at += self.object.write_at(at, &ZEROS[..step as usize]).map_err(no_space)? as u64;
        }
        Ok(())
    }

    /// Copies from `offset` on; returns the bytes copied.
    pub fn read_into(&self, offset: u64, out: &mut dyn Sink) -> SysResult {
        if let Some(done) = out.put_from(&self.object, offset) {
            let done = done?;
            let rest = out.room() > 0 && offset.saturating_add(done as u64) < self.object.len();
            return if rest { done_or_fault(done) } else { Ok(done) };
        }
        if out.room() <= SMALL {
            self.read_chunks(offset, &mut [0; SMALL], out)
        } else {
            self.read_chunks(offset, PageBuffer::new()?.bytes(), out)
        }
    }

    /// Through a buffer whose length is a power of two.
    fn read_chunks(&self, offset: u64, buffer: &mut [u8], out: &mut dyn Sink) -> SysResult {
        let mut done = 0;
        while out.room() > 0 {
            let at = offset + done as u64;
            // Up to the end of a page, so that later rounds move whole ones.
            let want = out.room().min(buffer.len() - (at as usize & (buffer.len() - 1)));
            let got = match self.object.read_at(at, &mut buffer[..want]) {
                Ok(got) => got,
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            };
            let put = out.put(&buffer[..got]);
            done += put;
            if put < got {
                return done_or_fault(done);
            }
            if got < want {
                break;
            }
        }
        Ok(done)
    }

    /// Writes at `offset`; returns the bytes written. `EPERM` against a seal, if that allows no byte. With the content locked.
    fn write_from(&self, offset: u64, from: &mut dyn Supply) -> SysResult {
        let seals = self.seals();
        let mut allowed = usize::MAX;
        if seals.forbid_writing() {
            allowed = 0;
        } else if seals.contains(Seals::GROW) {
            allowed = usize::try_from(self.object.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        }
        if allowed == 0 && from.remaining() > 0 {
            return Err(Errno::EPERM);
        }
        let limit = limits::file_size();
        if offset >= limit {
            return Err(Errno::EFBIG);
        }
        allowed = allowed.min(usize::try_from(limit - offset).unwrap_or(usize::MAX));
        if from.remaining() <= SMALL {
            self.write_chunks(offset, &mut [0; SMALL], from, allowed)
        } else {
            self.write_chunks(offset, PageBuffer::new()?.bytes(), from, allowed)
        }
    }

    /// Through a buffer whose length is a power of two; `allowed` bytes at most.
    fn write_chunks(&self, offset: u64, buffer: &mut [u8], from: &mut dyn Supply, allowed: usize) -> SysResult {
        let mut done = 0;
        while from.remaining() > 0 && done < allowed {
            let at = match offset.checked_add(done as u64) {
                Some(at) if at < i64::MAX as u64 => at,
                _ if done > 0 => break,
                _ => return Err(Errno::EFBIG),
            };
            let room = (buffer.len() - (at as usize & (buffer.len() - 1))).min(allowed - done);
            let want = from.remaining().min(room);
            let got = from.take(&mut buffer[..want]);
            if at + got as u64 > self.object.len()
                && let Err(error) = reserve::check(Errno::ENOSPC)
            {
                return if done > 0 { Ok(done) } else { Err(error) };
            }
            if got > 0 {
                match self.object.write_at(at, &buffer[..got]) {
                    Ok(put) => {
                        done += put;
                        if put < got {
                            break;
                        }
                    }
                    Err(error) if done == 0 => return Err(no_space(error)),
                    Err(_) => break,
                }
            }
            if got < want {
                return done_or_fault(done);
            }
        }
        Ok(done)
    }
}

/// What a lack of memory means to a writer of a file.
fn no_space(error: foldspace::Error) -> Errno {
    match error {
        foldspace::Error::OutOfMemory | foldspace::Error::NoRoom | foldspace::Error::CommitLimit => Errno::ENOSPC,
        foldspace::Error::BadRange => Errno::EFBIG,
        other => other.into(),
    }
}

/// An open regular file.
pub struct RegularBody {
    /// Keeps others from executing it. Memfds do without, as on Linux.
    #[expect(dead_code, reason = "held to be dropped")]
    pub writing: Option<Writing>,
}

impl RegularBody {
    fn regular(file: &File) -> Result<&Regular, Errno> {
        file.inode().regular().ok_or(Errno::EINVAL)
    }
}

impl Body for RegularBody {
    fn read(&self, file: &File, at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let regular = Self::regular(file)?;
        let done = match at {
            Some(offset) => regular.read_into(offset, out)?,
            None => {
                let mut position = file.position.lock();
                let done = regular.read_into(*position, out)?;
                *position += done as u64;
                done
            }
        };
        file.touch_accessed();
        Ok(done)
    }

    fn write(&self, file: &File, at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        let regular = Self::regular(file)?;
        if from.remaining() == 0 {
            return Ok(0);
        }
        // As on Linux, O_APPEND wins over the offset of pwrite.
        let append = file.flags().contains(OpenFlags::APPEND);
        let mut position = if at.is_none() { Some(file.position.lock()) } else { None };
        let change = regular.change.lock();
        let offset = match (&position, at) {
            _ if append => regular.object.len(),
            (Some(position), _) => **position,
            (None, at) => at.unwrap_or(0),
        };
        let done = regular.write_from(offset, from);
        drop(change);
        if done == Err(Errno::EFBIG) {
            drop(position);
            limits::check_file_size(offset.saturating_add(1))?;
            return done;
        }
        let done = done?;
        if let Some(position) = &mut position {
            **position = offset + done as u64;
        }
        file.inode().touch_modified();
        Ok(done)
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64, Errno> {
        let len = Self::regular(file)?.object.len();
        seek_within(&mut file.position.lock(), len, offset, whence)
    }

    fn has_position(&self) -> bool {
        true
    }

    fn mappable(&self, file: &File) -> Result<Mappable, Errno> {
        Ok(Mappable::Object(Self::regular(file)?.object.clone()))
    }

    fn ioctl(&self, _task: &crate::process::Task, file: &File, request: u32, argument: u64) -> SysResult {
        if request != linux_raw_sys::ioctl::FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let left = (Self::regular(file)?.object.len() as i64).wrapping_sub(*file.position.lock() as i64) as i32;
        crate::mm::uaccess::write(argument, &left)?;
        Ok(0)
    }
}
