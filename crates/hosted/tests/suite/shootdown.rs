//! Proof that the tests would notice: with a platform that forgets shootdowns, each kind of change that needs one leaves something behind that is
//! seen, both by an access and by [`Host::stale`]; with one that does not, nothing is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crossbeam_epoch::Guard;
use foldspace::platform::{Flush, Platform, SpaceId};
use foldspace::space::{ForkMode, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, HostPlatform, Layouts, Processor};

use crate::model::PAGE;

/// What a platform leaves undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Forget {
    Nothing = 0,
    Everything = 1,
    /// Translations of pages are kept, upper levels go.
    Leaves = 2,
    /// Upper levels are kept.
    Uppers = 3,
}

/// Our platform, with a bad memory that can be switched.
struct Forgetful {
    inner: HostPlatform,
    forget: Arc<AtomicU8>,
}

// SAFETY: it is not safe, and that is its purpose: what the manager frees too early stays inside the arena, and only software processors read it.
unsafe impl Platform for Forgetful {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        let forget = self.forget.load(Ordering::SeqCst);
        if forget == Forget::Everything as u8 {
        } else if forget == Forget::Leaves as u8 {
            self.inner.forget_uppers(space);
        } else if forget == Forget::Uppers as u8 {
            self.inner.forget_leaves(space, flush);
        } else {
            self.inner.shootdown(space, flush);
        }
    }
    fn pin(&self) -> Guard {
        self.inner.pin()
    }
    fn processor(&self) -> usize {
        self.inner.processor()
    }
}

/// A space that two processors run, and never forget by themselves.
struct Bench {
    host: Host,
    space: Arc<AddressSpace>,
    child: Option<Arc<AddressSpace>>,
    file: Arc<Object>,
    one: Processor,
    other: Processor,
    /// Four pages in one last-level table, private, writable.
    pages: VirtAddr,
    forget: Arc<AtomicU8>,
}

const RW: VmaFlags = VmaFlags::READ
    .union(VmaFlags::WRITE)
    .union(VmaFlags::MAY_READ)
    .union(VmaFlags::MAY_WRITE)
    .union(VmaFlags::MAY_EXEC);

impl Bench {
    fn new() -> Bench {
        let forget = Arc::new(AtomicU8::new(Forget::Nothing as u8));
        let switch = forget.clone();
        let host = Host::with_platform(8 << 20, |inner| Box::new(Forgetful { inner, forget: switch })).unwrap();
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        let file = Object::anonymous(host.memory(), 4 * PAGE).unwrap();
        let mut one = host.processor(CacheSize::Unbounded);
        let mut other = host.processor(CacheSize::Unbounded);
        one.activate(&space);
        other.activate(&space);
        let mut bench = Bench { host, space, child: None, file, one, other, pages: VirtAddr(0x4000_0000), forget };
        bench.map(bench.pages, Backing::Anonymous, RW);
        bench
    }

    fn map(&mut self, at: VirtAddr, backing: Backing, flags: VmaFlags) {
        let request = MapRequest { placement: Placement::Fixed(at), len: 4 * PAGE, flags, backing, page_offset: 0 };
        self.space.map(request).unwrap();
    }

    fn page(&self, number: u64) -> VirtAddr {
        VirtAddr(self.pages.get() + number * PAGE)
    }

    fn range(&self, number: u64) -> PageRange {
        PageRange::page_of(self.page(number)).unwrap()
    }

    /// What the other processor sees.
    fn seen(&mut self, number: u64) -> Option<u8> {
        let mut byte = [0];
        self.other.load(self.page(number), &mut byte).ok().map(|()| byte[0])
    }

    fn store(&mut self, number: u64, value: u8) {
        self.one.store(self.page(number), &[value]).unwrap();
    }

    fn fork(&mut self, mode: ForkMode) {
        self.space.set_fork_mode(mode);
        self.child = Some(self.space.fork().unwrap());
    }

    fn child_sees(&self, number: u64) -> u8 {
        let mut byte = [0];
        assert_eq!(self.child.as_ref().unwrap().read(self.page(number), &mut byte), 1);
        byte[0]
    }
}

