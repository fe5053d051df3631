//! Generated arguments, call by call.

use crate::compare::{ROUNDS, STAYS, compare, compare_and};
use crate::host::{Call, call};
use crate::hosted::parse;
use crate::pair::{As, PAGE, Pair, TASK_SIZE, WINDOW, fields_of};
use crate::scene::{self, Random, address, hits_own, len, show};

/// Protection bits, known and unknown.
fn prot(random: &mut Random) -> u64 {
    match random.next() % 8 {
        0..6 => random.next() % 8,
        6 => random.pick(&[8, 0x10, 0x100, 0x0100_0000, 0x0200_0000, 0x0300_0000, 1 << 32, u64::MAX]),
        _ => (random.next() % 8) | random.pick(&[8, 0x10, 0x0100_0000, 0x0200_0000, 1 << 40]),
    }
}

fn map(random: &mut Random, pair: &mut Pair) -> Option<Call> {
    let address = address(random);
    let len = len(random, address);
    let kind = random.pick(&[1, 2, 2, 2, 3, 8, 0, 4, 9]);
    let mut flags = kind;
    for flag in
        [0x10, 0x20, 0x40, 0x100, 0x800, 0x1000, 0x2000, 0x4000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000]
    {
        let often = matches!(flag, 0x10 | 0x20);
        if random.once_in(if often { 2 } else { 10 }) {
            flags |= flag;
        }
    }
    if random.once_in(12) {
        flags |=
            random.pick(&[0x80, 0x200, 0x400, 0x40_0000, 0x8000_0000, 1 << 32, 1 << 63, 21 << 26, 30 << 26, 16 << 26]);
    }
    if flags & 0xf != 3 {
        // VM_SYNC, which keeps areas from merging, is not known here: no file has memory that could be synchronous.
        flags &= !0x8_0000;
    }
    let files = &pair.files;
    let fd = random.pick(&[
        files.all,
        files.all,
        files.read_only,
        files.write_only,
        files.sealed,
        files.pipe,
        files.name_only,
        -1,
        9999,
    ]);
    let offset = match random.next() % 6 {
        0..3 => 0,
        3 => random.pick(&[PAGE, 3 * PAGE, 9 * PAGE, 1, PAGE - 1]),
        _ => random.pick(&[1 << 62, (1 << 63) - PAGE, 1 << 63, u64::MAX - PAGE + 1, 512 * PAGE]),
    };
    let fixed = flags & 0x10 != 0 && flags & 0x10_0000 == 0;
    let huge_page_without_reservation = flags & 0x4_0000 != 0 && flags & 0x4000 != 0;
    let much = len > 1 << 24 && flags & 0x1_a000 != 0;
    // Two limits on Linux: `vm.mmap_min_addr` for who may not, and the larger of that and a constant for hints.
    let between = flags & 0x10_0010 != 0 && (1..0x1_0000).contains(&address);
    if between || fixed && hits_own(pair, address, len) || huge_page_without_reservation || much {
        return None;
    }
    Some(call(libc::SYS_mmap, [address, len, prot(random), flags, fd as u64, offset]))
}

#[test]
fn mmap_as_root() {
    compare(As::Root, 1, map);
}

#[test]
fn mmap_as_nobody() {
    compare(As::Nobody, 2, map);
}

#[test]
fn munmap() {
    compare(As::Root, 3, |random, pair| {
        let address = address(random);
        let len = len(random, address);
        (!hits_own(pair, address, len)).then(|| call(libc::SYS_munmap, [address, len, 0, 0, 0, 0]))
    });
}

#[test]
fn mprotect() {
    compare(As::Root, 4, |random, pair| {
        let address = address(random);
        let len = len(random, address);
        let prot = prot(random);
        let starts_in_own = pair.is_own(address & !(PAGE - 1), (address | (PAGE - 1)).saturating_add(1));
        let key = random.pick(&[-1i64, -1, -1, 0, 1, 16, i64::MIN, i64::MAX]);
        let number = if random.once_in(4) { libc::SYS_pkey_mprotect } else { libc::SYS_mprotect };
        // It stops at a hole, unless it begins to grow downwards there.
        let far = prot & 0x300_0000 != 0 && hits_own(pair, address, len);
        (!starts_in_own && !far).then(|| call(number, [address, len, prot, key as u64, 0, 0]))
    });
}

