//! Calls that cannot be compared with the host's: it has no names, no Linux has reference pages, and a test has not the rights that some need.

mod addresses;
mod errors;
mod keys;
mod lost;
mod names;
mod pages;

use std::sync::Arc;

use foldspace::AddressSpace;
use foldspace_hosted::{Host, Layouts};
use foldspace_linux::{Caller, Capability, Errno, OpenFile, abi};

const PAGE: u64 = 4096;
/// Where nothing is until something is mapped there.
const AT: u64 = 0x1234_5600_0000;

/// A process with some descriptors, and no rights unless it is given some.
struct Process {
    space: Arc<AddressSpace>,
    files: Vec<(i32, OpenFile)>,
    rights: Vec<Capability>,
}

impl Process {
    fn new() -> Process {
        let host = Host::new(32 << 20).expect("an arena");
        let space = AddressSpace::new(host.memory(), Layouts::process()).expect("a root");
        Process { space, files: Vec::new(), rights: Vec::new() }
    }

    /// Maps anonymous memory at a page counted from [`AT`].
    fn map(&self, page: u64, pages: u64, prot: u64) {
        let flags = abi::MAP_PRIVATE | abi::MAP_ANONYMOUS | abi::MAP_FIXED;
        let mapped = foldspace_linux::mmap(self, AT + page * PAGE, pages * PAGE, prot, flags, -1, 0);
        assert_eq!(mapped, Ok(AT + page * PAGE));
    }
}

impl Caller for Process {
    fn space(&self) -> &AddressSpace {
        &self.space
    }

    fn open_file(&self, fd: i32) -> Result<OpenFile, Errno> {
        let file = self.files.iter().find(|(number, _)| *number == fd);
        file.map(|(_, file)| file.clone()).ok_or(Errno::EBADF)
    }

    fn is_capable(&self, capability: Capability) -> bool {
        self.rights.contains(&capability)
    }
}
