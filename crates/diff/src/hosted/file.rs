//! Files without a name (memfd_create), as far as a kernel's file layer has a say: rights, seals, positions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use foldspace::backing::{Identity, Source};
use foldspace::{Memory, Object};

/// F_SEAL_SEAL and the others of fcntl(2).
const SEAL: u32 = 1;
const SHRINK: u32 = 2;
const GROW: u32 = 4;
const WRITE: u32 = 8;
const FUTURE_WRITE: u32 = 0x10;
const EXEC: u32 = 0x20;

/// A file.
pub struct File {
    /// Its pages.
    pub object: Arc<Object>,
    seals: AtomicU32,
}

/// A descriptor of a file.
#[derive(Clone)]
pub struct Open {
    /// Which.
    pub file: Arc<File>,
    /// Whether it was opened for reading only.
    pub read_only: bool,
}

type Result<T> = core::result::Result<T, i32>;

/// An argument that may not be negative.
pub fn unsigned(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| libc::EINVAL)
}

struct Zeros {
    identity: Identity,
    path: String,
}

impl Source for Zeros {
    fn fill(&self, _: u64, _: &mut [u8]) -> foldspace::Result<()> {
        Ok(())
    }
    fn identity(&self) -> Identity {
        self.identity
    }
    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.path.as_bytes());
    }
}

impl Open {
    /// memfd_create.
    pub fn create(memory: &Arc<Memory>, number: u8, flags: u32, read_only: bool) -> Result<Open> {
        // Numbers of shared anonymous memory begin at 1.
        static INODES: AtomicU64 = AtomicU64::new(1 << 40);
        // MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_HUGETLB, MFD_NOEXEC_SEAL, MFD_EXEC
        if flags & !0x1f != 0 {
            return Err(libc::EINVAL);
        }
        let identity = Identity { major: 0, minor: 1, inode: INODES.fetch_add(1, Relaxed) };
        let source = Box::new(Zeros { identity, path: format!("/memfd:f{number} (deleted)") });
        let object = Object::new(memory, source, 0).map_err(|_| libc::ENOMEM)?;
        let seals = if flags & 2 != 0 { 0 } else { SEAL };
        Ok(Open { file: Arc::new(File { object, seals: AtomicU32::new(seals) }), read_only })
    }

    fn sealed(&self, seals: u32) -> bool {
        self.file.seals.load(Relaxed) & seals != 0
    }

    /// Whether nothing more may be written.
    fn write_sealed(&self) -> bool {
        self.sealed(WRITE | FUTURE_WRITE)
    }

    /// ftruncate.
    pub fn truncate(&self, len: u64) -> Result<i64> {
        if self.read_only {
            return Err(libc::EINVAL);
        }
        let old = self.file.object.len();
        if len < old && self.sealed(SHRINK) || len > old && self.sealed(GROW) {
            return Err(libc::EPERM);
        }
        self.file.object.set_len(len).map_err(|_| libc::ENOMEM)?;
        Ok(0)
    }

    /// pwrite.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<i64> {
        if self.read_only {
            return Err(libc::EBADF);
        }
        if self.write_sealed() || self.sealed(GROW) && offset + bytes.len() as u64 > self.file.object.len() {
            return Err(libc::EPERM);
        }
        self.file.object.write_at(offset, bytes).map(|done| done as i64).map_err(|_| libc::ENOMEM)
    }

    /// pread.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<i64> {
        self.file.object.read_at(offset, out).map(|done| done as i64).map_err(|_| libc::ENOMEM)
    }

    /// fallocate, errors in Linux's order (`vfs_fallocate`, `shmem_fallocate`).
    pub fn allocate(&self, mode: i32, offset: i64, len: i64) -> Result<i64> {
        const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE;
        let (start, len) = (unsigned(offset)?, unsigned(len)?);
        if len == 0 {
            return Err(libc::EINVAL);
        }
        if mode & PUNCH != 0 && mode & KEEP_SIZE == 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if self.read_only {
            return Err(libc::EBADF);
        }
        if mode & !(KEEP_SIZE | PUNCH) != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let (object, end) = (&self.file.object, start + len);
        if mode & PUNCH != 0 {
            if self.write_sealed() {
                return Err(libc::EPERM);
            }
            return object.punch_hole(start..end).map(|()| 0).map_err(|_| libc::ENOSPC);
        }
        if self.sealed(GROW) && end > object.len() {
            return Err(libc::EPERM);
        }
        object.ensure(start..end).map_err(|_| libc::ENOSPC)?;
        if mode & KEEP_SIZE == 0 && end > object.len() {
            object.set_len(end).map_err(|_| libc::ENOMEM)?;
        }
        Ok(0)
    }

    /// fcntl(F_ADD_SEALS).
    pub fn add_seals(&self, seals: u32) -> Result<i64> {
        if self.read_only {
            return Err(libc::EPERM);
        }
        if seals & !(SEAL | SHRINK | GROW | WRITE | FUTURE_WRITE | EXEC) != 0 {
            return Err(libc::EINVAL);
        }
        if self.sealed(SEAL) {
            return Err(libc::EPERM);
        }
        // The files of sequences may be executed, and what may be executed for ever must not be written any more.
        let implied = if seals & EXEC != 0 { SHRINK | GROW | WRITE | FUTURE_WRITE } else { 0 };
        let seals = seals | implied;
        if seals & WRITE != 0 && !self.sealed(WRITE) && self.file.object.mapped_writable() {
            return Err(libc::EBUSY);
        }
        if seals & (WRITE | FUTURE_WRITE) != 0 {
            self.file.object.seal();
        }
        self.file.seals.fetch_or(seals, Relaxed);
        Ok(0)
    }
}
