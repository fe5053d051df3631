//! What may happen in a life, in terms that stay meaningful while a failing life is shrunk: places relative to what is mapped, not addresses.

use foldspace::frame::Overcommit;
use foldspace::space::{Access, Advice, ForkMode, Leave, LockMode};
use foldspace::vma::VmaFlags;
use proptest::prelude::*;

/// Picks one of several: taken modulo their number.
pub type Pick = u8;

/// A page.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Near an address where something ends: a table of some level, the user half, the null page.
    Edge(Pick, i8),
    /// In an area: 65536ths of it from its start, and pages from there.
    Area(Pick, u16, i8),
    /// Near the end of an area.
    AreaEnd(Pick, i8),
    /// One that was accessed before.
    Touched(Pick, i8),
    /// Near the heap's start.
    Heap(u8),
}

/// A number of pages.
#[derive(Clone, Copy, Debug)]
pub enum Len {
    /// A few.
    Pages(u8),
    /// Last-level tables, give or take a few pages.
    Tables(u8, i8),
    /// GiB.
    Huge(u8),
}

/// Where to map: [`foldspace::space::Placement`].
#[derive(Clone, Copy, Debug)]
pub enum Where {
    Anywhere,
    Hint(Place, u16),
    Fixed(Place),
    FixedNoReplace(Place),
    Low,
}

/// Where to remap: [`foldspace::space::Destination`].
#[derive(Clone, Copy, Debug)]
pub enum Destined {
    InPlace,
    Anywhere,
    Hint(Place),
    Fixed(Place),
}

/// What to map.
#[derive(Clone, Copy, Debug)]
pub enum What {
    Private,
    /// New shared anonymous memory.
    Shared,
    /// A reference page.
    Reference(Pick),
    /// An object that exists, at a page, shared or not.
    Object(Pick, u8, Sharing),
}

/// Whose stores they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    Private,
    Shared,
}

/// Bytes that an access covers: from an offset in the page, so many.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub offset: u16,
    pub len: u16,
}

/// Who accesses memory.
#[derive(Clone, Copy, Debug)]
pub enum By {
    /// A program on this processor.
    Processor(Pick),
    /// The kernel, by `AddressSpace::read` and `write`.
    Kernel,
}

/// What is noted about a range.
#[derive(Clone, Copy, Debug)]
pub enum Note {
    Advice(Advice),
    /// One of [`crate::model::NAMES`], or none.
    Name(Option<u8>),
    Lock(LockMode),
    Unlock,
    Seal,
}

