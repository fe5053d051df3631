//! Every pair of operations, one stopped at each point where it calls the platform while the other runs: what comes of it, results included, must be
//! what comes of the one after the other, in one order or the other; and the invariants hold.
//!
//! The second operation runs on a thread of its own. If it has to wait for a lock that the stopped one holds, the stopped one goes on after a while.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crossbeam_epoch::Guard;
use foldspace::addr::PAGE_SIZE;
use foldspace::platform::{Flush, Platform, SpaceId};
use foldspace::space::{ForkMode, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, HostPlatform, Layouts, Processor};

use crate::threads::settle;

/// How long a stopped operation waits for the other, which may be waiting for it.
const PATIENCE: Duration = Duration::from_millis(4);

thread_local! {
    /// Calls of the platform that this thread makes before it is stopped; `None`: it is not.
    static STOP_AFTER: Cell<Option<u32>> = const { Cell::new(None) };
}

type Callback = Box<dyn FnOnce() + Send>;

/// Counts calls of a thread and calls back at one.
struct Stopping {
    inner: HostPlatform,
    callback: Arc<Mutex<Option<Callback>>>,
}

impl Stopping {
    fn point(&self) {
        let stop = STOP_AFTER.with(|after| match after.get() {
            Some(0) => {
                after.set(None);
                true
            }
            Some(left) => {
                after.set(Some(left - 1));
                false
            }
            None => false,
        });
        let callback = stop.then(|| self.callback.lock().unwrap().take()).flatten();
        if let Some(callback) = callback {
            callback();
        }
    }
}

// SAFETY: calls are only delayed.
unsafe impl Platform for Stopping {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        self.point();
        self.inner.shootdown(space, flush);
    }
    fn pin(&self) -> Guard {
        self.point();
        self.inner.pin()
    }
    fn processor(&self) -> usize {
        self.point();
        self.inner.processor()
    }
}

const RW: VmaFlags = VmaFlags::READ
    .union(VmaFlags::WRITE)
    .union(VmaFlags::MAY_READ)
    .union(VmaFlags::MAY_WRITE)
    .union(VmaFlags::MAY_EXEC);
/// Pages 0 to 4 have content that parent and child share, 5 and up were never touched; 16 and 17 show a file, privately, 20 and 21 shared.
const PAGES: u64 = 24;

fn page(number: u64) -> VirtAddr {
    VirtAddr(0x4000_0000 + number * PAGE_SIZE)
}

fn pages(from: u64, until: u64) -> PageRange {
    PageRange::new(page(from), page(until)).unwrap()
}

/// What the operations work on.
struct Stage {
    host: Host,
    parent: Arc<AddressSpace>,
    child: Mutex<Option<Arc<AddressSpace>>>,
    file: Arc<Object>,
    callback: Arc<Mutex<Option<Callback>>>,
}

/// What one of the two operations has.
struct Actor {
    processor: Processor,
    /// The child that it made.
    made: Option<Arc<AddressSpace>>,
}

struct Operation {
    name: &'static str,
    act: fn(&Stage, &mut Actor) -> String,
}

fn store(space: &Arc<AddressSpace>, actor: &mut Actor, number: u64, value: u8) -> String {
    actor.processor.activate(space);
    let outcome = actor.processor.store(page(number), &[value]).map_err(|error| error.refusal);
    actor.processor.deactivate();
    format!("{outcome:?}")
}

fn load(space: &Arc<AddressSpace>, actor: &mut Actor, number: u64) -> String {
    actor.processor.activate(space);
    let mut byte = [0];
    let outcome = actor.processor.load(page(number), &mut byte).map_err(|error| error.refusal);
    actor.processor.deactivate();
    format!("{outcome:?} {byte:?}")
}

fn map(space: &AddressSpace, range: PageRange, flags: VmaFlags, backing: Backing) -> String {
    let (placement, len) = (Placement::Fixed(range.start()), range.len());
    format!("{:?}", space.map(MapRequest { placement, len, flags, backing, page_offset: 0 }))
}

fn with_child(stage: &Stage, act: impl FnOnce(&Arc<AddressSpace>) -> String) -> String {
    let child = stage.child.lock().unwrap().clone();
    child.map_or_else(|| "gone".into(), |child| act(&child))
}

