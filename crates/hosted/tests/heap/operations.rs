//! The operations, each on a machine where it has much to do.

use std::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::backing::{Identity, Source};
use foldspace::migrate::NotMoved;
use foldspace::space::{Access, Destination, Fault, ForkMode, Leave, MapRequest, Placement, RemapRequest};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::allocator::with_allocations;

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Refused,
}

/// Something that a program, or a kernel, asks for.
pub struct Operation {
    pub name: &'static str,
    /// Does it; what it makes is kept there, so that dropping it is no part of it.
    act: fn(&Machine, &mut Made) -> Result<(), Error>,
}

/// What operations make.
#[derive(Default)]
struct Made {
    spaces: Vec<Arc<AddressSpace>>,
    objects: Vec<Arc<Object>>,
}

/// A parent and its child, which share tables; files, private and shared mappings, a heap, a stack.
struct Machine {
    host: Host,
    parent: Arc<AddressSpace>,
    child: Arc<AddressSpace>,
    /// Has the same areas, and shares nothing.
    alone: Arc<AddressSpace>,
    /// The fourth: the list of all has to grow for another.
    idle: Arc<AddressSpace>,
    file: Arc<Object>,
}

struct Ones;

impl Source for Ones {
    fn fill(&self, _index: u64, page: &mut [u8]) -> foldspace::Result<()> {
        page.fill(1);
        Ok(())
    }
    fn identity(&self) -> Identity {
        Identity { major: 8, minor: 1, inode: 1 }
    }
    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"/ones");
    }
}

const RW: VmaFlags = VmaFlags::READ
    .union(VmaFlags::WRITE)
    .union(VmaFlags::MAY_READ)
    .union(VmaFlags::MAY_WRITE)
    .union(VmaFlags::MAY_EXEC);
/// Private, 40 areas with holes, a page stored to in each.
const AREAS: u64 = 0x4000_0000;
const FILE_PRIVATE: u64 = 0x80_0000_0000;
const FILE_SHARED: u64 = 0x80_0010_0000;
const STACK: u64 = 0x7fff_ff00_0000;
const FRESH: u64 = 0x1000_0000_0000;
/// Nothing lies there; pages of the areas have other indices in its tables.
const ASKEW: u64 = 0x2000_0000_3000;

pub const OPERATIONS: &[Operation] = &[
    Operation { name: "new space", act: |m, made| made.space(AddressSpace::new(m.host.memory(), Layouts::process())) },
    Operation {
        name: "new file",
        act: |m, made| made.object(Object::new(m.host.memory(), Box::new(Ones), 3 * PAGE_SIZE)),
    },
    Operation {
        name: "new shared memory",
        act: |m, made| made.object(Object::anonymous(m.host.memory(), 3 * PAGE_SIZE)),
    },
    Operation { name: "map", act: |m, _| map(&m.parent, Placement::Anywhere, 9, RW, Backing::Anonymous) },
    Operation { name: "map over", act: |m, _| map(&m.parent, fixed(AREAS + PAGE_SIZE), 9, RW, Backing::Anonymous) },
    Operation { name: "map a file", act: |m, _| map(&m.parent, Placement::Anywhere, 3, RW, file(m)) },
    Operation {
        name: "map a file shared",
        act: |m, _| map(&m.child, Placement::Anywhere, 3, RW | VmaFlags::SHARED, file(m)),
    },
    Operation { name: "unmap", act: |m, _| m.parent.unmap(range(AREAS + 2 * PAGE_SIZE, 1)) },
    Operation { name: "unmap much", act: |m, _| m.child.unmap(range(AREAS + PAGE_SIZE, 70)) },
    Operation { name: "unmap what nobody shares", act: |m, _| m.alone.unmap(range(AREAS, 70)) },
    Operation { name: "discard what nobody shares", act: |m, _| m.alone.discard(range(AREAS, 70)) },
    Operation {
        name: "map over what nobody shares",
        act: |m, _| map(&m.alone, fixed(AREAS), 70, RW, Backing::Anonymous),
    },
    Operation { name: "protect", act: |m, _| m.parent.protect(range(AREAS + PAGE_SIZE, 1), VmaFlags::READ) },
    Operation {
        name: "protect a file",
        act: |m, _| m.child.protect(range(FILE_PRIVATE + PAGE_SIZE, 1), VmaFlags::READ),
    },
    Operation { name: "brk", act: |m, _| brk(&m.parent, 5) },
    Operation { name: "brk back", act: |m, _| brk(&m.child, 1) },
    Operation { name: "fork", act: |m, made| fork(&m.parent, ForkMode::Full, made) },
    Operation { name: "fork, last level", act: |m, made| fork(&m.parent, ForkMode::Leaf, made) },
    Operation { name: "fork, copying", act: |m, made| fork(&m.child, ForkMode::Copy, made) },
    Operation { name: "fault of a load", act: |m, _| fault(&m.parent, FRESH, Access::Read) },
    Operation { name: "fault of a store", act: |m, _| fault(&m.parent, FRESH, Access::Write) },
    Operation { name: "fault of a store to a shared page", act: |m, _| fault(&m.child, AREAS, Access::Write) },
    Operation {
        name: "fault of a load from a file",
        act: |m, _| fault(&m.parent, FILE_PRIVATE + PAGE_SIZE, Access::Read),
    },
    Operation {
        name: "fault of a store to a file's copy",
        act: |m, _| fault(&m.parent, FILE_PRIVATE + PAGE_SIZE, Access::Write),
    },
    Operation {
        name: "fault of a store to a file",
        act: |m, _| fault(&m.parent, FILE_SHARED + PAGE_SIZE, Access::Write),
    },
    Operation {
        name: "fault of a store to a file, mapped twice",
        act: |m, _| fault(&m.child, FILE_SHARED, Access::Write),
    },
    Operation { name: "growth of a stack", act: |m, _| fault(&m.parent, STACK - 3 * PAGE_SIZE, Access::Write) },
    Operation { name: "write of a file", act: |m, _| m.file.write_at(2 * PAGE_SIZE + 5, &[7; 5000]).map(drop) },
    Operation { name: "read of a file", act: |m, _| m.file.read_at(PAGE_SIZE, &mut [0; 5000]).map(drop) },
    Operation { name: "cut of a file", act: |m, _| m.file.set_len(PAGE_SIZE) },
    Operation { name: "hole in a file", act: |m, _| m.file.punch_hole(100..3 * PAGE_SIZE) },
    Operation { name: "pages for a file", act: |m, _| m.file.ensure(0..9 * PAGE_SIZE) },
    // Lists of places are set aside for what others share.
    Operation { name: "move of a shared page", act: |m, _| relocate(&m.parent, AREAS, 2, ASKEW) },
    Operation { name: "move of what nobody shares", act: |m, _| relocate(&m.alone, AREAS, 2, ASKEW) },
    Operation { name: "move of a file's pages", act: |m, _| relocate(&m.parent, FILE_SHARED, 5, ASKEW) },
    Operation { name: "migration of a shared page", act: |m, _| migrate(m, &m.child, AREAS) },
    Operation { name: "migration of a file's page", act: |m, _| migrate(m, &m.parent, FILE_SHARED) },
];

