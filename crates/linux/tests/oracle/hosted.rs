//! The same process, hosted.

use std::sync::Arc;

use foldspace::frame::Overcommit;
use foldspace::space::{Layout, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::Host;
use foldspace_linux::{Caller, Capability, Content, Errno, OpenFile, OpenRights};

/// A caller whose address space starts with the same mappings as a process of the host.
pub struct Hosted {
    pub host: Host,
    pub space: Arc<AddressSpace>,
    pub files: Vec<(i32, OpenFile)>,
    /// Capabilities, as a set of bits (`CapEff` of proc_pid_status(5)).
    pub capabilities: u64,
}

impl Caller for Hosted {
    fn space(&self) -> &AddressSpace {
        &self.space
    }

    fn open_file(&self, fd: i32) -> Result<OpenFile, Errno> {
        let found = self.files.iter().find(|(number, _)| *number == fd);
        found.map(|(_, file)| file.clone()).ok_or(Errno::EBADF)
    }

    fn is_capable(&self, capability: Capability) -> bool {
        self.capabilities & 1 << capability as u32 != 0
    }
}

/// A line of maps: start, end, permissions, offset, name.
pub type Line = (u64, u64, String, u64, String);

/// The lines of a maps file, without what lies outside the user half.
pub fn parse(maps: &str) -> Vec<Line> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let (access, offset) = (words.next()?.to_owned(), number(words.next()?)?);
        let name = words.nth(2).unwrap_or_default().to_owned();
        (end <= 0x7fff_ffff_f000).then_some((start, end, access, offset, name))
    };
    maps.lines().filter_map(line).collect()
}

impl Hosted {
    /// A process with the mappings that `maps` lists, all of them anonymous.
    pub fn like(maps: &str, layout: Layout, capabilities: u64) -> Hosted {
        let host = Host::new(64 << 20).expect("an arena");
        // What it has, it has.
        host.memory().set_overcommit(Overcommit::Always);
        let space = AddressSpace::new(host.memory(), layout).expect("a root");
        for (start, end, access, _, name) in parse(maps) {
            let mut flags = VmaFlags::MAY_READ | VmaFlags::MAY_WRITE | VmaFlags::MAY_EXEC;
            flags.set(VmaFlags::READ, access.contains('r'));
            flags.set(VmaFlags::WRITE, access.contains('w'));
            flags.set(VmaFlags::EXEC, access.contains('x'));
            flags.set(VmaFlags::GROWS_DOWN, name == "[stack]");
            let range = PageRange::new(VirtAddr(start), VirtAddr(end)).expect("a line of maps");
            let request = MapRequest {
                placement: Placement::FixedNoReplace(range.start()),
                len: range.len(),
                flags,
                backing: Backing::Anonymous,
                page_offset: 0,
            };
            space.map(request).expect("maps do not overlap");
        }
        host.memory().set_overcommit(Overcommit::Heuristic);
        Hosted { host, space, files: Vec::new(), capabilities }
    }

    /// What a mapping of a file shows.
    pub fn object(&self, fd: i32) -> &Object {
        let file = self.files.iter().find(|(number, _)| *number == fd);
        match file.map(|(_, file)| &file.content) {
            Some(Content::Object(object)) => object,
            _ => panic!("{fd} is no file that can be mapped"),
        }
    }

    /// Adds a file of `len` zeros, or another object.
    pub fn open(&mut self, fd: i32, object: Option<&Arc<Object>>, rights: OpenRights) {
        let content = object.map_or(Content::Unmappable, |object| Content::Object(object.clone()));
        let max_len = if object.is_some() { i64::MAX as u64 } else { u64::MAX };
        self.files.push((fd, OpenFile { content, rights, max_len }));
    }
}
