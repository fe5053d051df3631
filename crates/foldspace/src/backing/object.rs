//! Objects: sequences of pages that many address spaces map and that are read and written as files. A page cache.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use spin::Mutex;

use crate::addr::PAGE_SIZE;
use crate::error::{Error, Result};
use crate::frame::{Frame, Garbage, Home, Kind, Memory};

/// Device and inode, as `/proc/PID/maps` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Major number of the device.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// Inode number.
    pub inode: u64,
}

/// Where an object's pages come from when they are first needed: a file system's side of a file.
pub trait Source: Send + Sync {
    /// Fills page `index`, 4096 bytes, all zeros when this is called.
    ///
    /// # Errors
    ///
    /// Whatever it says becomes the error of the operation that needed the page.
    fn fill(&self, index: u64, page: &mut [u8]) -> Result<()>;
    /// Device and inode.
    fn identity(&self) -> Identity;
    /// Appends the path, as `/proc/PID/maps` is to show it (unescaped).
    fn path(&self, out: &mut Vec<u8>);
    /// Whether its pages have no other place than memory (a memfd, a System V segment) and so count as shared memory, not as a file's.
    fn is_shared_memory(&self) -> bool {
        false
    }
}

/// A sequence of pages that can be mapped by many address spaces, and read and written as a file.
///
/// Its pages are pinned frames: each counts one reference for the object, and one for every slot that maps it.
pub struct Object {
    memory: Arc<Memory>,
    source: Content,
    len: AtomicU64,
    /// Where the source's content ends: what was cut off once is zeros when the object grows again.
    source_end: AtomicU64,
    pages: Mutex<HashMap<u64, Frame>>,
}

enum Content {
    Source(Box<dyn Source>),
    /// Zero-filled shared memory, with a number of its own.
    Anonymous(u64),
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("identity", &self.identity()).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Object {
    /// An object of `len` bytes whose pages come from `source`: a file.
    ///
    /// # Errors
    ///
    /// None today; pages are allocated as they are needed.
    pub fn new(memory: &Arc<Memory>, source: Box<dyn Source>, len: u64) -> Result<Arc<Object>> {
        Ok(Object::with_content(memory, Content::Source(source), len))
    }

    /// Zero-filled shared memory of `len` bytes (MAP_SHARED with MAP_ANONYMOUS).
    ///
    /// # Errors
    ///
    /// As [`Object::new`].
    pub fn anonymous(memory: &Arc<Memory>, len: u64) -> Result<Arc<Object>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(Object::with_content(memory, Content::Anonymous(number), len))
    }

    fn with_content(memory: &Arc<Memory>, source: Content, len: u64) -> Arc<Object> {
        let pages = Mutex::new(HashMap::new());
        memory.note_object();
        Arc::new(Object {
            memory: Arc::clone(memory),
            source,
            len: AtomicU64::new(len),
            source_end: AtomicU64::new(len),
            pages,
        })
    }

    /// Whether it is shared anonymous memory rather than a file.
    pub fn is_anonymous(&self) -> bool {
        matches!(self.source, Content::Anonymous(_))
    }

    /// Whether its pages count as shared memory (RssShmem) rather than as a file's (RssFile).
    pub fn is_shared_memory(&self) -> bool {
        match &self.source {
            Content::Source(source) => source.is_shared_memory(),
            Content::Anonymous(_) => true,
        }
    }

    /// Device and inode. Shared anonymous memory has device 0:1, as Linux's internal tmpfs usually has.
    pub fn identity(&self) -> Identity {
        match &self.source {
            Content::Source(source) => source.identity(),
            Content::Anonymous(number) => Identity { major: 0, minor: 1, inode: *number },
        }
    }

