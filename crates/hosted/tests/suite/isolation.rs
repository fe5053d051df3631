//! What a relative may see while a fault is on its way. The fault is stopped where it shoots translations down, by a platform that calls back first:
//! until then other processors of the space legally use what they remember, so nothing that this leads to may change hands yet.

use std::sync::{Arc, Mutex};

use crossbeam_epoch::Guard;
use foldspace::addr::PAGE_SIZE;
use foldspace::platform::{Flush, Platform, SpaceId};
use foldspace::space::{ForkMode, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, HostPlatform, Layouts, Processor};

pub type Callback = Box<dyn FnOnce() + Send>;
type Change = fn(&mut Processor);

/// Calls back once, right before a shootdown.
pub struct Stopping {
    pub inner: HostPlatform,
    pub callback: Arc<Mutex<Option<Callback>>>,
}

// SAFETY: a shootdown is only delayed.
unsafe impl Platform for Stopping {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        let callback = self.callback.lock().unwrap().take();
        if let Some(callback) = callback {
            callback();
        }
        self.inner.shootdown(space, flush);
    }
    fn pin(&self) -> Guard {
        self.inner.pin()
    }
    fn processor(&self) -> usize {
        self.inner.processor()
    }
}

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);

fn page(number: u64) -> VirtAddr {
    VirtAddr(0x4000_0000 + number * PAGE_SIZE)
}

/// `None` where nothing is mapped any more.
fn load(processor: &mut Processor, number: u64) -> Option<u8> {
    let mut byte = [0];
    processor.load(page(number), &mut byte).ok().map(|()| byte[0])
}

fn store(processor: &mut Processor, number: u64, value: u8) {
    processor.store(page(number), &[value]).unwrap();
}

fn pages(from: u64, until: u64) -> PageRange {
    PageRange::new(page(from), page(until)).unwrap()
}

/// Where the parent's fault is stopped, the child stores to page 0, and another processor of the parent loads it. `prepare` gets the parent's two
/// processors and the child's; `fault` is the store of the parent's first processor that is stopped.
fn another_sees(
    mode: ForkMode,
    prepare: fn(&mut Processor, &mut Processor, &mut Processor),
    fault: fn(&mut Processor),
) -> Option<u8> {
    let callback: Arc<Mutex<Option<Callback>>> = Arc::default();
    let kept = callback.clone();
    let host = Host::with_platform(8 << 20, |inner| Box::new(Stopping { inner, callback: kept })).unwrap();
    let parent = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let (placement, backing) = (Placement::Fixed(page(0)), Backing::Anonymous);
    parent.map(MapRequest { placement, len: 8 * PAGE_SIZE, flags: RW, backing, page_offset: 0 }).unwrap();
    let mut first = host.processor(CacheSize::Unbounded);
    let mut second = host.processor(CacheSize::Unbounded);
    let mut childs = host.processor(CacheSize::Unbounded);
    first.activate(&parent);
    second.activate(&parent);
    for number in 0..8 {
        store(&mut first, number, 1);
    }
    parent.set_fork_mode(mode);
    let child = parent.fork().unwrap();
    childs.activate(&child);
    prepare(&mut first, &mut second, &mut childs);
    let seen = Arc::new(Mutex::new(None));
    let report = seen.clone();
    *callback.lock().unwrap() = Some(Box::new(move || {
        store(&mut childs, 0, 2);
        *report.lock().unwrap() = Some(load(&mut second, 0));
    }));
    fault(&mut first);
    let seen = seen.lock().unwrap().take();
    let mut own = [0];
    assert_eq!(child.read(page(0), &mut own), 1);
    assert_eq!(own, [2], "the child sees its own store");
    host.memory().check(&[&parent, &child], &[]).unwrap();
    seen.expect("the fault shoots translations down")
}

/// A page is copied; the other processor remembers the original. It must not become the child's to write before that is forgotten.
#[test]
fn a_copied_page_is_not_reused_before_the_shootdown() {
    for mode in [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy] {
        let seen = another_sees(
            mode,
            |first, second, childs| {
                // Tables are parted, page 0 is shared.
                store(first, 7, 3);
                store(childs, 6, 3);
                assert_eq!(load(second, 0), Some(1));
            },
            |first| store(first, 0, 4),
        );
        assert_ne!(seen, Some(2), "the parent sees the child's store ({mode:?})");
    }
}

/// A table is copied; the other processor remembers the original, and finds in it what the child has put there.
#[test]
fn a_copied_table_is_not_changed_before_the_shootdown() {
    for mode in [ForkMode::Full, ForkMode::Leaf] {
        let seen = another_sees(
            mode,
            |_, second, _| {
                // The path is remembered, page 0 is not.
                assert_eq!(load(second, 5), Some(1));
            },
            |first| store(first, 7, 4),
        );
        assert_ne!(seen, Some(2), "the parent sees the child's store ({mode:?})");
    }
}

/// The same where the parent gives a page, or a whole table, up.
#[test]
fn what_is_given_up_is_not_reused_before_the_shootdown() {
    let changes: [(&str, Change); 4] = [
        ("munmap of pages", |first| first.running().unwrap().unmap(pages(0, 2)).unwrap()),
        ("munmap of everything", |first| first.running().unwrap().unmap(pages(0, 512)).unwrap()),
        ("discard", |first| first.running().unwrap().discard(pages(0, 2)).unwrap()),
        ("clear", |first| first.running().unwrap().clear()),
    ];
    for (name, change) in changes {
        for parted in [true, false] {
            let prepare: fn(&mut Processor, &mut Processor, &mut Processor) = if parted {
                |first, second, childs| {
                    store(first, 7, 3);
                    store(childs, 6, 3);
                    assert_eq!(load(second, 0), Some(1));
                }
            } else {
                |_, second, _| assert_eq!(load(second, 5), Some(1))
            };
            let seen = another_sees(ForkMode::Full, prepare, change);
            assert_ne!(seen, Some(2), "the parent sees the child's store ({name}, tables parted: {parted})");
        }
    }
}
