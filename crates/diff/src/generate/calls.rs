//! Calls, each with arguments that make sense for it, mostly.

use super::arguments::TABLE;
use super::{Generator, Group, Heap};
use crate::op::{Call, NAMES, SAMPLES};
use crate::window::{END, PAGE, PROCESSES};

/// Makes a call, if one makes sense.
pub type Make = fn(&mut Generator<'_>) -> Option<Call>;

/// What there is: of which group, how often beside the others, and how it is made.
pub const KINDS: &[(Group, u32, Make)] = &[
    (Group::Layout, 16, map),
    (Group::Layout, 10, unmap),
    (Group::Layout, 14, protect),
    (Group::Remap, 14, remap),
    (Group::Discard, 12, discard),
    (Group::Advice, 8, advise),
    (Group::Guards, 6, guard),
    (Group::Locks, 8, lock),
    (Group::Query, 3, query),
    (Group::Names, 5, name),
    (Group::Seal, 1, seal),
    (Group::RemapPages, 1, remap_pages),
    (Group::Files, 8, file),
    (Group::Files, 14, map_file),
    (Group::Resize, 6, resize),
    (Group::FileSeals, 2, file_seals),
    (Group::Limits, 1, limit),
    (Group::GrowsDown, 6, stack),
    (Group::Processes, 3, process),
    (Group::Heap, 16, heap),
    (Group::Others, 4, other),
];

const SHARED: u32 = 1;
const PRIVATE: u32 = 2;
const FIXED: u32 = 0x10;
const ANONYMOUS: u32 = 0x20;
const LOW: u32 = 0x40;
const GROWS_DOWN: u32 = 0x100;
const DENY_WRITE: u32 = 0x800;
const EXECUTABLE: u32 = 0x1000;
const LOCKED: u32 = 0x2000;
const NO_RESERVE: u32 = 0x4000;
const POPULATE: u32 = 0x8000;
const NON_BLOCK: u32 = 0x1_0000;
const STACK: u32 = 0x2_0000;
const SYNC: u32 = 0x8_0000;
const FIXED_NO_REPLACE: u32 = 0x10_0000;

/// Private memory at a fixed place: what everything else needs.
pub fn map_simply(g: &mut Generator<'_>) -> Option<Call> {
    let addr = g.any_page();
    let len = g.length(addr);
    let prot = g.one_of(&[3, 3, 3, 1, 0]);
    let kind = g.one_of(&[PRIVATE, PRIVATE, PRIVATE, SHARED]);
    Some(Call::Map { addr, len, prot, flags: kind | ANONYMOUS | FIXED, fd: -1, offset: 0 })
}

fn map_flags(g: &mut Generator<'_>) -> u32 {
    let mut flags = match g.random.u32(..24) {
        0..15 => PRIVATE,
        15..22 => SHARED,
        22 => 3 | g.one_of(&[0, 0, SYNC]),
        _ => {
            let droppable = if g.pages_out || g.menu.is_for_old() { 4 } else { 8 };
            g.one_of(&[0, 4, droppable, droppable, 15])
        }
    };
    flags |= g.one_of(&[FIXED, FIXED, FIXED, FIXED, FIXED_NO_REPLACE, 0, FIXED | FIXED_NO_REPLACE]);
    let extras = [
        (NO_RESERVE, 10),
        (POPULATE, 8),
        (LOCKED, 30),
        (STACK, 20),
        (LOW, 40),
        (DENY_WRITE, 60),
        (EXECUTABLE, 60),
        (NON_BLOCK, 40),
    ];
    for (flag, n) in extras {
        if flag == LOCKED && !g.menu.has(Group::Locks) || flag == STACK && g.menu.is_for_old() {
            continue;
        }
        if g.once_in(n) {
            flags |= flag;
        }
    }
    flags
}

/// What is no address is any: only fixed ones count.
fn place(g: &mut Generator<'_>, flags: u32) -> u64 {
    if flags & (FIXED | FIXED_NO_REPLACE) == 0 && g.once_in(2) { 0 } else { g.address() }
}

fn map(g: &mut Generator<'_>) -> Option<Call> {
    let mut flags = map_flags(g) | ANONYMOUS;
    if g.menu.has(Group::GrowsDown) && g.once_in(40) {
        flags |= GROWS_DOWN;
    }
    let addr = place(g, flags);
    let mut len = g.length(addr);
    if g.menu.is_for_old() && flags & (FIXED | FIXED_NO_REPLACE) == 0 && len.is_multiple_of(TABLE) {
        // Aligned like a huge page since 6.7.
        len = len.saturating_sub(PAGE);
    }
    let (fd, offset) = match g.random.u32(..16) {
        0 => (g.descriptor(), g.random.u64(..8) * PAGE),
        1 => (-1, g.one_of(&[1, PAGE, u64::MAX - PAGE + 1])),
        _ => (-1, 0),
    };
    Some(Call::Map { addr, len, prot: g.access(), flags, fd, offset })
}

fn map_file(g: &mut Generator<'_>) -> Option<Call> {
    let flags = map_flags(g);
    let addr = place(g, flags);
    let len = g.length(addr);
    let offset = match g.random.u32(..24) {
        0 => g.one_of(&[1, 512, u64::MAX - PAGE + 1, 1 << 62, 1 << 63]),
        _ => g.random.u64(..12) * PAGE,
    };
    Some(Call::Map { addr, len, prot: g.access(), flags, fd: g.descriptor(), offset })
}

fn stack(g: &mut Generator<'_>) -> Option<Call> {
    let addr = g.address();
    let len = g.length(addr);
    match g.random.u32(..3) {
        0 => {
            let prot = g.access();
            Some(Call::Map { addr, len, prot, flags: PRIVATE | ANONYMOUS | FIXED | GROWS_DOWN, fd: -1, offset: 0 })
        }
        1 => Some(Call::Protect { addr, len, prot: g.one_of(&[0x0100_0003, 0x0100_0001, 0x0100_0000]) }),
        _ => access(g),
    }
}

fn unmap(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, len) = g.range();
    Some(Call::Unmap { addr, len })
}