#[test]
fn msync() {
    compare(As::Root, 5, |random, _| {
        let address = address(random);
        let len = len(random, address);
        let flags = random.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, u64::MAX, 1 << 32]);
        Some(call(libc::SYS_msync, [address, len, flags, 0, 0, 0]))
    });
}

#[test]
fn mincore() {
    compare(As::Root, 6, |random, _| {
        let address = address(random);
        let len = len(random, address);
        let vector = random.pick(&[
            scene::page(0),
            scene::page(3) + PAGE - 2,
            scene::page(4),
            scene::page(6),
            0,
            TASK_SIZE,
            TASK_SIZE - PAGE,
            1 << 63,
            u64::MAX,
        ]);
        // The answer to a long question takes long, and covers what is the process's own.
        let answered = address.is_multiple_of(PAGE) && len < 1 << 40;
        (len <= 1 << 24 || !answered).then(|| call(libc::SYS_mincore, [address, len, vector, 0, 0, 0]))
    });
}

#[test]
fn remap_file_pages() {
    compare(As::Root, 7, |random, _| {
        let (address, prot, flags) =
            (address(random), random.pick(&[0, 0, 0, 0, 1]), random.pick(&[0, 0x10000, u64::MAX]));
        let len = len(random, address);
        let offset = random.pick(&[
            0,
            1,
            2,
            3,
            9,
            1 << 40,
            1 << 51,
            (1 << 51) - 1,
            (1 << 51) - 2,
            1 << 52,
            u64::MAX,
            u64::MAX - 1,
        ]);
        Some(call(libc::SYS_remap_file_pages, [address, len, prot, offset, flags, 0]))
    });
}

/// A range for process_vm_readv and its like, outside a stretch of the window: the two sides must not overlap, or it would depend on
/// how much is copied at a time what comes out.
fn vector(random: &mut Random, apart_from: std::ops::Range<u64>) -> [u64; 2] {
    loop {
        let base = address(random).wrapping_add(random.pick(&[0, 0, 0, 5, 4090]));
        let len = match random.next() % 4 {
            0..3 => random.pick(&[0, 1, 100, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 5 * PAGE + 7]),
            _ => len(random, base),
        };
        if base >= apart_from.end || base.saturating_add(len) <= apart_from.start {
            return [base, len];
        }
    }
}

#[test]
fn process_vm() {
    let mut scratch = 0;
    let generate = |random: &mut Random, pair: &mut Pair| {
        for page in [0, 1, 2, 3, 10, 11, 12, 13] {
            scratch += 1;
            pair.poke(scene::page(page), &[scratch as u8; PAGE as usize]);
        }
        // Two arrays in the last page of the first area, the second so that it may end outside.
        let (local, remote) = (scene::page(3) + 64, scene::page(4) - 48);
        let arrays: Vec<u64> = (0..3).flat_map(|_| vector(random, scene::page(10)..TASK_SIZE)).collect();
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        pair.poke(local, &bytes(&arrays));
        let arrays: Vec<u64> = (0..3).flat_map(|_| vector(random, WINDOW..scene::page(10))).collect();
        pair.poke(remote, &bytes(&arrays));
        let counts = [0, 1, 1, 2, 2, 3, 3, 4, 1025, u64::MAX];
        let number = random.pick(&[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev]);
        let (local_count, remote_count) = (random.pick(&counts), random.pick(&counts));
        let flags = if random.once_in(20) { random.pick(&[1, 1 << 40]) } else { 0 };
        let at = |random: &mut Random, array| if random.once_in(12) { address(random) } else { array };
        let (local, remote) = (at(random, local), at(random, remote));
        Some(call(number, [pair.host.pid(), local, local_count, remote, remote_count, flags]))
    };
    compare_and(As::Root, 8, generate, |pair| (!pair.same_bytes(0..24)).then(|| "bytes".to_owned()));
}

