//! Random sequences. The same seed and number give the same sequence, everywhere: nothing is asked of the system.

mod arguments;
mod calls;

use arguments::Spread;

use crate::host::confined;
use crate::op::{Call, Op};
use crate::window::{PAGE, PROCESSES, contains};

/// How many ranges a sequence remembers.
const RECENT: usize = 4;

/// A kind of calls that sequences may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// mmap, munmap, mprotect.
    Layout,
    /// mremap.
    Remap,
    /// madvise that takes pages away or brings them.
    Discard,
    /// madvise that sets flags.
    Advice,
    /// MADV_GUARD_INSTALL and _REMOVE.
    Guards,
    /// mlock and its kin.
    Locks,
    /// msync, mincore.
    Query,
    /// prctl(PR_SET_VMA).
    Names,
    /// mseal.
    Seal,
    /// remap_file_pages.
    RemapPages,
    /// memfd_create, pwrite, pread, and mappings of files.
    Files,
    /// ftruncate, fallocate.
    Resize,
    /// fcntl(F_ADD_SEALS).
    FileSeals,
    /// setrlimit.
    Limits,
    /// Areas that grow down.
    GrowsDown,
    /// fork, exit.
    Processes,
    /// brk, and where the heap is.
    Heap,
    /// process_madvise, process_vm_readv, process_vm_writev.
    Others,
}

impl Group {
    /// All of them, with the names that the command knows.
    pub const ALL: [(&'static str, Group); 18] = [
        ("layout", Group::Layout),
        ("remap", Group::Remap),
        ("discard", Group::Discard),
        ("advice", Group::Advice),
        ("guards", Group::Guards),
        ("locks", Group::Locks),
        ("query", Group::Query),
        ("names", Group::Names),
        ("seal", Group::Seal),
        ("remap-pages", Group::RemapPages),
        ("files", Group::Files),
        ("resize", Group::Resize),
        ("file-seals", Group::FileSeals),
        ("limits", Group::Limits),
        ("grows-down", Group::GrowsDown),
        ("processes", Group::Processes),
        ("heap", Group::Heap),
        ("others", Group::Others),
    ];

    /// Whether Linux 6.1 does its calls as Foldspace does. Since then mremap moves several areas and refuses what overlaps at another time, mlock2 has a
    /// flag in VmFlags, process_madvise takes all advice of oneself, refused mappings leave what was there, guards and mseal have come; and the
    /// distributions' kernel has no names.
    pub fn is_as_in_6_1(self) -> bool {
        let changed =
            [Group::Remap, Group::Locks, Group::Others, Group::Limits, Group::Guards, Group::Seal, Group::Names];
        !changed.contains(&self)
    }
}

/// What sequences are made of.
#[derive(Clone, Debug)]
pub struct Menu {
    groups: Vec<Group>,
    since: Since,
}

/// Which Linux must know the arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// That which Foldspace follows.
    Linux6_18,
    /// A distribution's of 2023, too: without MAP_STACK (which keeps huge pages out since 6.7), MAP_DROPPABLE (6.11), and MADV_POPULATE_READ and
    /// _WRITE, which found holes at another time.
    Linux6_1,
}

impl Menu {
    /// These groups.
    pub fn of(groups: impl IntoIterator<Item = Group>, since: Since) -> Menu {
        Menu { groups: groups.into_iter().collect(), since }
    }

    fn is_for_old(&self) -> bool {
        self.since == Since::Linux6_1
    }

    fn has(&self, group: Group) -> bool {
        self.groups.contains(&group)
    }
}

