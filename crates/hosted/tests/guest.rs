//! Guests and their processors: what an emulator relies on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use foldspace::space::{Access, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, VirtAddr};
use foldspace_hosted::{CacheSize, Guest, Heed, Host, Layouts, Permissions, Reason};

const AT: u64 = 0x10_0000;
const PAGE: u64 = 4096;

fn guest(pages: u64) -> (Host, Guest) {
    let host = Host::new(32 << 20).unwrap();
    let guest = host.guest().unwrap();
    guest.map(AT, pages * PAGE, Permissions::READ_WRITE).unwrap();
    (host, guest)
}

#[test]
fn every_size_at_every_place() {
    let (_host, guest) = guest(3);
    let mut cpu = guest.cpu();
    let mut image = vec![0_u8; 3 * PAGE as usize];
    let mut check = |cpu: &mut foldspace_hosted::Cpu, at: u64, value: [u8; 16]| {
        macro_rules! size {
            ($($n:literal)*) => { $({
                let bytes: [u8; $n] = value[..$n].try_into().unwrap();
                cpu.store::<$n>(AT + at, bytes).unwrap();
                image[at as usize..][..$n].copy_from_slice(&bytes);
                assert_eq!(cpu.load::<$n>(AT + at).unwrap(), bytes, "{} bytes at {at}", $n);
            })* };
        }
        size!(16 8 4 2 1 3 7 12);
        let mut all = vec![0; image.len()];
        cpu.load_slice(AT, &mut all).unwrap();
        assert!(all == image, "after stores at {at}");
    };
    for (round, at) in (0..64).chain(PAGE - 20..PAGE + 4).chain(2 * PAGE - 3..2 * PAGE).enumerate() {
        check(&mut cpu, at, std::array::from_fn(|byte| (round * 16 + byte) as u8 | 1));
    }
}

/// A fuzzer of logs found an arena for each of its runs still there.
#[test]
fn nothing_is_left_when_guests_outlive_their_host() {
    let (host, guest) = guest(3);
    let memory = std::sync::Arc::downgrade(host.memory());
    let mut cpu = guest.cpu();
    cpu.store(AT, [1; 8]).unwrap();
    let snapshot = guest.snapshot().unwrap();
    cpu.store(AT, [2; 8]).unwrap();
    let other = host.guest_from(&snapshot).unwrap();
    drop(host);
    guest.restore(&snapshot).unwrap();
    assert_eq!(cpu.load::<8>(AT).unwrap(), [1; 8]);
    drop((guest, snapshot, cpu));
    assert_eq!(other.cpu().load::<8>(AT).unwrap(), [1; 8]);
    assert!(memory.upgrade().is_some());
    drop(other);
    assert!(memory.upgrade().is_none(), "the memory is there without a host or a guest");
}

/// The same of address spaces, snapshots and objects that no guest has.
#[test]
fn nothing_is_left_when_address_spaces_outlive_their_host() {
    const PAGES: u64 = 200;
    let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]];
    for order in orders {
        let host = Host::new(16 << 20).unwrap();
        let memory = std::sync::Arc::downgrade(host.memory());
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        let object = Object::anonymous(host.memory(), PAGES * PAGE).unwrap();
        let flags = VmaFlags::READ | VmaFlags::WRITE | VmaFlags::MAY_READ | VmaFlags::MAY_WRITE;
        let request = |at: u64, flags, backing| MapRequest {
            placement: Placement::Fixed(VirtAddr(at)),
            len: PAGES * PAGE,
            flags,
            backing,
            page_offset: 0,
        };
        space.map(request(AT, flags, Backing::Anonymous)).unwrap();
        space.map(request(2 * AT, flags | VmaFlags::SHARED, Backing::Object(object.clone()))).unwrap();
        let store = |space: &AddressSpace, value: u8| {
            for at in (0..PAGES).map(|page| page * PAGE) {
                assert_eq!(space.write(VirtAddr(AT + at), &[value]), 1);
                assert_eq!(space.write(VirtAddr(2 * AT + at), &[value]), 1);
            }
        };
        store(&space, 1);
        let snapshot = space.snapshot().unwrap();
        let child = space.fork().unwrap();
        store(&child, 2);
        drop(host);
        store(&space, 3);
        space.restore(&snapshot).unwrap();
        let (mut space, mut snapshot, mut child, mut object) = (Some(space), Some(snapshot), Some(child), Some(object));
        for (turn, which) in order.into_iter().enumerate() {
            assert!(memory.upgrade().is_some(), "{order:?}: gone before {turn}");
            match which {
                0 => drop(space.take()),
                1 => drop(snapshot.take()),
                2 => drop(child.take()),
                _ => drop(object.take()),
            }
        }
        assert!(memory.upgrade().is_none(), "{order:?}: the memory is there without anybody on it");
    }
}

