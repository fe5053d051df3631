//! skeleton
use crate::error::Result;
use crate::frame::Memory;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

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
    /// Fills page `index` (zeroed when this is called).
    fn fill(&self, index: u64, page: &mut [u8]) -> Result<()>;
    /// Device and inode.
    fn identity(&self) -> Identity;
    /// Appends the path, as `/proc/PID/maps` is to show it (unescaped).
    fn path(&self, out: &mut Vec<u8>);
}

/// A sequence of pages that can be mapped by many address spaces and read and written as a file: a page cache.
pub struct Object {}

impl core::fmt::Debug for Object {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Object")
    }
}

impl Object {
    /// An object of `len` bytes whose pages come from `source` (a file).
    pub fn new(memory: &Arc<Memory>, source: Box<dyn Source>, len: u64) -> Result<Arc<Object>> {
        let _ = (memory, source, len);
        todo!()
    }
    /// Zero-filled shared memory of `len` bytes (MAP_SHARED|MAP_ANONYMOUS).
    pub fn anonymous(memory: &Arc<Memory>, len: u64) -> Result<Arc<Object>> {
        let _ = (memory, len);
        todo!()
    }
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        todo!()
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Sets the length in bytes: zero-fills when it grows, drops cached pages past the end when it shrinks.
    pub fn set_len(&self, len: u64) -> Result<()> {
        let _ = len;
        todo!()
    }
    /// Reads up to the end; returns the bytes read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let _ = (offset, out);
        todo!()
    }
    /// Writes all of `bytes`, or as many as there was memory for (an error only if none); the length grows as needed.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let _ = (offset, bytes);
        todo!()
    }
    /// Pages in the cache.
    pub fn resident_pages(&self) -> u64 {
        todo!()
    }
}