impl Made {
    fn space(&mut self, space: Result<Arc<AddressSpace>, Error>) -> Result<(), Error> {
        self.spaces.push(space?);
        Ok(())
    }
    fn object(&mut self, object: Result<Arc<Object>, Error>) -> Result<(), Error> {
        self.objects.push(object?);
        Ok(())
    }
}

fn fixed(at: u64) -> Placement {
    Placement::Fixed(VirtAddr(at))
}

fn range(start: u64, pages: u64) -> PageRange {
    PageRange::from_len(VirtAddr(start), pages * PAGE_SIZE).expect("a range of user pages")
}

fn file(machine: &Machine) -> Backing {
    Backing::Object(machine.file.clone())
}

fn map(space: &AddressSpace, placement: Placement, pages: u64, flags: VmaFlags, backing: Backing) -> Result<(), Error> {
    space.map(MapRequest { placement, len: pages * PAGE_SIZE, flags, backing, page_offset: 0 }).map(drop)
}

fn brk(space: &AddressSpace, pages: u64) -> Result<(), Error> {
    let end = VirtAddr(space.layout().start_brk.get() + pages * PAGE_SIZE);
    if space.brk(end) == end { Ok(()) } else { Err(Error::OutOfMemory) }
}

fn fork(space: &AddressSpace, mode: ForkMode, made: &mut Made) -> Result<(), Error> {
    let before = space.fork_mode();
    space.set_fork_mode(mode);
    let child = space.fork();
    space.set_fork_mode(before);
    made.space(child)
}

/// One area, or part of it: of several, those that moved before a failure stay where they are then.
fn relocate(space: &AddressSpace, from: u64, pages: u64, to: u64) -> Result<(), Error> {
    let len = pages * PAGE_SIZE;
    let to = Destination::Fixed(VirtAddr(to));
    space.remap(RemapRequest { start: VirtAddr(from), len, new_len: len, to, leave: Leave::Hole }).map(drop)
}

fn migrate(machine: &Machine, space: &AddressSpace, addr: u64) -> Result<(), Error> {
    let frame = machine.host.translate(space, VirtAddr(addr)).expect("it is present").frame;
    match machine.host.memory().migrate(frame) {
        Ok(_) => Ok(()),
        Err(NotMoved::OutOfMemory) => Err(Error::OutOfMemory),
        Err(error) => panic!("{error}"),
    }
}

