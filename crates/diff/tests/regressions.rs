//! Short sequences that once showed a difference, on this machine's Linux and on Foldspace. Each must be equal, or differ as its rule says.

use std::process::ExitCode;

use foldspace_diff::campaign::Pair;
use foldspace_diff::compare::Verdict;
use foldspace_diff::window::{BASE, FIRST_FD, MIDDLE, PAGE};
use foldspace_diff::{Call, Helper, Op, host};

const RW: u32 = 3;
const SHARED: u32 = 1;
const PRIVATE: u32 = 2;
const DROPPABLE: u32 = 8;
const FIXED: u32 = 0x10;
const ANONYMOUS: u32 = 0x20;
const LOCKED: u32 = 0x2000;
const POPULATE: u32 = 0x8000;
const RLIMIT_DATA: u32 = 2;
const RLIMIT_MEMLOCK: u32 = 8;
const RLIMIT_AS: u32 = 9;

/// What a sequence is to come to.
enum Wanted {
    /// The same on both.
    Equal,
    /// The same, or the two part as a rule says.
    Explained,
}
use Wanted::{Equal, Explained};

fn page(number: u64) -> u64 {
    MIDDLE + number * PAGE
}

fn map(at: u64, pages: u64, prot: u32, flags: u32) -> Call {
    Call::Map { addr: page(at), len: pages * PAGE, prot, flags: flags | FIXED | ANONYMOUS, fd: -1, offset: 0 }
}

fn remap(from: u64, old_pages: u64, new_pages: u64, flags: u32, to: u64) -> Call {
    Call::Remap { addr: page(from), old_len: old_pages * PAGE, new_len: new_pages * PAGE, flags, target: page(to) }
}

fn copy(from: u64, to: u64, pages: u64, write: bool) -> Call {
    Call::Copy { other: 0, addr: page(from), there: page(to), len: pages * PAGE, write }
}

fn store(at: u64) -> Call {
    Call::Store { addr: page(at), value: 7, pages: 1 }
}