/// One step. The first `Pick` of most is the address space.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Map(Pick, Where, Len, What, VmaFlags),
    Unmap(Pick, Place, Len),
    UnmapArea(Pick, Pick),
    Protect(Pick, Place, Len, VmaFlags),
    /// The same with a protection key.
    ProtectKeyed(Pick, Place, Len, VmaFlags, u8),
    Discard(Pick, Place, Len),
    Free(Pick, Place, Len),
    Cold(Pick, Place, Len),
    Pageout(Pick, Place, Len),
    /// At most nine pages, for loads or for stores.
    Populate(Pick, Place, u8, Access),
    /// Puts guards; never over more than a few tables, for each takes memory.
    GuardInstall(Pick, Place, Len),
    GuardRemove(Pick, Place, Len),
    ProtectArea(Pick, Pick, VmaFlags),
    /// From a place, so many pages, to be so many, there, and what stays.
    Remap(Pick, Place, Len, Len, Destined, Leave),
    /// As many pages of an area, from a page of it on, as there are, at a place with the same alignment.
    MoveAligned(Pick, Pick, u8, i8),
    ProtectStack(Pick, Place, Len, VmaFlags),
    Note(Pick, Place, Len, Note),
    NoteArea(Pick, Pick, Note),
    LockAll(Pick, Option<LockMode>, Option<LockMode>),
    UnlockAll(Pick),
    /// How much may be committed: the mode, and percent of all memory.
    Overcommit(Overcommit, u8),
    /// So many areas more than some space has may there be; or as many as ever.
    MapCount(Pick, Option<u8>),
    Brk(Pick, i16),
    Load(Pick, By, Place, Span),
    Fetch(Pick, Pick, Place, Span),
    Store(Pick, By, Place, Span, u8),
    StoreForced(Pick, Place, Span, u8),
    /// Stores so many pages in a row, so that a table fills.
    Fill(Pick, Pick, Place, u8, u8),
    Fork(Pick, ForkMode),
    Exit(Pick),
    Clear(Pick),
    NewSpace,
    NewFile(u8),
    ReadFile(Pick, u16, u16),
    WriteFile(Pick, u16, u8, u8),
    /// Cuts a file, or makes it longer.
    ResizeFile(Pick, u16),
    /// Makes so many bytes of it zeros.
    PunchFile(Pick, u16, u16),
    /// Gives so many bytes of it pages.
    EnsureFile(Pick, u16, u16),
    /// Punches what is shown in a range.
    Remove(Pick, Place, Len),
    /// Runs a space on a processor, so that it gets caches, or keeps them.
    Switch(Pick, Pick),
    /// Takes a snapshot of a space.
    Snapshot(Pick),
    /// A space goes back to a snapshot.
    Restore(Pick, Pick),
    /// A new space from a snapshot.
    Spawn(Pick),
    /// What is different in a space since a snapshot.
    Diff(Pick, Pick),
    DropSnapshot(Pick),
    Reclaim,
    /// Moves the content of the frame at a place to another.
    Migrate(Pick, Place),
    /// And that of one of all frames.
    MigrateAny(u16),
    /// Makes so many blocks of 2 MiB free.
    Compact(u8),
    /// The frame at a place is expected to fail.
    Offline(Pick, Place),
    /// It has failed.
    Fail(Pick, Place),
    /// Loads all that was ever touched, on a processor or by the kernel.
    Audit(By),
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        2 => (any::<u8>(), -3i8..4).prop_map(|(edge, near)| Place::Edge(edge, near)),
        5 => (any::<u8>(), any::<u16>(), -2i8..3).prop_map(|(area, at, near)| Place::Area(area, at, near)),
        3 => (any::<u8>(), Just(0), -2i8..3).prop_map(|(area, at, near)| Place::Area(area, at, near)),
        2 => (any::<u8>(), -3i8..2).prop_map(|(area, near)| Place::AreaEnd(area, near)),
        5 => (any::<u8>(), -1i8..2).prop_map(|(page, near)| Place::Touched(page, near)),
        1 => (0u8..8).prop_map(Place::Heap),
    ]
}

fn len() -> impl Strategy<Value = Len> {
    prop_oneof![
        12 => (1u8..9).prop_map(Len::Pages),
        4 => (1u8..4, -2i8..3).prop_map(|(tables, near)| Len::Tables(tables, near)),
        1 => (1u8..6).prop_map(Len::Huge),
        1 => Just(Len::Huge(200)),
    ]
}

fn access() -> impl Strategy<Value = VmaFlags> {
    const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE);
    prop_oneof![
        8 => Just(RW),
        3 => Just(VmaFlags::READ),
        1 => Just(VmaFlags::empty()),
        1 => Just(VmaFlags::WRITE),
        1 => Just(VmaFlags::EXEC),
        1 => Just(VmaFlags::READ | VmaFlags::EXEC),
        1 => Just(RW | VmaFlags::EXEC),
    ]
}

/// Access, what protect may make of it, and now and then a behaviour.
fn flags() -> impl Strategy<Value = VmaFlags> {
    const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
    let may = prop_oneof![9 => Just(MAY), 1 => Just(VmaFlags::empty())];
    let behaviour = prop_oneof![
        12 => Just(VmaFlags::empty()),
        2 => Just(VmaFlags::GROWS_DOWN),
        1 => Just(VmaFlags::DONT_FORK),
        1 => Just(VmaFlags::WIPE_ON_FORK),
        1 => Just(VmaFlags::NO_RESERVE),
        1 => Just(VmaFlags::LOCKED),
        1 => Just(VmaFlags::DROPPABLE),
    ];
    (access(), may, behaviour).prop_map(|(access, may, behaviour)| {
        let implied = [
            (VmaFlags::READ, VmaFlags::MAY_READ),
            (VmaFlags::WRITE, VmaFlags::MAY_WRITE),
            (VmaFlags::EXEC, VmaFlags::MAY_EXEC),
        ];
        implied
            .into_iter()
            .filter(|(now, _)| access.contains(*now))
            .fold(access | may | behaviour, |all, (_, may)| all | may)
    })
}