const OPERATIONS: &[Operation] = &[
    Operation { name: "store", act: |s, a| store(&s.parent, a, 0, 11) },
    Operation { name: "store beside", act: |s, a| store(&s.parent, a, 1, 12) },
    Operation { name: "first store", act: |s, a| store(&s.parent, a, 6, 13) },
    Operation { name: "store of the child", act: |s, a| with_child(s, |child| store(child, a, 0, 14)) },
    Operation { name: "store to a file's copy", act: |s, a| store(&s.parent, a, 16, 15) },
    Operation { name: "store to a file", act: |s, a| store(&s.parent, a, 20, 16) },
    Operation { name: "load", act: |s, a| load(&s.parent, a, 0) },
    Operation { name: "load of zeros", act: |s, a| load(&s.parent, a, 6) },
    Operation { name: "load of a file", act: |s, a| load(&s.parent, a, 17) },
    Operation { name: "write by the kernel", act: |s, _| s.parent.write(page(0), &[17]).to_string() },
    Operation {
        name: "fork",
        act: |s, a| {
            let child = s.parent.fork();
            let outcome = child.is_ok().to_string();
            a.made = child.ok();
            outcome
        },
    },
    Operation { name: "exit of the child", act: |s, _| s.child.lock().unwrap().take().is_some().to_string() },
    Operation { name: "munmap", act: |s, _| format!("{:?}", s.parent.unmap(pages(0, 2))) },
    Operation { name: "munmap of all", act: |s, _| format!("{:?}", s.parent.unmap(pages(0, 512))) },
    Operation { name: "mprotect", act: |s, _| format!("{:?}", s.parent.protect(pages(0, 7), VmaFlags::READ)) },
    Operation {
        name: "mprotect to nothing",
        act: |s, _| format!("{:?}", s.parent.protect(pages(0, 7), VmaFlags::empty())),
    },
    Operation { name: "discard", act: |s, _| format!("{:?}", s.parent.discard(pages(0, 2))) },
    Operation { name: "map over", act: |s, _| map(&s.parent, pages(0, 7), RW, Backing::Anonymous) },
    Operation { name: "map over a file", act: |s, _| map(&s.parent, pages(15, 18), RW, Backing::Anonymous) },
    Operation { name: "clear", act: |s, _| format!("{:?}", s.parent.clear()) },
    Operation { name: "write of the file", act: |s, _| format!("{:?}", s.file.write_at(0, &[18])) },
];

impl Stage {
    fn new(mode: ForkMode) -> Stage {
        let callback: Arc<Mutex<Option<Callback>>> = Arc::default();
        let kept = callback.clone();
        let host = Host::with_platform(2 << 20, |inner| Box::new(Stopping { inner, callback: kept })).unwrap();
        let parent = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        let file = Object::anonymous(host.memory(), 2 * PAGE_SIZE).unwrap();
        file.write_at(0, &[9; 2 * PAGE_SIZE as usize]).unwrap();
        map(&parent, pages(0, PAGES), RW, Backing::Anonymous);
        map(&parent, pages(16, 18), RW, Backing::Object(file.clone()));
        map(&parent, pages(20, 22), RW | VmaFlags::SHARED, Backing::Object(file.clone()));
        for number in 0..5 {
            assert_eq!(parent.write(page(number), &[number as u8 + 1]), 1);
        }
        parent.set_fork_mode(mode);
        let child = Mutex::new(Some(parent.fork().unwrap()));
        Stage { host, parent, child, file, callback }
    }

    fn actor(&self) -> Actor {
        Actor { processor: self.host.processor(CacheSize::Unbounded), made: None }
    }