/// Name, what it comes to, and the calls: of one process, and after a fork of its child.
fn sequences() -> Vec<(&'static str, Wanted, Vec<Call>)> {
    const MAY_MOVE: u32 = 1;
    const TO: u32 = 3;
    const TO_AND_STAY: u32 = 7;
    let file = |flags| Call::Map { addr: page(0), len: 4 * PAGE, prot: RW, flags, fd: FIRST_FD, offset: 0 };
    vec![
        (
            "no holes in a memfd that is sealed against future writers",
            Equal,
            vec![
                Call::Create { file: 0, flags: 3, read_only: false },
                Call::Truncate { file: 0, len: 4 * PAGE as i64 },
                file(SHARED | FIXED),
                store(1),
                Call::AddSeals { file: 0, seals: 0x10 },
                Call::Advise { addr: page(0), len: 6 * PAGE, advice: libc::MADV_REMOVE },
                Call::LookDeep,
            ],
        ),
        (
            "a move within what RLIMIT_DATA allows no more",
            Equal,
            vec![
                map(0, 4, 0, PRIVATE),
                Call::Limit { resource: RLIMIT_DATA, more: 0 },
                Call::Protect { addr: page(0), len: PAGE, prot: RW },
                map(0, 4, RW, PRIVATE),
                remap(2, 1, 1, TO, 8),
            ],
        ),
        (
            "a heap counts whole against RLIMIT_DATA, with the holes in it, and what grows with all other data",
            Equal,
            vec![
                Call::SetHeap { addr: page(0) },
                Call::Break { addr: page(8) },
                Call::Unmap { addr: page(2), len: 2 * PAGE },
                Call::Limit { resource: RLIMIT_DATA, more: 0 },
                Call::Break { addr: page(8) - 1 },
                Call::Break { addr: page(6) + 1 },
                Call::Break { addr: page(6) },
                map(12, 2, RW, PRIVATE),
                Call::Break { addr: page(5) },
                map(14, 1, RW, PRIVATE),
                Call::Break { addr: page(6) },
                store(4),
            ],
        ),
        (
            "a child's heap counts once against RLIMIT_DATA",
            Equal,
            vec![
                Call::SetHeap { addr: page(2) },
                Call::Break { addr: page(12) },
                Call::Fork { child: 2 },
                Call::Break { addr: page(3) + 0x556 },
                Call::Limit { resource: RLIMIT_DATA, more: 4 * PAGE },
                Call::SetHeap { addr: page(20) },
            ],
        ),
        (
            "a heap that starts within a page extends the area of that page, one that starts with a page does not",
            Equal,
            vec![
                map(0, 2, RW, PRIVATE),
                Call::SetHeap { addr: page(1) + 100 },
                Call::Break { addr: page(4) },
                map(10, 2, RW, PRIVATE),
                Call::SetHeap { addr: page(12) },
                Call::Break { addr: page(14) },
                Call::Break { addr: page(16) },
            ],
        ),
        (
            "what stays counts against RLIMIT_AS when the target has gone",
            Equal,
            vec![
                map(0, 13, RW, PRIVATE),
                Call::Limit { resource: RLIMIT_AS, more: 0 },
                remap(0, 3, 3, TO_AND_STAY, 6),
                remap(0, 3, 3, TO_AND_STAY, 12),
            ],
        ),
        (
            "all of a locked area is unlocked when a part of it leaves",
            Equal,
            vec![map(0, 8, RW, PRIVATE | LOCKED), remap(6, 1, 1, TO_AND_STAY, 12), remap(0, 1, 1, TO_AND_STAY, 4)],
        ),
        (
            "a locked area is unlocked up to where the target was cut out of it",
            Equal,
            vec![map(0, 8, RW, PRIVATE | LOCKED), remap(6, 1, 1, TO_AND_STAY, 3)],
        ),
        (
            "an unlocked shared area is not joined with its neighbours",
            Equal,
            vec![map(0, 8, 1, SHARED), Call::Lock { addr: page(3), len: PAGE }, remap(3, 1, 1, TO_AND_STAY, 12)],
        ),
        (
            "mlock2 of droppable memory populates it",
            Equal,
            vec![
                map(0, 4, 0, DROPPABLE),
                Call::Lock2 { addr: page(0), len: PAGE, flags: 1 },
                map(8, 4, RW, DROPPABLE),
                Call::Lock2 { addr: page(8), len: PAGE, flags: 1 },
                Call::LockAll { flags: 5 },
            ],
        ),
        (
            "droppable memory is populated whatever mlockall says",
            Equal,
            vec![Call::LockAll { flags: 6 }, map(0, 2, RW, DROPPABLE | POPULATE), map(8, 2, RW, DROPPABLE)],
        ),
        (
            "what cannot be locked counts against RLIMIT_MEMLOCK all the same",
            Equal,
            vec![
                Call::Limit { resource: RLIMIT_MEMLOCK, more: 4 * PAGE },
                Call::LockAll { flags: 2 },
                map(0, 4, RW, PRIVATE),
                map(8, 1, RW, DROPPABLE),
                map(8, 1, RW, PRIVATE),
            ],
        ),
        (
            "who may lock no more may not lock nothing either",
            Equal,
            vec![
                Call::LockAll { flags: 5 },
                Call::Limit { resource: RLIMIT_MEMLOCK, more: 4 * PAGE },
                Call::Lock { addr: page(0), len: 0 },
            ],
        ),
        (
            "remap_file_pages of locked memory where nothing may be locked",
            Equal,
            vec![
                map(0, 1, 0, SHARED),
                Call::Lock { addr: page(0), len: PAGE },
                Call::Limit { resource: RLIMIT_MEMLOCK, more: 0 },
                Call::RemapPages { addr: page(0), len: PAGE, prot: 0, page: 8, flags: 0 },
            ],
        ),
        (
            "a length that wraps, and a target where it starts",
            Equal,
            vec![
                map(0, 8, RW, PRIVATE),
                Call::Remap { addr: page(4), old_len: u64::MAX - PAGE + 1, new_len: PAGE, flags: TO, target: page(4) },
            ],
        ),
        (
            "process_vm_writev brings pages in that it cannot fill",
            Equal,
            vec![map(0, 8, RW, PRIVATE), copy(20, 0, 4, true), copy(20, 4, 8, false)],
        ),
        (
            "process_vm_readv does not read what may only be executed",
            Equal,
            vec![map(0, 1, 4, PRIVATE), map(1, 1, 1, PRIVATE), map(8, 2, RW, PRIVATE), copy(8, 0, 2, false)],
        ),
        (
            "process_vm_writev reads nothing for what cannot be written",
            Equal,
            vec![map(0, 8, 1, SHARED), copy(0, 4, 3, true)],
        ),
        (
            "remap_file_pages over an area that may have guards",
            Explained,
            vec![
                map(0, 8, RW, SHARED),
                remap(6, 0, 1, MAY_MOVE | 2, 8),
                Call::Advise { addr: page(8), len: PAGE, advice: 102 },
                Call::RemapPages { addr: page(6), len: 3 * PAGE, prot: 0, page: 2, flags: 0 },
            ],
        ),
        (
            "a heap in the window",
            Equal,
            vec![
                Call::SetHeap { addr: BASE + 100 },
                Call::Break { addr: BASE + 3 * PAGE },
                Call::Store { addr: BASE + PAGE, value: 1, pages: 2 },
                Call::Break { addr: BASE + PAGE + 1 },
                Call::Break { addr: BASE },
                Call::Break { addr: BASE + 9 * PAGE },
                Call::LookDeep,
            ],
        ),
    ]
}

/// Where both sides refuse to move the heap, no call about it is compared.
fn heap_moves(helper: &mut Helper) {
    let calls = [Call::SetHeap { addr: page(0) + 8 }, Call::Break { addr: page(2) }, store(1)];
    helper.begin(&calls.map(|call| Op { process: 0, call })).expect("a helper");
    let (steps, _) = helper.finish().expect("an answer");
    let results: Vec<i64> = steps.iter().map(|step| step.outcome.value).collect();
    assert_eq!(results, [0, page(2) as i64, 1], "the heap of a process of the host is in the window");
}

fn main() -> ExitCode {
    // A part of a name, and options of the usual harness, which there is nothing to do for.
    let part = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    if let Err(error) = host::fix_addresses() {
        eprintln!("cannot switch off random addresses: {error}");
        return ExitCode::FAILURE;
    }
    let mut helper = Helper::start().expect("a helper");
    heap_moves(&mut helper);
    let mut pair = Pair::new(helper).expect("a machine");
    let mut failed = 0;
    for (name, wanted, calls) in sequences().into_iter().filter(|(name, ..)| name.contains(&part)) {
        let mut process = 0;
        let mut ops = Vec::new();
        for call in calls {
            ops.push(Op { process, call });
            if let Call::Fork { child } = call {
                process = child;
            }
        }
        let said = match (wanted, pair.compare(&ops).expect("both sides")) {
            (_, Verdict::Equal) | (Explained, Verdict::Parted(_)) => "ok".to_owned(),
            (Equal, Verdict::Parted(at)) => format!("FAILED: a rule was needed at operation {at}"),
            (_, Verdict::Different(difference)) => {
                format!("FAILED at operation {}: {}", difference.at, difference.text)
            }
        };
        failed += usize::from(said != "ok");
        println!("{name} ... {said}");
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