fn protect(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, len) = g.range();
    Some(Call::Protect { addr, len, prot: g.access() })
}

fn remap(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, old_len) = g.range();
    let new_len = match g.random.u32(..4) {
        0 => g.length(addr),
        1 => old_len.wrapping_add(g.random.u64(1..5) * PAGE),
        _ => old_len,
    };
    let flags = if g.once_in(16) { g.one_of(&[2, 4, 9]) } else { g.one_of(&[0, 1, 1, 3, 3, 3, 3, 5, 5, 7]) };
    let old_len = if g.once_in(16) { 0 } else { old_len };
    // A place of its own, mostly: overlapping ones are refused.
    let target = if g.once_in(4) { g.address() } else { g.any_page() };
    Some(Call::Remap { addr, old_len, new_len, flags, target })
}

fn discard(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, len) = g.range();
    let removing = if g.menu.has(Group::Resize) { 9 } else { 4 };
    let out = if g.pages_out { 21 } else { 20 };
    let (read, write) = if g.menu.is_for_old() { (4, 8) } else { (22, 23) };
    let advice = g.one_of(&[4, 4, 4, 4, 8, 8, 3, 20, out, read, read, write, write, 24, removing]);
    Some(Call::Advise { addr, len, advice })
}

fn advise(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, len) = g.range();
    // Poisoning (100, 101) is not for us, and collapsing (25) is a matter of what else the machine does.
    let advice = g.one_of(&[0, 1, 2, 10, 10, 11, 12, 13, 14, 15, 16, 16, 17, 18, 18, 19, 5, 99, -1]);
    Some(Call::Advise { addr, len, advice })
}

fn guard(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, len) = g.range();
    Some(Call::Advise { addr, len, advice: g.one_of(&[102, 102, 103]) })
}

fn lock(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, len) = g.range();
    Some(match g.random.u32(..16) {
        0..5 => Call::Lock { addr, len },
        5..8 => Call::Lock2 { addr, len, flags: g.one_of(&[0, 1, 1, 2]) },
        8..13 => Call::Unlock { addr, len },
        13 => Call::LockAll { flags: g.one_of(&[0, 1, 2, 3, 4, 5, 6, 7, 8]) },
        _ => Call::UnlockAll,
    })
}

fn query(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, len) = g.range();
    Some(match g.random.u32(..2) {
        0 => Call::Sync { addr, len, flags: g.one_of(&[4, 1, 2, 0, 6, 5, 3, 8]) },
        _ => Call::InCore { addr, len },
    })
}

fn name(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, len) = g.range();
    let name = if g.once_in(8) { g.random.u8(..NAMES.len() as u8 + 1) } else { g.random.u8(..4) };
    Some(Call::Name { addr, len, name })
}

fn seal(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, len) = g.range();
    Some(Call::Seal { addr, len, flags: if g.once_in(8) { 1 } else { 0 } })
}

fn remap_pages(g: &mut Generator<'_>) -> Option<Call> {
    let (addr, len) = g.range();
    let (prot, flags) = (g.one_of(&[0, 0, 0, 1]), g.one_of(&[0, 0, NON_BLOCK, 1]));
    Some(Call::RemapPages { addr, len, prot, page: g.random.u64(..12), flags })
}