#[test]
fn prctl_set_mm() {
    const FIELDS: [usize; 11] = [26, 27, 45, 46, 47, 0, 28, 48, 49, 50, 51];
    let generate = |random: &mut Random, pair: &mut Pair| {
        let option = match random.next() % 4 {
            0..2 => 14,
            2 => random.next() % 18,
            _ => random.pick(&[15, 1 << 31, u64::MAX, 14 | 1 << 32]),
        };
        let fields = fields_of(&pair.host);
        let brk = pair.hosted.space.layout().brk.get();
        let mut map: Vec<u64> =
            FIELDS.iter().map(|&number| if number == 0 { brk } else { fields[number - 3] }).collect();
        for field in &mut map {
            if random.once_in(8) {
                *field =
                    random.pick(&[0, 1, PAGE, 0x1_0000, TASK_SIZE, TASK_SIZE - 1, 1 << 63, *field + 1, *field - 1]);
            }
        }
        map.push(random.pick(&[0, 0, 0, 1]));
        // No auxiliary vector and no executable: those are not supported.
        map.push(0xffff_ffff << 32);
        let at = random.pick(&[scene::page(0), scene::page(0) + 4, scene::page(6) - 8, scene::page(6), 0]);
        let bytes: Vec<u8> = map.iter().flat_map(|word| word.to_ne_bytes()).collect();
        pair.poke(scene::page(0) + 4, &bytes);
        pair.poke(scene::page(0), &bytes);
        let size = random.pick(&[0, 104, 104, 104, 104, 104, 105, 1 << 32 | 104]);
        let rest = if random.once_in(10) { 1 } else { 0 };
        let address = if option as u32 == 15 || option as u32 == 14 { at } else { address(random) };
        Some(call(libc::SYS_prctl, [libc::PR_SET_MM as u64, option, address, size, rest, 0]))
    };
    let look = |pair: &Pair| {
        let fields = fields_of(&pair.host);
        let layout = pair.hosted.space.layout();
        let ours = [
            (26, layout.code.0),
            (27, layout.code.1),
            (28, layout.start_stack),
            (45, layout.data.0),
            (46, layout.data.1),
            (47, layout.start_brk),
            (48, layout.args.0),
            (49, layout.args.1),
            (50, layout.env.0),
            (51, layout.env.1),
        ];
        let differs = |(number, ours): &(usize, foldspace::VirtAddr)| fields[number - 3] != ours.get();
        ours.into_iter()
            .find(differs)
            .map(|(number, ours)| format!("field {number}: {:x}, here {ours:x?}", fields[number - 3]))
    };
    compare_and(As::Root, 9, generate, look);
}

/// The areas from the start of the heap on, joined where permissions are the same: a child's areas do not merge with those that it inherited.
fn heap(maps: &str, start: u64) -> Vec<(u64, u64, String)> {
    let mut areas: Vec<(u64, u64, String)> = Vec::new();
    for (from, until, access, ..) in parse(maps) {
        match areas.last_mut() {
            Some(last) if last.1 == from && last.2 == access => last.1 = until,
            _ => areas.push((from, until, access)),
        }
    }
    areas.retain(|area| area.1 > start && area.0 < start + (1 << 30));
    areas
}

#[test]
fn brk() {
    let generate = |random: &mut Random, pair: &mut Pair| {
        let layout = pair.hosted.space.layout();
        let (start, end) = (layout.start_brk.get(), layout.brk.get());
        // Below that is what libc has on the heap: its child's only to look at.
        let first = pair.first_brk.next_multiple_of(PAGE);
        let page = first + PAGE * (random.next() % 600);
        match random.next() % 8 {
            0 => return Some(call(libc::SYS_munmap, [page, 3 * PAGE, 0, 0, 0, 0])),
            1 => return Some(call(libc::SYS_mprotect, [page, 2 * PAGE, random.pick(&[1, 3]), 0, 0, 0])),
            2 if random.once_in(4) => {
                return Some(call(libc::SYS_mmap, [page, PAGE, 1, 0x32 | STAYS, u64::MAX, 0]));
            }
            _ => {}
        }
        let base = random.pick(&[start, end, end, end.next_multiple_of(PAGE), first, 0, TASK_SIZE, 1 << 63]);
        let by = random.pick(&[0, 1, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE, 100 * PAGE, 512 * PAGE]);
        let end = random.pick(&[base.wrapping_add(by), base.wrapping_sub(by)]);
        (end < start || end >= first).then(|| call(libc::SYS_brk, [end, 0, 0, 0, 0, 0]))
    };
    let look = |pair: &Pair| {
        let hosted = String::from_utf8(pair.hosted.space.maps().text()).expect("text");
        let start = pair.hosted.space.layout().start_brk.get();
        let (there, here) = (heap(&pair.host.proc("maps"), start), heap(&hosted, start));
        (there != here).then(|| format!("{there:x?} on Linux, {here:x?} here"))
    };
    compare_and(As::Root, 10, generate, look);
}

