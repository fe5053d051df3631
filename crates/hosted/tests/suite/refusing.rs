//! A platform that refuses: grace periods that do not come, for a while or for as long as anybody asks. Nothing is lost by that, and everything goes on when they
//! have come.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_epoch::Guard;
use foldspace::addr::PAGE_SIZE;
use foldspace::backing::{Identity, Source};
use foldspace::platform::{Flush, Platform, SpaceId};
use foldspace::space::{Access, MapRequest, Placement, Snapshot};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, HostPlatform, Layouts, Processor};

use crate::life::{MEMORY, lives_of, nothing_left};
use crate::ops;
use crate::threads::{Dice, settle};
use crate::world::World;

const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(MAY);

/// The hosted platform, of which a test can get a reader who stays; it never waits for him.
#[derive(Clone)]
struct Stubborn {
    inner: Arc<HostPlatform>,
    /// How often it was asked to let readers end.
    asked: Arc<AtomicU32>,
}

// SAFETY: as the inner platform, which answers; a refusal to wait is allowed.
unsafe impl Platform for Stubborn {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        self.inner.shootdown(space, flush);
    }

    fn pin(&self) -> Guard {
        self.inner.pin()
    }

    fn wait_for_readers(&self, _attempt: u32) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn processor(&self) -> usize {
        self.inner.processor()
    }
}

fn stubborn(bytes: u64) -> (Host, Stubborn) {
    let mut kept = None;
    let host = Host::with_platform(bytes, |inner| {
        let platform = Stubborn { inner: Arc::new(inner), asked: Arc::default() };
        kept = Some(platform.clone());
        Box::new(platform)
    });
    (host.expect("the arena is large enough"), kept.expect("a host asks for its platform"))
}

/// Readers come and stay over many steps: what the manager says and shows is what the model says all the same.
#[test]
fn lives_among_readers_who_stay() {
    lives_of((ops::op(), 0..12_u8), 120, 60, 11, |steps| {
        let (host, platform) = stubborn(MEMORY);
        let mut world = World::on(host, &[CacheSize::Unbounded; 2], Layouts::process());
        let mut reader = None;
        for (op, dice) in steps {
            match dice {
                0 | 1 => reader = Some(platform.pin()),
                2 => drop(reader.take()),
                _ => {}
            }
            world.step(op);
            world.verify();
        }
        drop(reader);
        drop(platform);
        nothing_left(world);
    });
}

/// Spaces with what each page of theirs has to show.
struct Family {
    living: Vec<(Arc<AddressSpace>, HashMap<u64, u8>)>,
    snapshots: Vec<(Snapshot, HashMap<u64, u8>)>,
    processor: Processor,
    refused: u32,
}

const START: u64 = 0x4000_0000 - 32 * PAGE_SIZE;
const PAGES: u64 = 64;

impl Family {
    /// Whether it was done; any other error than that there is no memory is a failure.
    fn done<T>(&mut self, outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(Error::OutOfMemory) => {
                self.refused += 1;
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        let number = dice.roll(self.living.len() as u64) as usize;
        let (space, mut content) = self.living[number].clone();
        let page = dice.roll(PAGES);
        let at = START + page * PAGE_SIZE;
        match dice.roll(12) {
            0 => {
                let child = space.fork();
                if let Some(child) = self.done(child) {
                    self.living.push((child, content.clone()));
                }
            }
            1 => {
                let snapshot = space.snapshot();
                if let Some(snapshot) = self.done(snapshot) {
                    self.snapshots.push((snapshot, content.clone()));
                }
            }
            2 if !self.snapshots.is_empty() => {
                let (snapshot, then) = &self.snapshots[dice.roll(self.snapshots.len() as u64) as usize];
                let (outcome, then) = (space.restore(snapshot), then.clone());
                if self.done(outcome).is_some() {
                    content = then;
                }
            }
            3 if self.living.len() > 2 => drop(self.living.swap_remove(number)),
            4 if self.snapshots.len() > 2 => drop(self.snapshots.swap_remove(0)),
            5 => {
                let pages = (1 + dice.roll(8)).min(PAGES - page);
                let range = PageRange::from_len(VirtAddr(at), pages * PAGE_SIZE).unwrap();
                let outcome = space.discard(range);
                if self.done(outcome).is_some() {
                    content.retain(|stored, _| !(page..page + pages).contains(stored));
                }
            }
            _ => {
                let byte = dice.roll(255) as u8 + 1;
                self.processor.activate(&space);
                match self.processor.store(VirtAddr(at + 17), &[byte]) {
                    Ok(()) => drop(content.insert(page, byte)),
                    Err(_) => self.refused += 1,
                }
                self.processor.deactivate();
            }
        }
        if let Some((_, kept)) = self.living.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &space)) {
            *kept = content;
        }
    }

    fn verify(&self, host: &Host) {
        let spaces: Vec<&AddressSpace> = self.living.iter().map(|(space, _)| &**space).collect();
        host.memory().check(&spaces, &[]).unwrap();
        assert_eq!(host.stale(&spaces), []);
        let snapshots = self.snapshots.iter().map(|(snapshot, content)| (snapshot.space(), content));
        for (space, content) in self.living.iter().map(|(space, content)| (&**space, content)).chain(snapshots) {
            for page in 0..PAGES {
                let mut byte = [0];
                let at = VirtAddr(START + page * PAGE_SIZE + 17);
                // What was never stored to may find no memory for a table of zeros.
                if let Some(expected) = content.get(&page) {
                    assert_eq!(space.read(at, &mut byte), 1);
                    assert_eq!(byte[0], *expected, "page {page}");
                }
            }
        }
    }
}

