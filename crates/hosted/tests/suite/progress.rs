//! What operations take and what they wait for: a fault two locks, whoever else faults; nothing a reader.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crossbeam_epoch::Guard;
use foldspace::addr::PAGE_SIZE;
use foldspace::platform::{Flush, Platform, SpaceId};
use foldspace::space::{Access, MapRequest, Placement};
use foldspace::sync::Rank;
use foldspace::sync::watch;
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, PageRange, VirtAddr};
use foldspace_hosted::{Host, HostPlatform, Layouts};

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);
const START: VirtAddr = VirtAddr(0x4000_0000);

fn page(number: u64) -> VirtAddr {
    VirtAddr(START.get() + number * PAGE_SIZE)
}

fn map(space: &AddressSpace, pages: u64) {
    let request = MapRequest {
        placement: Placement::Fixed(START),
        len: pages * PAGE_SIZE,
        flags: RW,
        backing: Backing::Anonymous,
        page_offset: 0,
    };
    space.map(request).unwrap();
}

#[test]
fn a_fault_takes_two_locks_whoever_else_faults() {
    const FAULTS: u64 = 2048;
    for threads in [1, 4] {
        let host = Host::new(96 << 20).unwrap();
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        map(&space, threads * FAULTS);
        let together = Arc::new(Barrier::new(threads as usize));
        let workers = (0..threads).map(|thread| {
            let (space, together) = (Arc::clone(&space), Arc::clone(&together));
            thread::spawn(move || {
                together.wait();
                watch::begin();
                for n in 0..FAULTS {
                    space.fault(page(thread * FAULTS + n), Access::Write).unwrap();
                }
                watch::end()
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            let tally = worker.join().unwrap();
            let taken = |rank: Rank| tally.taken[rank as usize];
            // A table and, once in 512 faults, those above it; the cache of frames, for the page and for such tables.
            let tables = taken(Rank::Table1) + taken(Rank::Table2) + taken(Rank::Table3) + taken(Rank::Table4);
            assert!((FAULTS..FAULTS + 16).contains(&tables), "{tables} locks of tables");
            assert!((FAULTS..FAULTS + 16).contains(&taken(Rank::Frames)), "{} of caches", taken(Rank::Frames));
            assert!(taken(Rank::Buddy) <= FAULTS / 32 + 2, "{} of the buddy lists", taken(Rank::Buddy));
            let all: u64 = tally.taken.iter().sum();
            assert_eq!(all, tables + taken(Rank::Frames) + taken(Rank::Buddy), "no other lock");
            // Their tables are their own: nobody makes them look again.
            assert_eq!(tally.again, 0);
        }
    }
}

/// Counts how often somebody waits for readers.
struct Patient {
    inner: Arc<HostPlatform>,
    waits: Arc<AtomicU32>,
}

// SAFETY: all as the host's platform does it.
unsafe impl Platform for Patient {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        self.inner.shootdown(space, flush);
    }
    fn pin(&self) -> Guard {
        self.inner.pin()
    }
    fn wait_for_readers(&self, attempt: u32) -> bool {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.inner.wait_for_readers(attempt)
    }
    fn processor(&self) -> usize {
        self.inner.processor()
    }
}

#[test]
fn nothing_waits_for_a_pinned_reader() {
    const PAGES: u64 = 1500;
    let (waits, mut platform) = (Arc::new(AtomicU32::new(0)), None);
    let host = Host::with_platform(64 << 20, |inner| {
        let inner = Arc::new(inner);
        platform = Some(Arc::clone(&inner));
        Box::new(Patient { inner, waits: Arc::clone(&waits) })
    });
    let (host, platform) = (host.unwrap(), platform.unwrap());
    let parent = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&parent, PAGES);
    (0..PAGES).for_each(|n| parent.fault(page(n), Access::Write).unwrap());

    // A reader from before all that follows, until its end.
    let reader = platform.pin();
    let used = host.memory().stats().free;
    thread::scope(|scope| {
        scope.spawn(|| {
            let child = parent.fork().unwrap();
            (0..PAGES).for_each(|n| child.fault(page(n), Access::Write).unwrap());
            child.clear();
            drop(child);
            parent.unmap(PageRange::new(page(0), page(PAGES)).unwrap()).unwrap();
        });
    });
    assert_eq!(waits.load(Ordering::Relaxed), 0, "an operation waited for readers");
    let stats = host.memory().stats();
    assert!(stats.deferred > PAGES, "{} frames wait for the reader", stats.deferred);
    host.memory().reclaim();
    assert!(host.memory().stats().deferred > PAGES, "as long as he reads");
    drop(reader);
    host.memory().reclaim();
    assert_eq!(host.memory().stats().deferred, 0);
    assert!(host.memory().stats().free > used);
    host.memory().check(&[&parent], &[]).unwrap();
}

#[test]
fn a_lock_taken_against_the_order_is_noticed() {
    // Who is shown the layout must not ask for it again: he would wait for himself. Here he panics.
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&space, 1);
    let asked = Arc::clone(&space);
    let outcome = thread::spawn(move || asked.with_layout(|_| asked.with_layout(|_| ()))).join();
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("lock order: Writers is waited for under Writers"), "{message}");
}
