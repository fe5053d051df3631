//! Who calls: all that a call needs to know beside its arguments and the address space.

use alloc::sync::Arc;

use bitflags::bitflags;
use foldspace::backing::Reference;
use foldspace::vma::ProtectionKey;
use foldspace::{AddressSpace, Memory, Object};

use crate::errno::Errno;

/// The process that makes a call, as far as memory calls ask for it. A kernel implements it for its tasks, a tester for a process that exists
/// only in its model.
pub trait Caller {
    /// Its address space.
    fn space(&self) -> &AddressSpace;

    /// The file behind a descriptor, for `mmap`.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if there is none, or if it is only a name (`O_PATH`).
    fn open_file(&self, fd: i32) -> Result<OpenFile, Errno>;

    /// Whether it has a capability (capabilities(7)). Asked for at the moment that it decides.
    fn is_capable(&self, capability: Capability) -> bool;

    /// Whether a signal that ends it is pending: what takes long stops with [`Errno::EINTR`].
    fn is_being_killed(&self) -> bool {
        false
    }

    /// Whether its memory is not to become executable once it may be written (`PR_SET_MDWE`). Asked for only where something is to be executable.
    fn refuses_exec_gain(&self) -> bool {
        false
    }

    /// Memory that it has mapped at `address` has failed, by its own doing: a signal is due (`SIGBUS`, `BUS_MCEERR_AR`).
    fn memory_failed(&self, address: u64) {
        let _ = address;
    }

    /// Sets what the calling thread may not do to memory with a protection key (of `PKEY_DISABLE_ACCESS` = 1 and `PKEY_DISABLE_WRITE` = 2). Called
    /// only where [`Memory::has_protection_keys`].
    fn set_key_rights(&self, key: ProtectionKey, rights: u32) {
        let _ = (key, rights);
    }

    /// Shared anonymous memory of `len` bytes, for embedders that keep a list of the objects that exist.
    ///
    /// # Errors
    ///
    /// As [`Object::anonymous`].
    fn shared_memory(&self, len: u64, reserve: Reserve) -> Result<Arc<Object>, Errno> {
        Ok(reserve.object(self.space().memory(), len)?)
    }
}

/// Whether memory is committed when it is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// It is: a limit may refuse it.
    Yes,
    /// Not unless all memory is (`MAP_NORESERVE`).
    No,
}

impl Reserve {
    /// Shared anonymous memory of `len` bytes.
    ///
    /// # Errors
    ///
    /// As [`Object::anonymous`].
    pub fn object(self, memory: &Arc<Memory>, len: u64) -> foldspace::Result<Arc<Object>> {
        match self {
            Reserve::Yes => Object::anonymous(memory, len),
            Reserve::No => Object::anonymous_unreserved(memory, len),
        }
    }
}

/// A capability that a memory call asks for. As a number it is Linux's (`linux/capability.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Capability {
    /// `CAP_SYS_RAWIO`: mappings below `vm.mmap_min_addr`.
    RawIo = 17,
    /// `CAP_SYS_ADMIN`: advice that memory has failed.
    Admin = 21,
    /// `CAP_SYS_NICE`: advice about another process.
    Nice = 23,
    /// `CAP_SYS_RESOURCE`: `prctl(PR_SET_MM)`.
    Resource = 24,
    /// `CAP_CHECKPOINT_RESTORE`: the executable in `prctl(PR_SET_MM_MAP)`.
    CheckpointRestore = 40,
}

/// What `mmap` needs to know of an open file.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// What a mapping shows.
    pub content: Content,
    /// What may be done with it.
    pub rights: OpenRights,
    /// Bytes that a file may have there at most (`s_maxbytes` of its file system): mappings that reach further are refused. `u64::MAX`: any.
    pub max_len: u64,
}

/// What a mapping of a file shows.
#[derive(Clone, Debug)]
pub enum Content {
    /// Its pages.
    Object(Arc<Object>),
    /// Zeros: the same as anonymous memory (`/dev/zero`).
    Zeros,
    /// The same of a file that private mappings are shown as.
    ZerosOf(Arc<Reference>),
    /// A reference page over and over, whatever the offset (`refpage_create`).
    Pattern(Arc<Reference>),
    /// Nothing: it cannot be mapped.
    Unmappable,
}

bitflags! {
    /// What an open file allows to its mappings.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct OpenRights: u8 {
        /// It is open for reading.
        const READ = 1 << 0;
        /// It is open for writing.
        const WRITE = 1 << 1;
        /// It is not on a file system mounted with `noexec`.
        const EXECUTE = 1 << 2;
        /// It may only be appended to.
        const APPEND_ONLY = 1 << 3;
    }
}