/// A reader stays until memory has run out, many times: operations say so, and what was done stays done.
#[test]
fn a_grace_period_that_does_not_come_loses_nothing() {
    let (host, platform) = stubborn(3 << 20);
    let fresh = host.memory().stats();
    let first = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let placement = Placement::Fixed(VirtAddr(START));
    let request =
        MapRequest { placement, len: PAGES * PAGE_SIZE, flags: RW, backing: Backing::Anonymous, page_offset: 0 };
    first.map(request).unwrap();
    let processor = host.processor(CacheSize::Unbounded);
    let mut family = Family { living: vec![(first, HashMap::new())], snapshots: Vec::new(), processor, refused: 0 };
    let mut dice = Dice::new(5);
    let mut seasons_refused = 0;
    for season in 0..12 {
        let before = family.refused;
        let reader = platform.pin();
        for step in 0..3_000 {
            family.step(&mut dice);
            if step % 100 == 0 {
                family.verify(&host);
            }
            if family.refused > before + 20 {
                break;
            }
        }
        family.verify(&host);
        seasons_refused += u32::from(family.refused > before);
        drop(reader);
        settle(&host);
        family.verify(&host);
        // It has come: there is memory again, without anybody having asked twice.
        family.snapshots.truncate(2);
        family.living.truncate(3);
        settle(&host);
        let space = family.living[0].0.clone();
        space.fault(VirtAddr(START), Access::Write).unwrap_or_else(|fault| panic!("season {season}: {fault:?}"));
        drop(space.fork().unwrap());
    }
    assert!(seasons_refused > 6, "memory was to run out: {seasons_refused}");
    assert!(platform.asked.load(Ordering::Relaxed) > 0, "the platform is asked before memory is refused");
    drop(family);
    settle(&host);
    host.memory().check(&[], &[]).unwrap();
    assert_eq!(host.memory().stats(), fresh);
}

/// A file that cannot be read, now and then.
struct Broken(Arc<AtomicU32>);

impl Source for Broken {
    fn fill(&self, index: u64, page: &mut [u8]) -> foldspace::Result<()> {
        if self.0.fetch_add(1, Ordering::Relaxed) % 3 != 2 {
            // What it has written by then is not to be seen.
            page.fill(0xee);
            return Err(Error::OutOfMemory);
        }
        page.fill(index as u8 + 1);
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity { major: 1, minor: 2, inode: 3 }
    }

    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"/broken");
    }
}

/// Pages of a file that cannot be read are not there, and no frame goes with them; asked again they are.
#[test]
fn a_source_that_fails_leaves_nothing_behind() {
    let host = Host::new(8 << 20).unwrap();
    let fresh = host.memory().stats();
    let calls = Arc::new(AtomicU32::new(0));
    let object = Object::new(host.memory(), Box::new(Broken(calls.clone())), 16 * PAGE_SIZE).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let (backing, placement) = (Backing::Object(object.clone()), Placement::Anywhere);
    let request = MapRequest { placement, len: 16 * PAGE_SIZE, flags: RW, backing, page_offset: 0 };
    let at = space.map(request).unwrap();
    let mut failures = 0;
    for page in 0..16 {
        let place = VirtAddr(at.get() + page * PAGE_SIZE);
        for attempt in 0.. {
            let before = host.memory().stats().data;
            let mut byte = [0];
            let done = if page % 2 == 0 { space.read(place, &mut byte) } else { space.write(place, &[9]) };
            host.memory().check(&[&space], &[&object]).unwrap();
            if done == 1 {
                assert!(page % 2 == 1 || byte[0] == page as u8 + 1, "page {page} has {}", byte[0]);
                break;
            }
            assert_eq!(host.memory().stats().data, before, "page {page}, attempt {attempt}");
            assert_eq!(object.resident_in(page..page + 1), 0);
            failures += 1;
        }
    }
    assert!(failures > 8, "{failures}");
    let mut whole = vec![0; 16 * PAGE_SIZE as usize];
    assert_eq!(object.read_at(0, &mut whole), Ok(whole.len()));
    assert!(whole.chunks_exact(PAGE_SIZE as usize).zip(1..).all(|(page, byte)| page.iter().all(|at| *at == byte)));
    drop((space, object));
    settle(&host);
    host.memory().check(&[], &[]).unwrap();
    assert_eq!(host.memory().stats(), fresh);
}