#[test]
fn madvise() {
    compare(As::Root, 11, |random, pair| {
        let address = address(random);
        let len = len(random, address);
        let advice = match random.next() % 8 {
            0 => random.pick(&[5, 6, 7, 26, 99, 104, 200, u64::MAX, 1 << 31, 4 | 1 << 32]),
            _ => random
                .pick(&[0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 102, 103]),
        };
        let harmless = advice == 3 || !hits_own(pair, address, len);
        harmless.then(|| call(libc::SYS_madvise, [address, len, advice, 0, 0, 0]))
    });
}

#[test]
fn process_madvise() {
    compare(As::Root, 12, |random, pair| {
        let advice = random.pick(&[3, 4, 4, 8, 20, 21, 22, 23, 102, 103, 99]);
        let mut words = Vec::new();
        for _ in 0..3 {
            let base = address(random);
            let len = if random.once_in(6) { 0 } else { len(random, base) };
            if advice != 3 && hits_own(pair, base, len) {
                return None;
            }
            words.extend([base, len]);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let array = scene::page(4) - 48;
        pair.poke(array, &bytes);
        let at = if random.once_in(12) { address(random) } else { array };
        let (count, flags) = (random.pick(&[0, 1, 1, 2, 2, 3, 3, 4, 1025]), if random.once_in(20) { 1 } else { 0 });
        Some(call(libc::SYS_process_madvise, [pair.pidfd, at, count, advice, flags, 0]))
    });
}

#[test]
fn mremap() {
    compare(As::Root, 13, |random, pair| {
        let address = address(random);
        let old_len = if random.once_in(8) { 0 } else { len(random, address) };
        let new_len = if random.once_in(3) { old_len } else { len(random, address) };
        let flags = random.pick(&[0, 1, 1, 1, 3, 3, 3, 5, 5, 7, 2, 4, 8, 9, 1 << 32 | 1]);
        let target = match random.next() % 3 {
            0 => scene::page(30 + random.next() % 100),
            1 => scene::address(random),
            _ => random.pick(&[0, scene::page(24), scene::page(500), scene::page(1020)]),
        };
        let from_own = hits_own(pair, address, old_len.max(PAGE));
        let onto_own = flags & 2 != 0 && hits_own(pair, target, new_len);
        (!from_own && !onto_own).then(|| call(libc::SYS_mremap, [address, old_len, new_len, flags, target, 0]))
    });
}

/// Locked memory in kB: what both say.
fn locked(pair: &Pair) -> Option<String> {
    let status = pair.host.proc("status");
    let there = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line").trim().to_owned();
    let here = format!("{} kB", pair.hosted.space.usage().locked * 4);
    (there != here).then(|| format!("{there} locked on Linux, {here} here"))
}

/// A call about locks, or one that locks since it was told to earlier.
fn lock(random: &mut Random, pair: &mut Pair) -> Option<Call> {
    let future = random.pick(&[0, 0, 0, 2, 6]);
    if pair.hosted.space.layout().lock_limit > 0 && future > 0 {
        pair.must(call(libc::SYS_mlockall, [future, 0, 0, 0, 0, 0]));
    }
    if random.once_in(2) {
        let (from, pages) = (random.pick(&[0, 1, 3, 10, 14]), random.pick(&[1, 2]));
        pair.call(call(libc::SYS_mlock, [scene::page(from), pages * PAGE, 0, 0, 0, 0]))?;
    }
    let address = address(random);
    let len = len(random, address);
    if hits_own(pair, address, len) {
        return None;
    }
    let few = len.min(40 * PAGE);
    // See `map` about the lowest addresses.
    let address = if address < 0x1_0000 { 0 } else { address };
    Some(match random.next() % 12 {
        0..3 => call(libc::SYS_mlock, [address, len, 0, 0, 0, 0]),
        3..5 => call(libc::SYS_mlock2, [address, len, random.pick(&[0, 1, 1, 2, 1 << 32]), 0, 0, 0]),
        5..7 => call(libc::SYS_munlock, [address, len, 0, 0, 0, 0]),
        7 => {
            // All of memory is locked where that is refused only.
            let flags = [0, 2, 4, 6, 8, 1 << 32 | 2];
            let now = [1, 3, 5, 7];
            let limited = pair.hosted.space.layout().lock_limit < 1 << 30;
            call(libc::SYS_mlockall, [if limited { random.pick(&now) } else { random.pick(&flags) }, 0, 0, 0, 0, 0])
        }
        8 => {
            let flags = random.pick(&[0x22, 0x2022, 0x2021, 0x32, 0x2032, 0x2028, 0x2024]);
            call(libc::SYS_mmap, [address, few, prot(random) & 7, flags, u64::MAX, 0])
        }
        9 => call(libc::SYS_madvise, [address, few, random.pick(&[4, 8, 20, 21, 24, 102, 103, 9]), 0, 0, 0]),
        10 => call(libc::SYS_msync, [address, few, random.pick(&[1, 2, 4, 6]), 0, 0, 0]),
        _ => call(libc::SYS_mremap, [address, few, random.pick(&[PAGE, 3 * PAGE, 30 * PAGE]), 1, 0, 0]),
    })
}

#[test]
fn locks_as_root() {
    compare_and(As::Root, 14, lock, locked);
}

#[test]
fn locks_as_nobody() {
    for (seed, pages) in [(15, 0), (16, 2), (17, 7), (18, 64)] {
        compare_and(
            As::Nobody,
            seed,
            |random, pair| {
                pair.limit_locks(pages * PAGE);
                lock(random, pair)
            },
            locked,
        );
    }
}

#[test]
fn sealed_memory() {
    let mut random = Random(19);
    let mut differences = Vec::new();
    for _ in 0..ROUNDS / 8 {
        // What is sealed stays: a new process for each.
        let mut pair = Pair::new(As::Root);
        scene::set(&mut pair);
        let (from, pages) = (random.pick(&[0, 1, 4, 7, 8, 10, 14, 16]), random.pick(&[1, 2, 3, 4, 6]));
        let seal = call(libc::SYS_mseal, [scene::page(from), pages * PAGE, 0, 0, 0, 0]);
        let sealed = pair.call(seal).expect("it lives");
        let at = address(&mut random);
        let len = len(&mut random, at);
        if hits_own(&pair, at, len) {
            continue;
        }
        let few = len.min(64 * PAGE);
        let then = match random.next() % 8 {
            0 => call(libc::SYS_munmap, [at, len, 0, 0, 0, 0]),
            1..3 => call(libc::SYS_mprotect, [at, len, prot(&mut random) & 7, 0, 0, 0]),
            3 => call(libc::SYS_mmap, [at, few, 3, 0x32, u64::MAX, 0]),
            4 => call(
                libc::SYS_mremap,
                [at, few, random.pick(&[few, PAGE, few + PAGE]), random.pick(&[0, 1, 3]), scene::page(40), 0],
            ),
            5 => call(libc::SYS_mremap, [scene::page(0), PAGE, PAGE, 3, at, 0]),
            6 => call(libc::SYS_mseal, [at, len, random.pick(&[0, 0, 0, 1, 1 << 40]), 0, 0, 0]),
            _ => call(libc::SYS_madvise, [at, len, random.pick(&[0, 1, 4, 8, 9, 10, 18, 20, 102]), 0, 0, 0]),
        };
        let (there, here) = pair.call(then).expect("it lives");
        let (linux_maps, our_maps) = pair.windows();
        if sealed.0 != sealed.1 || there != here || linux_maps != our_maps {
            differences.push(format!(
                "{}: {sealed:x?}; {}: {there:#x} on Linux, {here:#x} here; maps\n{linux_maps}on Linux,\n{our_maps}here",
                show(seal),
                show(then)
            ));
        }
    }
    let shown: Vec<&str> = differences.iter().take(10).map(String::as_str).collect();
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), shown.join("\n"));
}