fn target() -> impl Strategy<Value = Where> {
    prop_oneof![
        4 => Just(Where::Anywhere),
        2 => (place(), any::<u16>()).prop_map(|(place, offset)| Where::Hint(place, offset % 4096)),
        4 => place().prop_map(Where::Fixed),
        2 => place().prop_map(Where::FixedNoReplace),
        1 => Just(Where::Low),
    ]
}

fn destined() -> impl Strategy<Value = Destined> {
    prop_oneof![
        1 => Just(Destined::InPlace),
        3 => Just(Destined::Anywhere),
        1 => place().prop_map(Destined::Hint),
        4 => place().prop_map(Destined::Fixed),
    ]
}

fn leave() -> impl Strategy<Value = Leave> {
    prop_oneof![3 => Just(Leave::Hole), 1 => Just(Leave::Area)]
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        6 => Just(What::Private),
        1 => Just(What::Shared),
        3 => any::<u8>().prop_map(What::Reference),
        2 => (any::<u8>(), 0u8..6).prop_map(|(object, at)| What::Object(object, at, Sharing::Private)),
        2 => (any::<u8>(), 0u8..6).prop_map(|(object, at)| What::Object(object, at, Sharing::Shared)),
    ]
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        4 => (0u16..4096).prop_map(|offset| Span { offset, len: 1 }),
        3 => (0u16..4096, 1u16..64).prop_map(|(offset, len)| Span { offset, len }),
        1 => (0u16..4096, 4000u16..13000).prop_map(|(offset, len)| Span { offset, len }),
    ]
}

fn by() -> impl Strategy<Value = By> {
    prop_oneof![4 => any::<u8>().prop_map(By::Processor), 1 => Just(By::Kernel)]
}

fn note() -> impl Strategy<Value = Note> {
    use Advice::*;
    let advice = [
        Normal,
        Random,
        Sequential,
        DontFork,
        DoFork,
        WipeOnFork,
        KeepOnFork,
        DontDump,
        DoDump,
        HugePage,
        NoHugePage,
        Mergeable,
        Unmergeable,
    ];
    prop_oneof![
        12 => (0..advice.len()).prop_map(move |number| Note::Advice(advice[number])),
        12 => prop_oneof![1 => Just(None), 4 => (0u8..4).prop_map(Some)].prop_map(Note::Name),
        4 => lock_mode().prop_map(Note::Lock),
        4 => Just(Note::Unlock),
        1 => Just(Note::Seal),
    ]
}

fn lock_mode() -> impl Strategy<Value = LockMode> {
    prop_oneof![Just(LockMode::Now), Just(LockMode::OnFault)]
}

fn lock_modes() -> impl Strategy<Value = (Option<LockMode>, Option<LockMode>)> {
    let any = || prop_oneof![1 => Just(None), 1 => lock_mode().prop_map(Some)];
    (any(), any())
}

fn overcommit() -> impl Strategy<Value = Overcommit> {
    prop_oneof![3 => Just(Overcommit::Always), 1 => Just(Overcommit::Heuristic), 1 => Just(Overcommit::Never)]
}

fn mode() -> impl Strategy<Value = ForkMode> {
    prop_oneof![1 => Just(ForkMode::Copy), 1 => Just(ForkMode::Leaf), 3 => Just(ForkMode::Full)]
}

/// Whole pages as often as not: then nothing is left of the last one.
fn file_len() -> impl Strategy<Value = u16> {
    prop_oneof![1 => 0u16..24_000, 1 => (0u16..6).prop_map(|pages| pages * 4096)]
}

fn snapshot_op() -> impl Strategy<Value = Op> {
    let p = any::<u8>;
    prop_oneof![
        3 => p().prop_map(Op::Snapshot),
        5 => (p(), p()).prop_map(|(s, snapshot)| Op::Restore(s, snapshot)),
        1 => p().prop_map(Op::Spawn),
        2 => (p(), p()).prop_map(|(snapshot, s)| Op::Diff(snapshot, s)),
        1 => p().prop_map(Op::DropSnapshot),
    ]
}