    /// Appends what `/proc/PID/maps` calls it.
    pub fn path(&self, out: &mut Vec<u8>) {
        match &self.source {
            Content::Source(source) => source.path(out),
            Content::Anonymous(_) => out.extend_from_slice(b"/dev/zero (deleted)"),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages in the cache.
    pub fn resident_pages(&self) -> u64 {
        self.pages.lock().len() as u64
    }

    /// Sets the length in bytes. New bytes read as zeros; pages past the end leave the cache (where they are mapped they stay mapped).
    ///
    /// # Errors
    ///
    /// None today.
    pub fn set_len(&self, len: u64) -> Result<()> {
        let guard = self.memory.pin();
        let mut garbage = Garbage::new();
        let mut pages = self.pages.lock();
        let old = self.len.swap(len, Ordering::AcqRel);
        self.source_end.fetch_min(len, Ordering::AcqRel);
        if len < old {
            let kept = len.div_ceil(PAGE_SIZE);
            for (_, frame) in pages.extract_if(|index, _| *index >= kept) {
                if self.memory.unpin_object(frame) == 0 {
                    garbage.push_data(&self.memory, frame);
                }
            }
            let tail = (len % PAGE_SIZE) as usize;
            if tail != 0
                && let Some(last) = pages.get(&(len / PAGE_SIZE))
            {
                const ZEROS: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];
                self.memory.write_frame(*last, tail, &ZEROS[tail..]);
            }
        }
        drop(pages);
        garbage.retire(&self.memory, &guard);
        Ok(())
    }

    /// Reads from `offset` up to the end; returns how many bytes.
    ///
    /// # Errors
    ///
    /// Out of memory, or what the source says, if not even one byte could be read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let _guard = self.memory.pin();
        let available = self.len().saturating_sub(offset);
        let len = out.len().min(usize::try_from(available).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = (at % PAGE_SIZE) as usize;
            let bytes = (PAGE_SIZE as usize - within).min(len - done);
            match self.page(at / PAGE_SIZE) {
                Ok(frame) => self.memory.read_frame(frame, within, &mut out[done..done + bytes]),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += bytes;
        }
        Ok(done)
    }

    /// Writes at `offset`; the length grows as needed. Returns how many bytes there was memory for.
    ///
    /// # Errors
    ///
    /// Out of memory, or what the source says, if not even one byte could be written; [`Error::BadRange`] if the end would wrap.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let _guard = self.memory.pin();
        offset.checked_add(bytes.len() as u64).ok_or(Error::BadRange)?;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % PAGE_SIZE) as usize;
            let len = (PAGE_SIZE as usize - within).min(bytes.len() - done);
            match self.page(at / PAGE_SIZE) {
                Ok(frame) => self.memory.write_frame(frame, within, &bytes[done..done + len]),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += len;
            self.len.fetch_max(offset + done as u64, Ordering::AcqRel);
        }
        Ok(done)
    }

    /// The frame of page `index`, made if need be; `None` past the end.
    pub(crate) fn frame(&self, index: u64) -> Result<Option<Frame>> {
        if index.checked_mul(PAGE_SIZE).is_none_or(|start| start >= self.len()) {
            return Ok(None);
        }
        self.page(index).map(Some)
    }

    /// The frame of page `index` if there is one in the cache.
    pub(crate) fn resident(&self, index: u64) -> Option<Frame> {
        self.pages.lock().get(&index).copied()
    }

    /// All pages in the cache.
    pub(crate) fn for_each_page(&self, mut visit: impl FnMut(u64, Frame)) {
        self.pages.lock().iter().for_each(|(index, frame)| visit(*index, *frame));
    }

    fn page(&self, index: u64) -> Result<Frame> {
        if let Some(frame) = self.resident(index) {
            return Ok(frame);
        }
        let (frame, mut pages) = loop {
            let source_end = self.source_end.load(Ordering::Acquire);
            let frame = self.fill(index, source_end)?;
            let mut pages = self.pages.lock();
            if let Some(winner) = pages.get(&index) {
                self.memory.free_frame(frame);
                return Ok(*winner);
            }
            if pages.try_reserve(1).is_err() {
                self.memory.free_frame(frame);
                return Err(Error::OutOfMemory);
            }
            // Cut while it was being filled, perhaps in this very page: then once more.
            if self.source_end.load(Ordering::Acquire) == source_end {
                break (frame, pages);
            }
            self.memory.free_frame(frame);
        };
        let record = self.memory.record(frame);
        record.begin(Kind::Object, Home::None);
        record.pin();
        pages.insert(index, frame);
        Ok(frame)
    }

    /// A frame with the content that the source, which ends at byte `source_end`, has for page `index`.
    fn fill(&self, index: u64, source_end: u64) -> Result<Frame> {
        let frame = self.memory.alloc_frame()?;
        self.memory.clear_frame(frame);
        let content = source_end.saturating_sub(index.saturating_mul(PAGE_SIZE)).min(PAGE_SIZE) as usize;
        if let Content::Source(source) = &self.source
            && content > 0
        {
            let mut bytes = [0; PAGE_SIZE as usize];
            if let Err(error) = source.fill(index, &mut bytes) {
                self.memory.free_frame(frame);
                return Err(error);
            }
            self.memory.write_frame(frame, 0, &bytes[..content]);
        }
        Ok(frame)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.memory.note_object_gone();
        let guard = self.memory.pin();
        let mut garbage = Garbage::new();
        for (_, frame) in self.pages.get_mut().drain() {
            if self.memory.unpin_object(frame) == 0 {
                garbage.push_data(&self.memory, frame);
            }
        }
        garbage.retire(&self.memory, &guard);
    }
}