/// A change that needs a shootdown.
struct Scenario {
    name: &'static str,
    /// Fills the other processor's caches.
    before: fn(&mut Bench),
    /// During this, shootdowns are forgotten.
    change: fn(&mut Bench),
    /// Whether the other processor then sees what it should.
    right: fn(&mut Bench) -> bool,
}

/// Every kind of change that takes something away from a translation.
const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "unmap",
        before: |b| {
            b.store(0, 1);
            b.seen(0);
        },
        change: |b| b.space.unmap(b.range(0)).unwrap(),
        right: |b| b.seen(0).is_none(),
    },
    Scenario {
        name: "map over",
        before: |b| {
            b.store(0, 1);
            b.seen(0);
        },
        change: |b| b.map(b.pages, Backing::Anonymous, RW),
        right: |b| b.seen(0) == Some(0),
    },
    Scenario {
        name: "protect",
        before: |b| b.other.store(b.page(0), &[1]).unwrap(),
        change: |b| b.space.protect(b.range(0), VmaFlags::READ).unwrap(),
        right: |b| b.other.store(b.page(0), &[2]).is_err(),
    },
    Scenario {
        name: "brk",
        before: |b| {
            b.pages = b.space.layout().start_brk;
            b.space.brk(VirtAddr(b.pages.get() + 2 * PAGE));
            b.store(1, 1);
            b.seen(1);
        },
        change: |b| assert_eq!(b.space.brk(b.page(1)), b.page(1)),
        right: |b| b.seen(1).is_none(),
    },
    Scenario {
        name: "clear",
        before: |b| {
            b.store(0, 1);
            b.seen(0);
        },
        change: |b| b.space.clear(),
        right: |b| b.seen(0).is_none(),
    },
    Scenario {
        name: "first store to a page that shows the zero page",
        before: |b| {
            b.seen(0);
        },
        change: |b| b.store(0, 1),
        right: |b| b.seen(0) == Some(1),
    },
    Scenario {
        name: "first store to a page of a private file mapping",
        before: |b| {
            let file = Backing::Object(b.file.clone());
            b.map(b.pages, file, RW);
            b.file.write_at(0, &[9]).unwrap();
            assert_eq!(b.seen(0), Some(9));
        },
        change: |b| b.store(0, 1),
        right: |b| b.seen(0) == Some(1),
    },
    Scenario {
        name: "fork, copying",
        before: |b| b.other.store(b.page(0), &[1]).unwrap(),
        change: |b| b.fork(ForkMode::Copy),
        right: |b| {
            b.other.store(b.page(0), &[2]).unwrap();
            b.child_sees(0) == 1
        },
    },
    Scenario {
        name: "fork, sharing the last level",
        before: |b| b.other.store(b.page(0), &[1]).unwrap(),
        change: |b| b.fork(ForkMode::Leaf),
        right: |b| {
            b.other.store(b.page(0), &[2]).unwrap();
            b.child_sees(0) == 1
        },
    },
    Scenario {
        name: "fork, sharing everything",
        before: |b| b.other.store(b.page(0), &[1]).unwrap(),
        change: |b| b.fork(ForkMode::Full),
        right: |b| {
            b.other.store(b.page(0), &[2]).unwrap();
            b.child_sees(0) == 1
        },
    },
    Scenario {
        name: "copy of a shared page",
        before: |b| {
            b.store(0, 1);
            b.store(1, 1);
            b.fork(ForkMode::Full);
            // The tables are unshared by this store, the page itself not yet.
            b.store(1, 2);
            assert_eq!(b.seen(0), Some(1));
        },
        change: |b| b.store(0, 2),
        right: |b| b.seen(0) == Some(2),
    },
    Scenario {
        name: "a table goes, and another takes its place",
        before: |b| {
            b.store(0, 1);
            assert_eq!(b.seen(0), Some(1));
        },
        change: |b| {
            b.space.unmap(PageRange::from_len(b.pages, 4 * PAGE).unwrap()).unwrap();
            b.map(b.pages, Backing::Anonymous, RW);
            b.store(1, 3);
        },
        right: |b| b.seen(0) == Some(0) && b.seen(1) == Some(3),
    },
];