fn fault(space: &AddressSpace, addr: u64, access: Access) -> Result<(), Error> {
    match space.fault(VirtAddr(addr), access) {
        Ok(()) => Ok(()),
        Err(Fault::OutOfMemory) => Err(Error::OutOfMemory),
        Err(fault) => panic!("{fault:?}"),
    }
}

/// What can be seen of a machine without changing it.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    maps: Vec<String>,
    frames: foldspace::frame::MemoryStats,
    file: (u64, u64),
}

impl Machine {
    fn new() -> Machine {
        let host = Host::new(8 << 20).expect("an arena");
        let parent = AddressSpace::new(host.memory(), Layouts::process()).expect("enough");
        let alone = AddressSpace::new(host.memory(), Layouts::process()).expect("enough");
        let file = Object::new(host.memory(), Box::new(Ones), 5 * PAGE_SIZE).expect("enough");
        for area in 0..40 {
            let at = AREAS + area * 2 * PAGE_SIZE;
            // Neighbours differ, so they do not merge.
            let flags = if area % 2 == 0 { RW } else { RW | VmaFlags::EXEC };
            for space in [&parent, &alone] {
                map(space, fixed(at), 2, flags, Backing::Anonymous).expect("enough");
                assert_eq!(space.write(VirtAddr(at), &[area as u8; 8]), 8);
            }
        }
        let of_file = || Backing::Object(file.clone());
        map(&parent, fixed(FILE_PRIVATE), 5, RW, of_file()).expect("enough");
        map(&parent, fixed(FILE_SHARED), 5, RW | VmaFlags::SHARED, of_file()).expect("enough");
        map(&parent, fixed(STACK), 2, RW | VmaFlags::GROWS_DOWN, Backing::Anonymous).expect("enough");
        map(&parent, fixed(FRESH), 2000, RW, Backing::Anonymous).expect("enough");
        assert_eq!(parent.write(VirtAddr(FILE_PRIVATE), b"private"), 7);
        assert_eq!(parent.write(VirtAddr(FILE_SHARED), b"shared"), 6);
        parent.brk(VirtAddr(parent.layout().start_brk.get() + 3 * PAGE_SIZE));
        let child = parent.fork().expect("enough");
        let idle = AddressSpace::new(host.memory(), Layouts::process()).expect("enough");
        Machine { host, parent, child, alone, idle, file }
    }

    fn see(&self) -> Seen {
        self.host.memory().reclaim();
        self.host
            .memory()
            .check(&[&self.parent, &self.child, &self.alone, &self.idle], &[&self.file])
            .expect("the invariants hold");
        let maps = |space: &AddressSpace| String::from_utf8_lossy(&space.maps().text()).into_owned();
        Seen {
            maps: vec![maps(&self.parent), maps(&self.child), maps(&self.alone)],
            frames: self.host.memory().stats(),
            file: (self.file.len(), self.file.resident_pages()),
        }
    }

    /// Everything that was ever stored.
    fn contents(&self) -> Vec<Vec<u8>> {
        let mut contents = Vec::new();
        for space in [&self.parent, &self.child] {
            for (start, len) in [(AREAS, 80 * PAGE_SIZE), (FILE_PRIVATE, 5 * PAGE_SIZE), (FILE_SHARED, 5 * PAGE_SIZE)] {
                let mut bytes = vec![0; len as usize];
                assert_eq!(space.read(VirtAddr(start), &mut bytes), bytes.len());
                contents.push(bytes);
            }
        }
        let mut bytes = vec![0; 80 * PAGE_SIZE as usize];
        assert_eq!(self.alone.read(VirtAddr(AREAS), &mut bytes), bytes.len());
        contents.push(bytes);
        contents
    }
}

impl Operation {
    /// Does the operation with so many allocations and verifies what came of it.
    pub fn attempt(&self, allocations: u64) -> Outcome {
        let contents = Machine::new().contents();
        let machine = Machine::new();
        let mut made = Made::default();
        made.spaces.reserve(1);
        made.objects.reserve(1);
        let before = machine.see();
        let outcome = with_allocations(allocations, || (self.act)(&machine, &mut made));
        let outcome = match outcome {
            Ok(()) => Outcome::Done,
            Err(Error::OutOfMemory) => {
                assert_eq!(machine.see(), before, "something changed, or was lost");
                assert!(machine.contents() == contents, "contents changed");
                (self.act)(&machine, &mut made).expect("the second time there is enough");
                Outcome::Refused
            }
            Err(error) => panic!("{error}"),
        };
        let Machine { host, parent, child, alone, idle, file } = machine;
        drop((parent, child, alone, idle, file, made));
        host.memory().reclaim();
        host.memory().check(&[], &[]).expect("the invariants hold");
        let fresh = Host::new(8 << 20).expect("an arena").memory().stats();
        assert_eq!(host.memory().stats(), fresh, "frames were left behind");
        outcome
    }
}
