//! What the actors of a model act on: a machine with a few address spaces of one family, and what is seen of it in the end.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Fault, ForkMode, MapRequest, Placement, Snapshot};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{AccessError, CacheSize, Host, Layouts, Processor, Refusal};

use crate::op::Op;
use crate::platform::ModelPlatform;

pub const RW: VmaFlags = VmaFlags::READ
    .union(VmaFlags::WRITE)
    .union(VmaFlags::MAY_READ)
    .union(VmaFlags::MAY_WRITE)
    .union(VmaFlags::MAY_EXEC);

const MEMORY: u64 = 1 << 20;
/// Pages of the file, with content 9.
const FILE_PAGES: u64 = 3;

/// Where page `number` of the stage is. A last-level table holds pages 0 to 511, the next one 512 to 1023.
pub fn page(number: u64) -> VirtAddr {
    VirtAddr(0x4000_0000 + number * PAGE_SIZE)
}

pub fn pages(from: u64, until: u64) -> PageRange {
    PageRange::new(page(from), page(until)).expect("a range of pages")
}

/// What is there before the actors come, and is looked at afterwards:
///
/// ```text
///   0..5     private, with content: the number of the page and one
///   5..16    private, never touched
///   16..19   the file, privately, 18 with a copy of its own; 20..23 the file, shared
///   512..    private, a whole last-level table; 512 and 513 with content, as above
///   1024..   nothing
/// ```
const LOOKED_AT: [std::ops::Range<u64>; 3] = [0..24, 512..516, 1024..1028];
/// Bytes of each page that are looked at: one for each actor.
pub const BYTES: usize = 3;

/// Who lives at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// A parent.
    One,
    /// And a child.
    Two,
    /// And a grandchild.
    Three,
}

/// An address space of the family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    Parent,
    Child,
    Grandchild,
}

pub struct Stage {
    pub host: Host,
    pub file: Arc<Object>,
    spaces: [Mutex<Option<Arc<AddressSpace>>>; 3],
}

/// What an actor works with.
pub struct Hands {
    pub near: Eye,
    pub far: Eye,
    /// Children that it made.
    pub made: Vec<Arc<AddressSpace>>,
    /// Snapshots that it took.
    pub kept: Vec<Snapshot>,
    /// The byte of each page that is its own.
    pub offset: u64,
    pub results: Vec<String>,
}

/// A processor, and what is done with it.
pub struct Eye(Processor);

impl Eye {
    /// The bytes of all actors.
    pub fn load(&mut self, at: VirtAddr) -> String {
        let mut bytes = [0; BYTES];
        let outcome = self.0.load(at, &mut bytes);
        format!("{:?} {bytes:?}", outcome.map_err(refusal))
    }

    pub fn store_byte(&mut self, at: VirtAddr, offset: u64, value: u8) -> String {
        let outcome = self.0.store(VirtAddr(at.get() + offset), &[value]);
        format!("{:?}", outcome.map_err(refusal))
    }
}

/// Why an access was refused, if that was for its program's sake.
fn refusal(error: AccessError) -> Fault {
    match error.refusal {
        Refusal::Fault(fault) => fault,
        mistake => panic!("a processor at {}: {mistake}", error.at),
    }
}

impl Hands {
    /// Its processors run nothing any more.
    pub fn leave(&mut self) {
        self.near.0.deactivate();
        self.far.0.deactivate();
    }
}

impl Stage {
    pub fn new(family: Family, mode: ForkMode) -> Stage {
        let host = machine();
        let parent = AddressSpace::new(host.memory(), Layouts::process()).expect("a root");
        let file = Object::anonymous(host.memory(), FILE_PAGES * PAGE_SIZE).expect("an object");
        file.write_at(0, &[9; FILE_PAGES as usize * PAGE_SIZE as usize]).expect("pages of the file");
        let stage = Stage { host, file, spaces: Default::default() };
        stage.map(&parent, pages(0, 16), Backing::Anonymous);
        stage.map(&parent, pages(16, 19), Backing::Object(stage.file.clone()));
        let shared = MapRequest {
            placement: Placement::Fixed(page(20)),
            len: 3 * PAGE_SIZE,
            flags: RW | VmaFlags::SHARED,
            backing: Backing::Object(stage.file.clone()),
            page_offset: 0,
        };
        parent.map(shared).expect("a shared mapping");
        stage.map(&parent, pages(512, 1024), Backing::Anonymous);
        for number in (0..5).chain([18, 512, 513]) {
            assert_eq!(parent.write(page(number), &[number as u8 + 1; BYTES]), BYTES);
        }
        parent.set_fork_mode(mode);
        let generations = family as usize;
        let mut youngest = parent;
        for generation in 0..generations {
            let child = youngest.fork().expect("a child");
            *stage.spaces[generation].lock().expect("nobody panicked") = Some(std::mem::replace(&mut youngest, child));
        }
        *stage.spaces[generations].lock().expect("nobody panicked") = Some(youngest);
        stage
    }

