//! Generated arguments, call by call.

use crate::host::Call;
use crate::pair::{As, PAGE, Pair, TASK_SIZE, WINDOW, WINDOW_LEN};
use crate::scene::{self, Random, address, hits_own, len, show};

/// How many calls of each kind are tried.
const ROUNDS: usize = 4000;

/// Makes generated calls, each on a fresh scene, and lists what differs.
fn compare(who: As, seed: u64, mut generate: impl FnMut(&mut Random, &Pair) -> Option<Call>) {
    let mut pair = Pair::new(who);
    let mut random = Random(seed);
    let (mut tried, mut differences, mut errors) = (0, Vec::new(), std::collections::BTreeMap::new());
    while tried < ROUNDS {
        scene::set(&mut pair);
        let Some(call) = generate(&mut random, &pair) else { continue };
        tried += 1;
        let Some((on_linux, here)) = pair.call(call) else {
            panic!("the host's process died of {}", show(call));
        };
        *errors.entry(on_linux.min(0)).or_insert(0) += 1;
        let (linux_maps, our_maps) = pair.windows();
        if !same(call, on_linux, here) {
            differences.push(format!("{}: {on_linux:#x} on Linux, {here:#x} here", show(call)));
        } else if linux_maps != our_maps {
            differences.push(format!("{}: maps\n{linux_maps}on Linux,\n{our_maps}here", show(call)));
        }
        clean_up(&mut pair, call, on_linux, here);
    }
    let outcomes: Vec<String> = errors.iter().map(|(errno, times)| format!("{errno}: {times}")).collect();
    println!("{tried} calls; results on Linux: {}", outcomes.join(", "));
    let shown: Vec<&str> = differences.iter().take(40).map(String::as_str).collect();
    assert!(differences.is_empty(), "{} of {tried} differ:\n{}", differences.len(), shown.join("\n"));
}

/// Whether the results are the same. `MAP_32BIT` picks at random on Linux.
fn same(call: Call, on_linux: i64, here: i64) -> bool {
    let low = call[0] == libc::SYS_mmap as u64 && call[4] & 0x40 != 0 && on_linux > 0 && on_linux as u64 != call[1];
    if low && here != on_linux { (0x4000_0000..0x8000_0000).contains(&here) } else { on_linux == here }
}

/// Undoes what a call left outside the window.
fn clean_up(pair: &mut Pair, call: Call, on_linux: i64, here: i64) {
    let [number, address, len, new_len, ..] = call;
    let mapped = |result: i64| match number as i64 {
        libc::SYS_mmap if result >= 0 => len,
        libc::SYS_mremap if result >= 0 && result as u64 != address => new_len,
        _ => 0,
    };
    // From the window on, if it is there that it begins: what lies in the window goes anyway.
    let unmap = |start: i64, len: u64| {
        let start = start as u64;
        let from = if (WINDOW..WINDOW + WINDOW_LEN).contains(&start) { WINDOW } else { start };
        [libc::SYS_munmap as u64, from, start + len - from, 0, 0, 0, 0]
    };
    if mapped(on_linux) > 0 {
        assert_eq!(pair.host.call(unmap(on_linux, mapped(on_linux))), Some(0));
    }
    if mapped(here) > 0 {
        assert_eq!(pair.hosted_call(unmap(here, mapped(here))), 0);
    }
}

fn call(number: i64, arguments: [u64; 6]) -> Call {
    let [a, b, c, d, e, f] = arguments;
    [number as u64, a, b, c, d, e, f]
}

/// Protection bits, known and unknown.
fn prot(random: &mut Random) -> u64 {
    match random.next() % 8 {
        0..6 => random.next() % 8,
        6 => random.pick(&[8, 0x10, 0x100, 0x0100_0000, 0x0200_0000, 0x0300_0000, 1 << 32, u64::MAX]),
        _ => (random.next() % 8) | random.pick(&[8, 0x10, 0x0100_0000, 0x0200_0000, 1 << 40]),
    }
}

fn map(random: &mut Random, pair: &Pair) -> Option<Call> {
    let address = address(random);
    let len = len(random, address);
    let kind = random.pick(&[1, 2, 2, 2, 3, 8, 0, 4, 9]);
    let mut flags = kind;
    for flag in [0x10, 0x20, 0x40, 0x100, 0x800, 0x1000, 0x4000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000] {
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
    let much = len > 1 << 24 && flags & 0x1_8000 != 0;
    // Two limits on Linux: `vm.mmap_min_addr` for who may not, and the larger of that and a constant for hints.
    let between = flags & 0x10_0010 != 0 && (1..0x1_0000).contains(&address);
    // Until there is a limit to what is committed.
    let committed = (1 << 32..=TASK_SIZE).contains(&len);
    if committed || between || fixed && hits_own(pair, address, len) || huge_page_without_reservation || much {
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