#[test]
fn what_is_not_allowed_is_a_value() {
    let (_host, guest) = guest(4);
    let mut cpu = guest.cpu();
    cpu.store(AT, 1_u64.to_le_bytes()).unwrap();
    let stop = cpu.load::<4>(AT - 4).unwrap_err();
    assert_eq!((stop.at.get(), stop.access, stop.reason), (AT - 4, Access::Read, Reason::NotMapped));
    assert_eq!(cpu.fetch::<4>(AT).unwrap_err().reason, Reason::Denied);
    guest.protect(AT, PAGE, Permissions::READ).unwrap();
    assert_eq!(cpu.store(AT, [0; 8]).unwrap_err().reason, Reason::Denied);
    assert_eq!(cpu.load::<8>(AT).unwrap(), 1_u64.to_le_bytes());
    guest.protect(AT, PAGE, Permissions::READ_EXECUTE).unwrap();
    assert_eq!(cpu.fetch::<4>(AT).unwrap(), [1, 0, 0, 0]);
    // Across an end: what comes before is done.
    let last = AT + 4 * PAGE - 2;
    let stop = cpu.store(last, [7; 4]).unwrap_err();
    assert_eq!((stop.at.get(), stop.reason), (last + 2, Reason::NotMapped));
    assert_eq!(cpu.load::<2>(last).unwrap(), [7; 2]);
    assert_eq!(cpu.load::<1>(1 << 60).unwrap_err().reason, Reason::NotMapped);
    guest.unmap(AT, PAGE).unwrap();
    assert_eq!(cpu.load::<8>(AT).unwrap_err().reason, Reason::NotMapped);
}

#[test]
fn watches_stop_what_they_cover_and_nothing_else() {
    let (_host, guest) = guest(2);
    let mut cpu = guest.cpu();
    cpu.store(AT + 100, [1; 8]).unwrap();
    guest.watch(AT + 104..AT + 106, Access::Write);
    let stop = cpu.store(AT + 100, [2; 8]).unwrap_err();
    assert_eq!((stop.at.get(), stop.reason), (AT + 104, Reason::Watched));
    assert_eq!(cpu.load::<8>(AT + 100).unwrap(), [1; 8], "nothing is done of an access that is watched");
    cpu.store(AT + 100, [3; 4]).unwrap();
    cpu.store(AT + 106, [3; 2]).unwrap();
    cpu.heed(Heed::Nothing);
    cpu.store(AT + 100, [4; 8]).unwrap();
    cpu.heed(Heed::Watches);
    assert!(cpu.store(AT + 105, [5]).is_err());
    assert!(guest.unwatch(&(AT + 104..AT + 106), Access::Write));
    assert!(!guest.unwatch(&(AT + 104..AT + 106), Access::Write));
    cpu.store(AT + 105, [5]).unwrap();
}

#[test]
fn guests_are_forked_by_snapshot_and_go_back() {
    let (host, guest) = guest(1000);
    let mut cpu = guest.cpu();
    for page in 0..1000 {
        cpu.store(AT + page * PAGE, page.to_le_bytes()).unwrap();
    }
    let snapshot = guest.snapshot().unwrap();
    let sum: u64 = thread::scope(|scope| {
        let children: Vec<_> = (0..4)
            .map(|number| {
                let (host, snapshot) = (&host, &snapshot);
                scope.spawn(move || {
                    let child = host.guest_from(snapshot).unwrap();
                    let mut cpu = child.cpu();
                    for page in 0..1000 {
                        let word = u64::from_le_bytes(cpu.load(AT + page * PAGE).unwrap());
                        cpu.store(AT + page * PAGE, (word + number).to_le_bytes()).unwrap();
                    }
                    assert_eq!(child.dirty_since(snapshot).iter().map(|row| row.pages()).sum::<u64>(), 1000);
                    child.restore(snapshot).unwrap();
                    u64::from_le_bytes(cpu.load(AT + 999 * PAGE).unwrap())
                })
            })
            .collect();
        children.into_iter().map(|child| child.join().unwrap()).sum()
    });
    assert_eq!(sum, 4 * 999);
    assert!(guest.dirty_since(&snapshot).is_empty());
    assert!(Host::new(16 << 20).unwrap().guest_from(&snapshot).is_err());
    host.memory().check(&[guest.space()], &[]).unwrap();
}

/// One thread takes snapshots and goes back, others store and load: a store that a snapshot was taken before is never seen in it, and a page that was
/// given away is never written through what a processor remembers.
#[test]
fn processors_forget_before_a_change_is_over() {
    let (host, guest) = guest(8);
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..2_u64 {
            let guest = &guest;
            scope.spawn(move || {
                let mut cpu = guest.cpu();
                let mut turn = 0_u64;
                while !done.load(Ordering::Relaxed) {
                    let at = AT + (turn % 4 + 4 * number) * PAGE;
                    cpu.store(at, turn.to_le_bytes()).unwrap();
                    let _ = cpu.load::<8>(at).unwrap();
                    turn += 1;
                }
            });
        }
        for _ in 0..300 {
            let snapshot = guest.snapshot().unwrap();
            let look = || -> Vec<u8> {
                let mut bytes = vec![0; 8 * PAGE as usize];
                assert_eq!(snapshot.space().read(foldspace::VirtAddr(AT), &mut bytes), bytes.len());
                bytes
            };
            let then = look();
            guest.restore(&snapshot).unwrap();
            thread::yield_now();
            assert!(then == look(), "a snapshot has changed");
        }
        done.store(true, Ordering::Relaxed);
    });
    host.memory().check(&[guest.space()], &[]).unwrap();
    // Processors of both kinds run one address space.
    let mut other = host.processor(CacheSize::Unbounded);
    other.activate(guest.space());
    other.store(foldspace::VirtAddr(AT), b"both").unwrap();
    assert_eq!(guest.cpu().load::<4>(AT).unwrap(), *b"both");
}