/// Changes that put another table into a path: the upper levels that the other processor keeps lead to the old one.
const TABLE_SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "unshare at a store, another page of the table",
        before: |b| {
            b.store(0, 1);
            b.store(1, 1);
            b.fork(ForkMode::Full);
            assert_eq!(b.seen(1), Some(1));
        },
        change: |b| b.store(0, 2),
        right: |b| b.seen(0) == Some(2),
    },
    Scenario {
        name: "unshare at a store, last level only",
        before: |b| {
            b.store(0, 1);
            b.store(1, 1);
            b.fork(ForkMode::Leaf);
            assert_eq!(b.seen(1), Some(1));
        },
        change: |b| b.store(0, 2),
        right: |b| b.seen(0) == Some(2),
    },
    Scenario {
        name: "unshare at a protect where nothing is present",
        before: |b| {
            b.store(1, 1);
            b.fork(ForkMode::Full);
            assert_eq!(b.seen(1), Some(1));
        },
        change: |b| {
            b.space.protect(b.range(0), VmaFlags::READ).unwrap();
            b.store(1, 2);
        },
        right: |b| b.seen(1) == Some(2),
    },
    Scenario {
        name: "zero tables give way to tables of our own",
        before: |b| {
            let request = MapRequest {
                placement: Placement::Fixed(VirtAddr(0x80_0000_0000)),
                len: 1 << 30,
                flags: RW,
                backing: Backing::Anonymous,
                page_offset: 0,
            };
            b.pages = b.space.map(request).unwrap();
            assert_eq!(b.seen(1), Some(0));
        },
        change: |b| b.store(0, 2),
        right: |b| b.seen(0) == Some(2),
    },
];

/// Plays a scenario; whether an access went wrong, and whether the audit says so.
fn play(scenario: &Scenario, forget: Forget) -> (bool, bool) {
    let mut bench = Bench::new();
    (scenario.before)(&mut bench);
    bench.forget.store(forget as u8, Ordering::SeqCst);
    (scenario.change)(&mut bench);
    bench.forget.store(Forget::Nothing as u8, Ordering::SeqCst);
    let audited = !bench.host.stale(&[&bench.space]).is_empty();
    let wrong = !(scenario.right)(&mut bench);
    if forget == Forget::Nothing {
        // What was forgotten leaves tables that processors marked in vain, so the invariants are only asked where nothing was.
        let mut spaces: Vec<&AddressSpace> = vec![&bench.space];
        spaces.extend(bench.child.as_deref());
        bench.host.memory().check(&spaces, &[&bench.file]).unwrap();
    }
    (wrong, audited)
}

#[test]
fn nothing_goes_wrong_unless_something_is_forgotten() {
    for scenario in SCENARIOS.iter().chain(TABLE_SCENARIOS) {
        assert_eq!(play(scenario, Forget::Nothing), (false, false), "{}", scenario.name);
    }
}

#[test]
fn each_forgotten_shootdown_is_noticed() {
    for scenario in SCENARIOS.iter().chain(TABLE_SCENARIOS) {
        assert_eq!(play(scenario, Forget::Everything), (true, true), "{}", scenario.name);
    }
}

#[test]
fn forgotten_translations_are_noticed() {
    for scenario in SCENARIOS {
        assert_eq!(play(scenario, Forget::Leaves), (true, true), "{}", scenario.name);
    }
}

#[test]
fn forgotten_upper_levels_are_noticed() {
    for scenario in TABLE_SCENARIOS {
        assert_eq!(play(scenario, Forget::Uppers), (true, true), "{}", scenario.name);
    }
}

/// A table goes with its last page, and that is no reason to forget what is elsewhere.
#[test]
fn the_last_page_of_a_table_takes_no_other_translation_along() {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let [kept, gone] = [0x4000_0000, 0x8000_0000].map(|at| {
        let request = MapRequest {
            placement: Placement::FixedNoReplace(VirtAddr(at)),
            len: PAGE,
            flags: RW,
            backing: Backing::Anonymous,
            page_offset: 0,
        };
        space.map(request).unwrap()
    });
    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    for page in [kept, gone] {
        processor.store(page, &[1]).unwrap();
    }
    let walks = processor.stats().walks;
    space.unmap(PageRange::from_len(gone, PAGE).unwrap()).unwrap();
    processor.store(kept, &[2]).unwrap();
    assert_eq!(processor.stats().walks, walks, "the translation was still there");
    assert!(processor.store(gone, &[1]).is_err());
}