fn failure_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1u8..4).prop_map(Op::Compact),
        1 => (any::<u8>(), place()).prop_map(|(s, at)| Op::Offline(s, at)),
        2 => (any::<u8>(), place()).prop_map(|(s, at)| Op::Fail(s, at)),
    ]
}

/// One step among files that several spaces map, fork, cut and let grow.
pub fn file_op() -> impl Strategy<Value = Op> {
    let p = any::<u8>;
    let object = (any::<u8>(), 0u8..4, prop_oneof![Just(Sharing::Private), Just(Sharing::Shared)]);
    let what = object.prop_map(|(object, at, sharing)| What::Object(object, at, sharing));
    let place =
        || (any::<u8>(), 0u16..9, -1i8..2).prop_map(|(area, ninth, near)| Place::Area(area, ninth * 7281, near));
    const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE);
    const ALL: VmaFlags = RW.union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);
    prop_oneof![
        4 => (p(), 2u8..9, what).prop_map(|(s, len, what)| Op::Map(s, Where::Anywhere, Len::Pages(len), what, ALL)),
        1 => (p(), p()).prop_map(|(s, area)| Op::UnmapArea(s, area)),
        1 => (p(), place(), 1u8..5).prop_map(|(s, at, len)| Op::Discard(s, at, Len::Pages(len))),
        1 => (p(), p(), access()).prop_map(|(s, area, access)| Op::ProtectArea(s, area, access)),
        8 => (p(), by(), place(), span()).prop_map(|(s, by, at, span)| Op::Load(s, by, at, span)),
        8 => (p(), by(), place(), span(), p()).prop_map(|(s, by, at, span, seed)| Op::Store(s, by, at, span, seed)),
        2 => (p(), p(), place(), 2u8..9, p()).prop_map(|(s, cpu, at, pages, seed)| Op::Fill(s, cpu, at, pages, seed)),
        4 => (p(), mode()).prop_map(|(s, mode)| Op::Fork(s, mode)),
        2 => p().prop_map(Op::Exit),
        1 => (p(), any::<u16>(), 1u8..200, p()).prop_map(|(object, at, len, seed)| Op::WriteFile(object, at % 24_000, len, seed)),
        5 => (p(), file_len()).prop_map(|(object, len)| Op::ResizeFile(object, len)),
        3 => (p(), 0u16..24_000, 1u16..13_000).prop_map(|(object, at, len)| Op::PunchFile(object, at, len)),
        1 => (p(), 0u16..24_000, 1u16..13_000).prop_map(|(object, at, len)| Op::EnsureFile(object, at, len)),
        2 => (p(), place(), 1u8..5).prop_map(|(s, at, len)| Op::Remove(s, at, Len::Pages(len))),
        3 => (p(), p()).prop_map(|(cpu, s)| Op::Switch(cpu, s)),
        4 => snapshot_op(),
        4 => (p(), place()).prop_map(|(s, at)| Op::Migrate(s, at)),
        2 => any::<u16>().prop_map(Op::MigrateAny),
        5 => failure_op(),
        1 => by().prop_map(Op::Audit),
    ]
}