    pub fn space(&self, who: Who) -> Option<Arc<AddressSpace>> {
        self.spaces[who as usize].lock().expect("nobody panicked").clone()
    }

    pub fn take(&self, who: Who) -> Option<Arc<AddressSpace>> {
        self.spaces[who as usize].lock().expect("nobody panicked").take()
    }

    /// Two processors that run `who`, and remember what `warm` makes them look at. Nothing of that counts as a result.
    pub fn hands(&self, who: Who, number: usize, warm: &[Op]) -> Hands {
        let eye = || {
            let mut processor = self.host.processor(CacheSize::Unbounded);
            if let Some(space) = self.space(who) {
                processor.activate(&space);
            }
            Eye(processor)
        };
        let mut hands = Hands {
            near: eye(),
            far: eye(),
            made: Vec::new(),
            kept: Vec::new(),
            offset: number as u64,
            results: Vec::new(),
        };
        for op in warm {
            op.perform(self, who, &mut hands);
        }
        hands
    }

    pub fn maps(&self, space: &AddressSpace) -> String {
        let maps = String::from_utf8(space.maps().text()).expect("maps are text");
        // The inode of a piece of shared anonymous memory is a number that nobody repeats.
        let lines = maps.lines().map(|line| line.split(" 00:01 ").next().unwrap_or(line).trim_end());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// All that can be seen, after the invariants were verified.
    pub fn outcome(&self, actors: &[Hands]) -> Result<String, String> {
        settle(&self.host)?;
        let mut text = String::new();
        for (number, hands) in actors.iter().enumerate() {
            let _ = writeln!(text, "{number}: {}", hands.results.join("; "));
        }
        let family = [Who::Parent, Who::Child, Who::Grandchild].map(|who| self.space(who));
        let made = actors.iter().flat_map(|hands| hands.made.iter().cloned().map(Some));
        let spaces: Vec<Option<Arc<AddressSpace>>> = family.into_iter().chain(made).collect();
        let living: Vec<&AddressSpace> = spaces.iter().flatten().map(|space| &**space).collect();
        let check = || self.host.memory().check(&living, &[&self.file]).map_err(|violation| violation.0);
        check()?;
        let stale = self.host.stale(&living);
        if !stale.is_empty() {
            return Err(format!("stale translations: {stale:?}"));
        }
        for space in &spaces {
            let Some(space) = space else {
                text += "no space\n";
                continue;
            };
            for number in LOOKED_AT.into_iter().flatten() {
                let mut bytes = [0; BYTES];
                match space.read(page(number), &mut bytes) {
                    BYTES => text += &format!("{} ", bytes.map(|byte| byte.to_string()).join(".")),
                    _ => text += "- ",
                }
            }
            let _ = writeln!(text, "\n{}", self.maps(space));
        }
        check()?;
        Ok(text)
    }

    /// Whether nothing is left when everybody has gone.
    pub fn end(self, actors: Vec<Hands>) -> Result<(), String> {
        drop(actors);
        let Stage { host, file, spaces } = self;
        drop((file, spaces));
        settle(&host)?;
        host.memory().check(&[], &[]).map_err(|violation| violation.0)?;
        let (left, new) = (host.memory().stats(), machine().memory().stats());
        if left == new { Ok(()) } else { Err(format!("frames are lost: {left:?} instead of {new:?}")) }
    }
}

fn machine() -> Host {
    Host::with_platform(MEMORY, |inner| Box::new(ModelPlatform::new(inner))).expect("a small arena")
}

/// Frees what waits for a grace period.
fn settle(host: &Host) -> Result<(), String> {
    for _ in 0..64 {
        host.memory().reclaim();
        if host.memory().stats().deferred == 0 {
            // Areas that were replaced wait as well, and keep their objects; they are not counted.
            (0..8).for_each(|_| host.memory().reclaim());
            return Ok(());
        }
    }
    Err(format!("dead frames are not freed: {:?}", host.memory().stats()))
}
