//! Whole logs.

use foldspace_replay::{Name, Options, Replay, Report};
use proptest::prelude::*;

fn replay(text: &str) -> Report {
    let mut replay = Replay::new(Options { memory: 64 << 20, sample: 1, ..Options::default() }).unwrap();
    for line in text.lines() {
        replay.line(line).unwrap();
        replay.check().unwrap();
    }
    replay.finish().unwrap()
}

/// A program with a thread, a child that execs, and one by vfork.
const SMALL: &str = include_str!("small.trace");

#[test]
fn a_real_log_is_understood_in_full() {
    let report = replay(SMALL);
    assert_eq!((report.damaged, report.orphans), (0, 0), "{:?}", report.damaged_lines);
    assert_eq!((report.execs, report.forks, report.clones), (2, 1, 2));
    // All have exited: every anon_vma has gone with them.
    assert_eq!(report.variants.len(), 6);
    for variant in &report.variants {
        assert!(variant.objects.peak > 0 && variant.bytes.peak > 0, "{variant:?}");
    }
}

#[test]
fn damage_is_reported_with_its_line_and_passed_over() {
    let lines: Vec<&str> = SMALL.lines().collect();
    // The second is of a thread that nobody begins, and found out about at the end.
    let broken = [&lines[..10], &["garbage", "7 mmap(NULL, 4096) = 0x1"], &lines[10..]].concat().join("\n");
    let (report, whole) = (replay(&broken), replay(SMALL));
    assert_eq!(report.damaged_lines.iter().map(|damaged| damaged.line).collect::<Vec<_>>(), [11, 12]);
    assert_eq!(report.calls, whole.calls);
}

#[test]
fn a_childs_lines_may_come_before_its_parents_fork_returns() {
    let text = "\
1 execve(\"/a\", [\"a\"], 0x1 /* 1 var */) = 0
1 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x10000
1 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>
2 munmap(0x10000, 4096) = 0
3 munmap(0x10000, 4096) = 0
2 fork() = 3
2 +++ exited with 0 +++
1 <... clone resumed>, child_tidptr=0x1) = 2
3 +++ exited with 0 +++
1 +++ exited with 0 +++
";
    let report = replay(text);
    assert_eq!((report.damaged, report.orphans, report.forks), (0, 0, 2));
}

#[test]
fn a_thread_of_unknown_origin_is_a_process_of_its_own() {
    let report = replay("1 brk(NULL) = 0x1000\n5 brk(NULL) = 0x1000\n5 brk(0x3000) = 0x3000\n");
    assert_eq!(report.orphans, 1);
    let of = |name| report.variants.iter().find(|variant| variant.name == name).unwrap().vmas.peak;
    // Two stacks and a heap.
    assert_eq!((of(Name::Today), of(Name::Foldspace)), (3, 3));
}

#[test]
fn mappings_that_move_and_grow_keep_their_pages() {
    let report = replay(
        "1 mmap(NULL, 16384, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x100000
1 mremap(0x100000, 16384, 32768, MREMAP_MAYMOVE) = 0x200000
1 mremap(0x200000, 32768, 40960, 0) = 0x200000
1 mremap(0x200000, 40960, 4096, 0) = 0x200000
1 fork() = 2
1 munmap(0x200000, 4096) = 0
",
    );
    assert_eq!(report.damaged, 0);
    assert_eq!(report.calls, 6);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Lines in any order, with any numbers: nonsense, but a log.
    #[test]
    fn no_log_is_too_odd(order in prop::collection::vec((0..60usize, 1..6u32, any::<u32>()), 0..60)) {
        let lines: Vec<&str> = SMALL.lines().collect();
        let mut replay = Replay::new(Options { memory: 64 << 20, sample: 16, ..Options::default() }).unwrap();
        for (which, pid, number) in order {
            let line = lines[which % lines.len()];
            let (_, rest) = line.split_once(' ').unwrap();
            let rest = match number % 3 {
                0 => rest.replace("4096", &format!("{number:#x}")),
                1 => rest.replace("= 1676", "= "),
                _ => rest.to_string(),
            };
            // Out of memory is an answer: a heap may be said to have terabytes.
            if replay.line(&format!("{pid} {rest}")).is_err() {
                return Ok(());
            }
        }
        prop_assert!(replay.check().is_ok());
        prop_assert!(replay.finish().is_ok());
    }
}

/// A fuzzer's find: the heap was said to end outside what programs have.
#[test]
fn a_heap_beyond_a_programs_half_is_damage() {
    for end in ["0x562c9b3ac6768", "0x800000000000", "0xffffffffffffffff"] {
        let report = replay(&format!("1 brk(NULL) = 0x562c9b38b000\n1 brk(0) = {end}\n1 brk(0) = 0x562c9b38c000\n"));
        let lines: Vec<u64> = report.damaged_lines.iter().map(|damaged| damaged.line).collect();
        assert_eq!((lines, report.calls), (vec![2], 1), "{end}");
    }
}