/// Sequence `number` of `seed`.
pub fn sequence(seed: u64, number: u64, menu: &Menu) -> Vec<Op> {
    // Neighbouring seeds must not give related sequences: the generator's own mixing starts from a product.
    let mut random =
        fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd134_2543_de82_ef95));
    let mut generator = Generator {
        spread: Spread::random(&mut random),
        menu,
        alive: 1,
        recent: Vec::new(),
        pages_out: random.bool(),
        pins: random.u32(..3) == 0,
        heap: match random.u32(..4) {
            0 => Heap::Outside,
            _ => Heap::None,
        },
        weights: Vec::new(),
        random,
    };
    generator.weigh();
    let count = generator.random.usize(10..200);
    let mut ops = Vec::with_capacity(count + 16);
    while ops.len() < count {
        generator.step(&mut ops);
    }
    // At the end everything is read, and everybody is seen to have what is theirs.
    for process in generator.processes() {
        ops.push(Op { process, call: Call::LookDeep });
    }
    for process in generator.processes() {
        ops.push(Op { process, call: Call::Look });
    }
    ops
}

/// The heap of a sequence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heap {
    /// It does not come up.
    None,
    /// It will be moved into the window.
    Outside,
    /// It starts at that address, in some process.
    At(u64),
}

struct Generator<'a> {
    random: fastrand::Rng,
    spread: Spread,
    menu: &'a Menu,
    /// Bit `n` for process `n`.
    alive: u8,
    /// Whether it uses MADV_PAGEOUT; else MAP_DROPPABLE: what goes when both meet is up to Linux.
    pages_out: bool,
    /// Whether it uses process_vm_readv and process_vm_writev, which pin pages on Linux.
    pins: bool,
    heap: Heap,
    /// Ranges that were mapped lately: most of what follows is to meet them.
    recent: Vec<(u64, u64)>,
    /// How often each kind of call comes in this sequence: each has its own taste.
    weights: Vec<(u32, calls::Make)>,
}

impl Generator<'_> {
    fn processes(&self) -> impl Iterator<Item = u8> + use<> {
        let alive = self.alive;
        (0..PROCESSES as u8).filter(move |process| alive & 1 << process != 0)
    }

    fn weigh(&mut self) {
        for (group, weight, make) in calls::KINDS {
            if self.menu.has(*group) && (*group != Group::Heap || self.heap != Heap::None) {
                let factor = [0, 1, 1, 2, 4][self.random.usize(..5)];
                self.weights.push((weight * factor, *make));
            }
        }
        // Without mappings nothing happens.
        self.weights.push((12, calls::map_simply));
        self.weights.push((12, calls::access));
    }

    fn note(&mut self, call: &Call) {
        let range = match *call {
            Call::Map { addr, len, .. } => (addr, len),
            Call::Remap { target, new_len, flags, .. } if flags & libc::MREMAP_FIXED as u32 != 0 => (target, new_len),
            _ => return,
        };
        if contains(range.0, range.0.saturating_add(range.1)) {
            if self.recent.len() == RECENT {
                self.recent.remove(0);
            }
            self.recent.push((range.0 & !(PAGE - 1), range.1));
        }
    }

    fn step(&mut self, ops: &mut Vec<Op>) {
        let total: u32 = self.weights.iter().map(|(weight, _)| weight).sum();
        let mut pick = self.random.u32(..total);
        let make = self.weights.iter().find(|(weight, _)| {
            let found = pick < *weight;
            pick = pick.wrapping_sub(*weight);
            found
        });
        let Some((_, make)) = make else { return };
        let Some(call) = make(self).filter(confined) else { return };
        let among: Vec<u8> = self.processes().collect();
        let process = among[self.random.usize(..among.len())];
        match call {
            Call::Fork { child } => self.alive |= 1 << child,
            Call::Exit => self.alive &= !(1 << process),
            _ => {}
        }
        ops.push(Op { process, call });
        self.note(&call);
        // What one process does to a file, or by its end, others see.
        let seen_by_others = matches!(
            call,
            Call::Exit
                | Call::Truncate { .. }
                | Call::Allocate { .. }
                | Call::Fork { .. }
                | Call::AdviseOther { .. }
                | Call::Copy { .. }
        );
        if seen_by_others {
            for other in self.processes().filter(|other| *other != process) {
                ops.push(Op { process: other, call: Call::Look });
            }
        }
    }
}
