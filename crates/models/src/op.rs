//! What the actors of a model do.

use foldspace::PageRange;
use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Destination, Leave, MapRequest, Placement, RemapRequest};
use foldspace::vma::{Backing, VmaFlags};
use foldspace_hosted::Layouts;

use crate::stage::{BYTES, Hands, RW, Stage, Who, page, pages};

/// One operation. Pages are counted from the start of the stage's range; what a store stores is one byte, at the offset of its actor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Load(u64),
    Store(u64, u8),
    /// By another processor that runs the same address space.
    LoadElsewhere(u64),
    StoreElsewhere(u64, u8),
    /// By the kernel, as write(2) does.
    Write(u64, u8),
    /// By the kernel, as read(2) does from where the program has its bytes.
    Read(u64),
    /// The heap has so many pages from now on.
    Brk(u64),
    Fork,
    Exit,
    Clear,
    Unmap(u64, u64),
    Map(u64, u64),
    MapFile(u64, u64),
    Protect(u64, u64, Allow),
    Discard(u64, u64),
    /// As no longer needed (MADV_FREE).
    Free(u64, u64),
    /// Pages `.0` to `.1` go to where `.2` is.
    Move(u64, u64, u64),
    /// The file has so many pages from now on.
    Truncate(u64),
    Punch(u64, u64),
    WriteFile(u64, u8),
    /// The lines of maps.
    Maps,
    /// The area at a page or after it, asked of the current version.
    Query(u64),
    /// Looks up who maps what the page shows. That is of one instant, but of which is another matter: so only that it ends.
    WhoMaps(u64),
    /// Moves what the page shows to another frame. Whether it could is no result: others may have been in the way.
    Migrate(u64),
    /// Keeps what the address space is now.
    Snapshot,
    /// Goes back to what it kept last.
    Restore,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allow {
    Nothing,
    Reading,
    Writing,
}

impl Op {
    /// Does it for an actor of `who`, and says what came of it.
    pub fn perform(self, stage: &Stage, who: Who, hands: &mut Hands) -> String {
        if self == Op::Exit {
            hands.leave();
            return stage.take(who).is_some().to_string();
        }
        let (Some(space), offset) = (stage.space(who), hands.offset) else { return "no space".into() };
        match self {
            Op::Load(at) => hands.near.load(page(at)),
            Op::LoadElsewhere(at) => hands.far.load(page(at)),
            Op::Store(at, value) => hands.near.store_byte(page(at), offset, value),
            Op::StoreElsewhere(at, value) => hands.far.store_byte(page(at), offset, value),
            Op::Write(at, value) => space.write(page(at).checked_add(offset).expect("small"), &[value]).to_string(),
            Op::Read(at) => {
                let mut bytes = [0; BYTES];
                let done = space.read(page(at), &mut bytes);
                format!("{done} {bytes:?}")
            }
            Op::Brk(pages) => {
                let end = Layouts::process().start_brk.checked_add(pages * PAGE_SIZE).expect("small");
                format!("{:?}", space.brk(end))
            }
            Op::Fork => {
                let child = space.fork();
                let outcome = format!("{:?}", child.as_ref().map(|_| ()));
                hands.made.extend(child.ok());
                outcome
            }
            Op::Exit => unreachable!("done above"),
            Op::Clear => format!("{:?}", space.clear()),
            Op::Unmap(from, until) => format!("{:?}", space.unmap(pages(from, until))),
            Op::Map(from, until) => stage.map(&space, pages(from, until), Backing::Anonymous),
            Op::MapFile(from, until) => stage.map(&space, pages(from, until), Backing::Object(stage.file.clone())),
            Op::Protect(from, until, allow) => {
                let flags = match allow {
                    Allow::Nothing => VmaFlags::empty(),
                    Allow::Reading => VmaFlags::READ,
                    Allow::Writing => VmaFlags::READ | VmaFlags::WRITE,
                };
                format!("{:?}", space.protect(pages(from, until), flags))
            }
            Op::Discard(from, until) => format!("{:?}", space.discard(pages(from, until))),
            Op::Free(from, until) => format!("{:?}", space.free(pages(from, until))),
            Op::Move(from, until, to) => {
                let range = pages(from, until);
                let to = Destination::Fixed(page(to));
                let (len, leave) = (range.len(), Leave::Hole);
                let moved = space.remap(RemapRequest { start: range.start(), len, new_len: len, to, leave });
                format!("{moved:?}")
            }
            Op::Truncate(length) => format!("{:?}", stage.file.set_len(page(length).get() - page(0).get())),
            Op::Punch(from, until) => {
                let bytes = |at| page(at).get() - page(0).get();
                format!("{:?}", stage.file.punch_hole(bytes(from)..bytes(until)))
            }
            Op::WriteFile(at, value) => {
                let offset = page(at).get() - page(0).get() + offset;
                format!("{:?}", stage.file.write_at(offset, &[value]))
            }
            Op::Maps => stage.maps(&space),
            Op::Query(at) => {
                let held = space.vmas();
                let found = held.view().find_at_or_after(page(at));
                found.map_or_else(|| "none".into(), |vma| format!("{:?} {:?}", vma.range, vma.flags))
            }
            Op::Migrate(at) => {
                if let Ok(shown) = stage.host.translate(&space, page(at)) {
                    let _ = space.memory().migrate(shown.frame);
                }
                String::new()
            }
            Op::Snapshot => {
                let snapshot = space.snapshot();
                let outcome = format!("{:?}", snapshot.as_ref().map(|_| ()));
                hands.kept.extend(snapshot.ok());
                outcome
            }
            Op::Restore => match hands.kept.last() {
                Some(snapshot) => format!("{:?}", space.restore(snapshot)),
                None => "nothing is kept".into(),
            },
            Op::WhoMaps(at) => {
                if let Ok(shown) = stage.host.translate(&space, page(at)) {
                    let _ = space.memory().mappings(shown.frame, |_, _| {});
                }
                String::new()
            }
        }
    }
}

impl Stage {
    /// Maps `range`, writable; what was there goes.
    pub fn map(&self, space: &foldspace::AddressSpace, range: PageRange, backing: Backing) -> String {
        let (placement, len) = (Placement::Fixed(range.start()), range.len());
        format!("{:?}", space.map(MapRequest { placement, len, flags: RW, backing, page_offset: 0 }))
    }
}
