//! Calls with generated arguments, each made on both sides: results, and the lines of maps afterwards.

use crate::host::{Call, call};
use crate::pair::{As, Pair, WINDOW, WINDOW_LEN, joined};
use crate::scene::{self, Random, show};

/// How many calls of each kind are tried.
pub const ROUNDS: usize = 4000;

/// A flag without a meaning: what is mapped outside the window stays there.
pub const STAYS: u64 = 1 << 62;

/// Makes generated calls, each on a fresh scene, and lists what differs.
pub fn compare(who: As, seed: u64, generate: impl FnMut(&mut Random, &mut Pair) -> Option<Call>) {
    compare_and(who, seed, generate, |_| None);
}

/// The same, where more than results and maps is to be compared: `look` says what else differs.
pub fn compare_and(
    who: As,
    seed: u64,
    mut generate: impl FnMut(&mut Random, &mut Pair) -> Option<Call>,
    mut look: impl FnMut(&Pair) -> Option<String>,
) {
    let mut pair = Pair::new(who);
    let mut random = Random(seed);
    let (mut tried, mut cuts, mut differences, mut errors) = (0, 0, Vec::new(), std::collections::BTreeMap::new());
    while tried < ROUNDS {
        pair.must(call(libc::SYS_munlockall, [0; 6]));
        scene::set(&mut pair);
        let Some(call) = generate(&mut random, &mut pair) else { continue };
        tried += 1;
        let Some((on_linux, here)) = pair.call(call) else {
            panic!("the host's process died of {}", show(call));
        };
        *errors.entry(on_linux.min(0)).or_insert(0) += 1;
        let (mut linux_maps, mut our_maps) = pair.windows();
        if leaves_cuts(call, on_linux) {
            (linux_maps, our_maps) = (joined(&linux_maps), joined(&our_maps));
            cuts += 1;
        }
        if !same(call, on_linux, here) {
            differences.push(format!("{}: {on_linux:#x} on Linux, {here:#x} here", show(call)));
        } else if linux_maps != our_maps {
            differences.push(format!("{}: maps\n{linux_maps}on Linux,\n{our_maps}here", show(call)));
        } else if let Some(difference) = look(&pair) {
            differences.push(format!("{}: {difference}", show(call)));
        }
        clean_up(&mut pair, call, on_linux, here);
    }
    let outcomes: Vec<String> = errors.iter().map(|(errno, times)| format!("{errno}: {times}")).collect();
    println!("{tried} calls, {cuts} that may leave cuts; results on Linux: {}", outcomes.join(", "));
    let shown: Vec<&str> = differences.iter().take(40).map(String::as_str).collect();
    assert!(differences.is_empty(), "{} of {tried} differ:\n{}", differences.len(), shown.join("\n"));
}

/// Whether the results are the same. `MAP_32BIT` picks at random on Linux.
fn same(call: Call, on_linux: i64, here: i64) -> bool {
    let low = call[0] == libc::SYS_mmap as u64 && call[4] & 0x40 != 0 && on_linux > 0 && on_linux as u64 != call[1];
    if low && here != on_linux { (0x4000_0000..0x8000_0000).contains(&here) } else { on_linux == here }
}

/// Where Linux cuts areas at the ends of what it is to replace, and then finds that there may not be so much memory: it leaves them cut.
fn leaves_cuts(call: Call, on_linux: i64) -> bool {
    call[0] == libc::SYS_mmap as u64 && call[4] & 0x10 != 0 && on_linux == -i64::from(libc::ENOMEM)
}

/// Undoes what a call left outside the window.
fn clean_up(pair: &mut Pair, call: Call, on_linux: i64, here: i64) {
    let [number, address, len, new_len, ..] = call;
    let mapped = |result: i64| match number as i64 {
        libc::SYS_mmap if result >= 0 && call[4] & STAYS == 0 => len,
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