/// One step.
pub fn op() -> impl Strategy<Value = Op> {
    let p = any::<u8>;
    prop_oneof![
        8 => (p(), target(), len(), what(), flags()).prop_map(|(s, at, len, what, flags)| Op::Map(s, at, len, what, flags)),
        4 => (p(), place(), len()).prop_map(|(s, at, len)| Op::Unmap(s, at, len)),
        2 => (p(), p()).prop_map(|(s, area)| Op::UnmapArea(s, area)),
        4 => (p(), place(), len(), access()).prop_map(|(s, at, len, access)| Op::Protect(s, at, len, access)),
        2 => (p(), place(), len(), access(), 0u8..3)
            .prop_map(|(s, at, len, access, key)| Op::ProtectKeyed(s, at, len, access, key)),
        2 => (p(), place(), len()).prop_map(|(s, at, len)| Op::Discard(s, at, len)),
        2 => (p(), place(), len()).prop_map(|(s, at, len)| Op::Free(s, at, len)),
        1 => (p(), place(), len()).prop_map(|(s, at, len)| Op::Cold(s, at, len)),
        1 => (p(), place(), len()).prop_map(|(s, at, len)| Op::Pageout(s, at, len)),
        1 => (p(), place(), 1u8..9).prop_map(|(s, at, len)| Op::Populate(s, at, len, Access::Read)),
        1 => (p(), place(), 1u8..9).prop_map(|(s, at, len)| Op::Populate(s, at, len, Access::Write)),
        2 => (p(), place(), len()).prop_map(|(s, at, len)| Op::GuardInstall(s, at, len)),
        1 => (p(), place(), len()).prop_map(|(s, at, len)| Op::GuardRemove(s, at, len)),
        2 => (p(), p(), access()).prop_map(|(s, area, access)| Op::ProtectArea(s, area, access)),
        5 => (p(), place(), len(), len(), destined(), leave())
            .prop_map(|(s, at, len, new, to, leave)| Op::Remap(s, at, len, new, to, leave)),
        3 => (p(), p(), p(), -2i8..3).prop_map(|(s, area, skip, by)| Op::MoveAligned(s, area, skip, by)),
        1 => (p(), place(), len(), access()).prop_map(|(s, at, len, access)| Op::ProtectStack(s, at, len, access)),
        5 => (p(), place(), len(), note()).prop_map(|(s, at, len, note)| Op::Note(s, at, len, note)),
        3 => (p(), p(), note()).prop_map(|(s, area, note)| Op::NoteArea(s, area, note)),
        1 => (p(), lock_modes()).prop_map(|(s, (now, future))| Op::LockAll(s, now, future)),
        1 => p().prop_map(Op::UnlockAll),
        1 => (overcommit(), p()).prop_map(|(mode, percent)| Op::Overcommit(mode, percent)),
        1 => (p(), prop_oneof![1 => Just(None), 1 => (0u8..4).prop_map(Some)]).prop_map(|(s, more)| Op::MapCount(s, more)),
        2 => (p(), any::<i16>()).prop_map(|(s, by)| Op::Brk(s, by)),
        8 => (p(), by(), place(), span()).prop_map(|(s, by, at, span)| Op::Load(s, by, at, span)),
        1 => (p(), p(), place(), span()).prop_map(|(s, cpu, at, span)| Op::Fetch(s, cpu, at, span)),
        14 => (p(), by(), place(), span(), p()).prop_map(|(s, by, at, span, seed)| Op::Store(s, by, at, span, seed)),
        1 => (p(), place(), span(), p()).prop_map(|(s, at, span, seed)| Op::StoreForced(s, at, span, seed)),
        1 => (p(), p(), place(), 2u8..40, p()).prop_map(|(s, cpu, at, pages, seed)| Op::Fill(s, cpu, at, pages, seed)),
        5 => (p(), mode()).prop_map(|(s, mode)| Op::Fork(s, mode)),
        2 => p().prop_map(Op::Exit),
        1 => p().prop_map(Op::Clear),
        1 => Just(Op::NewSpace),
        1 => p().prop_map(Op::NewFile),
        1 => (p(), any::<u16>(), 0u16..9000).prop_map(|(object, at, len)| Op::ReadFile(object, at, len)),
        2 => (p(), any::<u16>(), 1u8..200, p()).prop_map(|(object, at, len, seed)| Op::WriteFile(object, at, len, seed)),
        3 => (p(), file_len()).prop_map(|(object, len)| Op::ResizeFile(object, len)),
        2 => (p(), 0u16..24_000, 1u16..13_000).prop_map(|(object, at, len)| Op::PunchFile(object, at, len)),
        1 => (p(), 0u16..24_000, 1u16..13_000).prop_map(|(object, at, len)| Op::EnsureFile(object, at, len)),
        2 => (p(), place(), len()).prop_map(|(s, at, len)| Op::Remove(s, at, len)),
        3 => (p(), p()).prop_map(|(cpu, s)| Op::Switch(cpu, s)),
        6 => snapshot_op(),
        4 => (p(), place()).prop_map(|(s, at)| Op::Migrate(s, at)),
        2 => any::<u16>().prop_map(Op::MigrateAny),
        5 => failure_op(),
        1 => Just(Op::Reclaim),
        2 => by().prop_map(Op::Audit),
    ]
}