fn file(g: &mut Generator<'_>) -> Option<Call> {
    let file = g.file();
    Some(match g.random.u32(..16) {
        0..4 => Call::Create { file, flags: g.one_of(&[3, 3, 1, 0x80]), read_only: g.once_in(8) },
        4 => Call::Close { file },
        5..11 => {
            Call::WriteFile { file, offset: g.position() + g.one_of(&SAMPLES) as i64, value: g.random.u64(..) | 1 }
        }
        11..13 => Call::ReadFile { file, offset: g.position() },
        _ => match g.menu.has(Group::Resize) {
            true => Call::Truncate { file, len: g.position() },
            false => Call::ReadFile { file, offset: g.position() },
        },
    })
}

fn resize(g: &mut Generator<'_>) -> Option<Call> {
    let file = g.file();
    Some(match g.random.u32(..2) {
        0 => Call::Truncate { file, len: g.position() },
        // 3: FALLOC_FL_PUNCH_HOLE with KEEP_SIZE, 1: KEEP_SIZE, 0x10: ZERO_RANGE
        _ => Call::Allocate {
            file,
            mode: g.one_of(&[3, 3, 3, 3, 0, 1, 2, 0x10]),
            offset: g.position(),
            len: g.position(),
        },
    })
}

fn file_seals(g: &mut Generator<'_>) -> Option<Call> {
    Some(Call::AddSeals { file: g.file(), seals: g.one_of(&[1, 2, 4, 8, 8, 0x10, 0x20, 6, 0x40]) })
}

fn limit(g: &mut Generator<'_>) -> Option<Call> {
    // RLIMIT_DATA, RLIMIT_AS, RLIMIT_STACK, RLIMIT_MEMLOCK.
    let mut resources = vec![2, 9];
    let counts = [(3, g.menu.has(Group::GrowsDown)), (8, g.menu.has(Group::Locks))];
    resources.extend(counts.iter().filter(|(_, counts)| *counts).map(|(resource, _)| *resource));
    let resource = g.one_of(&resources);
    let more = match g.once_in(3) {
        // Who has given up a right does not get it back, nor a limit that others have set.
        true if resource == 8 => 1 << 20,
        true => u64::MAX,
        false => g.one_of(&[0, 4, 16, 64]) * PAGE,
    };
    Some(Call::Limit { resource, more })
}

fn process(g: &mut Generator<'_>) -> Option<Call> {
    let free: Vec<u8> = (0..PROCESSES as u8).filter(|process| g.alive & 1 << process == 0).collect();
    let last = g.alive.count_ones() == 1;
    if !free.is_empty() && (last || g.once_in(2)) {
        return Some(Call::Fork { child: g.one_of(&free) });
    }
    (!last).then_some(Call::Exit)
}

fn heap(g: &mut Generator<'_>) -> Option<Call> {
    let Heap::At(start) = g.heap else { return Some(set_heap(g)) };
    if g.once_in(16) {
        return Some(set_heap(g));
    }
    if g.once_in(16) {
        return Some(Call::Break { addr: g.one_of(&[0, 1 << 47, u64::MAX, start - 1]) });
    }
    let pages = g.random.u64(..24) * PAGE;
    Some(Call::Break { addr: (start & !(PAGE - 1)) + pages + if g.once_in(3) { g.random.u64(..PAGE) } else { 0 } })
}

fn set_heap(g: &mut Generator<'_>) -> Call {
    let addr = g.any_page() + if g.once_in(4) { g.random.u64(..PAGE) } else { 0 };
    g.heap = Heap::At(addr);
    Call::SetHeap { addr }
}

fn other(g: &mut Generator<'_>) -> Option<Call> {
    let among: Vec<u8> = g.processes().collect();
    let other = g.one_of(&among);
    if !g.pins || g.once_in(2) {
        let ranges = [g.range(), if g.once_in(2) { g.range() } else { (0, 0) }];
        let advice = match g.random.u32(..4) {
            0 => g.one_of(&[4, 8, 14, 15, 16, 22, 23, 102, 99]),
            _ => g.one_of(&[20, 3, 20, 3, if g.pages_out { 21 } else { 20 }]),
        };
        return Some(Call::AdviseOther { other, ranges, advice, flags: if g.once_in(16) { 1 } else { 0 } });
    }
    let (addr, len) = g.range();
    let there = g.address();
    // What overlaps depends on how much is copied at a time.
    let apart = |a: u64, b: u64| a.checked_add(len).is_some_and(|end| end <= b);
    (apart(addr, there) || apart(there, addr)).then(|| Call::Copy { other, addr, there, len, write: g.once_in(2) })
}

/// A load or a store, of one page or of some.
pub fn access(g: &mut Generator<'_>) -> Option<Call> {
    let addr = g.page() + g.one_of(&SAMPLES);
    let room = (END - addr).div_ceil(PAGE) as u32;
    let pages = if g.once_in(3) { g.random.u32(1..9).min(room) } else { 1 };
    Some(match g.random.u32(..3) {
        0 => Call::Load { addr, pages },
        _ => Call::Store { addr, value: g.random.u64(..) | 1, pages },
    })
}