    /// All that can be seen, after the invariants were verified.
    fn outcome(&self, first: (String, Actor), second: (String, Actor)) -> Result<String, String> {
        settle(&self.host);
        let mut text = format!("first: {}\nsecond: {}\n", first.0, second.0);
        let child = self.child.lock().unwrap();
        let spaces = [Some(&*self.parent), child.as_deref(), first.1.made.as_deref(), second.1.made.as_deref()];
        let living: Vec<&AddressSpace> = spaces.iter().flatten().copied().collect();
        let check = || self.host.memory().check(&living, &[&self.file]).map_err(|violation| violation.0);
        check()?;
        let stale = self.host.stale(&living);
        if !stale.is_empty() {
            return Err(format!("stale: {stale:?}"));
        }
        for space in spaces {
            let Some(space) = space else {
                text += "no space\n";
                continue;
            };
            for number in 0..PAGES {
                let mut byte = [0];
                match space.read(page(number), &mut byte) {
                    1 => text += &format!("{} ", byte[0]),
                    _ => text += "- ",
                }
            }
            // The inode of a piece of shared anonymous memory is a number that nobody repeats.
            let maps = String::from_utf8(space.maps().text()).unwrap();
            let lines = maps.lines().map(|line| line.split(" 00:01 ").next().unwrap_or(line).trim_end());
            text += &format!("\n{}\n", lines.collect::<Vec<_>>().join("\n"));
        }
        check()?;
        Ok(text)
    }
}

/// One after the other; `swapped`: the second first.
fn in_order(mode: ForkMode, first: &Operation, second: &Operation, swapped: bool) -> String {
    let stage = Stage::new(mode);
    let (mut one, mut two) = (stage.actor(), stage.actor());
    let (a, b);
    if swapped {
        b = (second.act)(&stage, &mut two);
        a = (first.act)(&stage, &mut one);
    } else {
        a = (first.act)(&stage, &mut one);
        b = (second.act)(&stage, &mut two);
    }
    stage.outcome((a, one), (b, two)).expect("nothing is wrong with one after the other")
}

/// The first, stopped at a point, and the second meanwhile. `None` if the first has no such point.
fn stopped(
    mode: ForkMode,
    first: &Operation,
    second: &'static Operation,
    point: u32,
) -> Option<Result<String, String>> {
    let stage = Arc::new(Stage::new(mode));
    let (mut one, mut two) = (stage.actor(), stage.actor());
    let (done, finished) = channel();
    let theirs = stage.clone();
    let (here, arrived) = channel();
    *stage.callback.lock().unwrap() = Some(Box::new(move || {
        let (ended, end) = channel();
        thread::spawn(move || {
            let outcome = (second.act)(&theirs, &mut two);
            drop(theirs);
            let _ = ended.send(());
            let _ = done.send((outcome, two));
        });
        let _ = here.send(());
        let _ = end.recv_timeout(PATIENCE);
    }));
    STOP_AFTER.set(Some(point));
    let a = (first.act)(&stage, &mut one);
    STOP_AFTER.set(None);
    // Whoever was not stopped has not let the other begin.
    stage.callback.lock().unwrap().take();
    arrived.try_recv().ok()?;
    let b = wait(&finished);
    let stage = Arc::into_inner(stage).expect("the other has ended");
    Some(stage.outcome((a, one), b))
}

fn wait<T>(finished: &Receiver<T>) -> T {
    finished.recv_timeout(Duration::from_secs(20)).expect("the second operation ends: no deadlock")
}

/// All pairs in one mode.
fn all_pairs(mode: ForkMode) {
    let mut wrong = BTreeSet::new();
    let mut stops = 0;
    for first in OPERATIONS {
        for second in OPERATIONS {
            let orders = [false, true].map(|swapped| in_order(mode, first, second, swapped));
            for point in 0..100 {
                let Some(outcome) = stopped(mode, first, second, point) else { break };
                stops += 1;
                let wrongly = match outcome {
                    Ok(outcome) if orders.contains(&outcome) => continue,
                    Ok(outcome) => {
                        format!("an outcome of its own:\n{outcome}instead of\n{}or\n{}", orders[0], orders[1])
                    }
                    Err(violation) => violation,
                };
                wrong.insert(format!("{}, stopped at point {point} by {}: {wrongly}", first.name, second.name));
            }
        }
    }
    println!("{stops} stops");
    assert!(stops > 400, "operations are stopped in the middle");
    assert!(wrong.is_empty(), "{} of {stops}:\n{}", wrong.len(), wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn pairs_of_operations_in_mode_full() {
    all_pairs(ForkMode::Full);
}

#[test]
fn pairs_of_operations_in_mode_leaf() {
    all_pairs(ForkMode::Leaf);
}

#[test]
fn pairs_of_operations_in_mode_copy() {
    all_pairs(ForkMode::Copy);
}
