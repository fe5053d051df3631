//! A process: an address space, descriptors, and who it is to the layer of system calls.

use std::sync::Arc;

use foldspace::AddressSpace;
use foldspace_linux::{Caller, Capability, Content, Errno, OpenFile, OpenRights};

use super::file::Open;
use crate::window::{FILES, FIRST_FD};

/// A process.
#[derive(Clone)]
pub struct Process {
    pub space: Arc<AddressSpace>,
    pub files: [Option<Open>; FILES],
}

impl Process {
    /// The file with the number that operations use.
    pub fn file(&self, number: u8) -> Result<&Open, i32> {
        self.files.get(number as usize).and_then(Option::as_ref).ok_or(libc::EBADF)
    }
}

impl Caller for Process {
    fn space(&self) -> &AddressSpace {
        &self.space
    }

    fn open_file(&self, fd: i32) -> Result<OpenFile, Errno> {
        let number = u8::try_from(fd.wrapping_sub(FIRST_FD)).map_err(|_| Errno::EBADF)?;
        let open = self.file(number).map_err(|_| Errno::EBADF)?;
        let mut rights = OpenRights::READ | OpenRights::EXECUTE;
        rights.set(OpenRights::WRITE, !open.read_only);
        Ok(OpenFile { content: Content::Object(open.file.object.clone()), rights, max_len: i64::MAX as u64 })
    }

    /// Sequences are for root.
    fn is_capable(&self, _: Capability) -> bool {
        true
    }
}
