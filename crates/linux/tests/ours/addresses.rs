//! prctl(PR_SET_MM), brk of who locks what is to come, and advice to others: as `prctl_set_mm` in kernel/sys.c and `mm/madvise.c` have it.

use foldspace::VirtAddr;
use foldspace::space::Layout;
use foldspace_linux::{Capability, Errno, IoVec, abi, brk, mlockall, prctl_set_mm, process_madvise};

use super::{AT, PAGE, Process};

// linux/prctl.h
const START_CODE: u64 = 1;
const END_CODE: u64 = 2;
const START_DATA: u64 = 3;
const END_DATA: u64 = 4;
const START_STACK: u64 = 5;
const START_BRK: u64 = 6;
const BRK: u64 = 7;
const ARG_START: u64 = 8;
const ARG_END: u64 = 9;
const ENV_START: u64 = 10;
const ENV_END: u64 = 11;
const AUXV: u64 = 12;
const MAP: u64 = 14;
const MAP_SIZE: u64 = 15;

// asm-generic/mman-common.h
const MADV_DONTNEED: i32 = 4;
const MADV_COLD: i32 = 20;

fn with(rights: &[Capability]) -> Process {
    let process = Process { rights: rights.to_vec(), ..Process::new() };
    process.map(0, 4, abi::PROT_READ | abi::PROT_WRITE);
    process
}

fn put(process: &Process, address: u64, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(process.space.write(VirtAddr(address), &bytes), bytes.len());
}

#[test]
fn each_address_is_set_by_its_option() {
    let process = with(&[Capability::Resource]);
    type Field = (u64, u64, fn(&Layout) -> VirtAddr);
    let fields: [Field; 11] = [
        (END_CODE, 0x48_0000, |layout| layout.code.1),
        (START_CODE, 0x41_0000, |layout| layout.code.0),
        (START_DATA, 0x51_0000, |layout| layout.data.0),
        (END_DATA, 0x58_0000, |layout| layout.data.1),
        (START_BRK, 0x5f_0000, |layout| layout.start_brk),
        (BRK, 0x61_0000, |layout| layout.brk),
        (START_STACK, AT, |layout| layout.start_stack),
        (ARG_END, AT + 20, |layout| layout.args.1),
        (ARG_START, AT + 10, |layout| layout.args.0),
        (ENV_END, AT + 40, |layout| layout.env.1),
        (ENV_START, AT + 30, |layout| layout.env.0),
    ];
    // The arguments begin where they may.
    process.space.update_layout(|layout| {
        (layout.args, layout.env) = ((VirtAddr(AT), VirtAddr(AT)), (VirtAddr(AT), VirtAddr(AT)));
    });
    for (option, address, field) in fields {
        assert_eq!(prctl_set_mm(&process, option, address, 0, 0), Ok(()), "option {option}");
        assert_eq!(process.space.with_layout(field), VirtAddr(address), "option {option}");
    }
}

#[test]
fn addresses_that_cannot_be_are_refused_and_change_nothing() {
    let process = with(&[Capability::Resource]);
    let set = |option, address, size, rest| prctl_set_mm(&process, option, address, size, rest);
    let before = format!("{:?}", process.space.layout());
    assert_eq!(set(START_CODE, 0x41_0000, 0, 1), Err(Errno::EINVAL), "an argument too many");
    assert_eq!(set(START_CODE, 0x41_0000, 8, 0), Err(Errno::EINVAL), "a size where none belongs");
    assert_eq!(set(99, 0x41_0000, 0, 0), Err(Errno::EINVAL), "no such option");
    assert_eq!(set(AUXV, 0x41_0000, 16, 0), Err(Errno::EINVAL), "no auxiliary vector");
    assert_eq!(set(START_CODE, 1, 0, 0), Err(Errno::EINVAL), "below all that may be mapped");
    assert_eq!(set(START_CODE, 1 << 63, 0, 0), Err(Errno::EINVAL), "beyond the user half");
    assert_eq!(set(START_CODE, 0x7000_0000, 0, 0), Err(Errno::EINVAL), "behind the end of the code");
    assert_eq!(set(BRK, 0x5f_0000, 0, 0), Err(Errno::EINVAL), "before the start of the heap");
    process.space.update_layout(|layout| layout.data_limit = 0x10_0000);
    assert_eq!(set(BRK, 0x60_1000, 0, 0), Err(Errno::EINVAL), "more heap and data than there may be");
    process.space.update_layout(|layout| {
        layout.data_limit = u64::MAX;
        (layout.args, layout.env) = ((VirtAddr(AT), VirtAddr(AT)), (VirtAddr(AT), VirtAddr(AT)));
    });
    assert_eq!(set(START_STACK, AT + 8 * PAGE, 0, 0), Err(Errno::EFAULT), "nothing is mapped from there on");
    process.space.update_layout(|layout| {
        (layout.args, layout.env) = ((VirtAddr(0), VirtAddr(0)), (VirtAddr(0), VirtAddr(0)));
    });
    assert_eq!(format!("{:?}", process.space.layout()), before);
    let nobody = with(&[]);
    assert_eq!(prctl_set_mm(&nobody, START_CODE, 0x41_0000, 0, 0), Err(Errno::EPERM));
}

#[test]
fn all_addresses_are_set_at_once() {
    let mut process = with(&[]);
    assert_eq!(prctl_set_mm(&process, MAP_SIZE, AT, 0, 0), Ok(()));
    let mut size = [0; 4];
    process.space.read(VirtAddr(AT), &mut size);
    assert_eq!(u32::from_ne_bytes(size), 104);
    assert_eq!(prctl_set_mm(&process, MAP_SIZE, AT - PAGE, 0, 0), Err(Errno::EFAULT));

    let addresses = [0x40_0000, 0x50_0000, 0x50_0000, 0x60_0000, 0x60_0000, 0x60_0800, AT, AT, AT + 8, AT + 8, AT + 16];
    let no_executable = 0xffff_ffff_0000_0000;
    let with_tail = |auxv: u64, tail: u64| [&addresses[..], &[auxv, tail]].concat();
    put(&process, AT, &with_tail(0, no_executable));
    let set_all = |process: &Process, size| prctl_set_mm(process, MAP, AT, size, 0);
    assert_eq!(set_all(&process, 96), Err(Errno::EINVAL));
    assert_eq!(prctl_set_mm(&process, MAP, AT - PAGE, 104, 0), Err(Errno::EFAULT));
    assert_eq!(set_all(&process, 104), Ok(()));
    let layout = process.space.layout();
    assert_eq!(
        (layout.brk, layout.args, layout.env.1),
        (VirtAddr(0x60_0800), (VirtAddr(AT), VirtAddr(AT + 8)), VirtAddr(AT + 16))
    );
    // An auxiliary vector of some length; an executable, for who may not change it, and for who may.
    put(&process, AT, &with_tail(AT, no_executable | 16));
    assert_eq!(set_all(&process, 104), Err(Errno::EINVAL));
    put(&process, AT, &with_tail(0, 3 << 32));
    assert_eq!(set_all(&process, 104), Err(Errno::EPERM));
    process.rights.push(Capability::CheckpointRestore);
    assert_eq!(set_all(&process, 104), Err(Errno::EINVAL));
    // Out of order.
    put(&process, AT, &[0x50_0000, 0x40_0000]);
    assert_eq!(set_all(&process, 104), Err(Errno::EINVAL));
}

#[test]
fn what_a_heap_grows_by_is_there_if_what_is_to_come_is_locked() {
    let resident = |process: &Process| process.space.usage().resident_anon;
    for (flags, added) in [(abi::MCL_FUTURE, 3), (abi::MCL_FUTURE | abi::MCL_ONFAULT, 0)] {
        let process = with(&[]);
        let start = process.space.layout().brk.get();
        assert_eq!(brk(&process, start + PAGE), start + PAGE);
        assert_eq!(mlockall(&process, flags as i32), Ok(()));
        let before = resident(&process);
        assert_eq!(brk(&process, start + 4 * PAGE), start + 4 * PAGE);
        assert_eq!(resident(&process) - before, added);
        // Smaller, or as it is: nothing more.
        assert_eq!(brk(&process, start + 2 * PAGE), start + 2 * PAGE);
        assert_eq!(brk(&process, 0), start + 2 * PAGE);
    }
}

#[test]
fn advice_to_others_is_for_who_may_and_of_few_kinds() {
    let (mut process, other) = (with(&[]), with(&[]));
    let ranges = |list: &[u64]| put(&process, AT, list);
    let advise = |process: &Process, count, advice, flags| {
        process_madvise(process, AT, count, advice, flags, || Ok(&*other.space))
    };
    ranges(&[AT, PAGE, AT + PAGE, 2 * PAGE]);
    assert_eq!(advise(&process, 2, MADV_COLD, 1), Err(Errno::EINVAL), "flags");
    assert_eq!(advise(&process, 2, MADV_DONTNEED, 0), Err(Errno::EINVAL), "not for others");
    assert_eq!(advise(&process, 2, MADV_COLD, 0), Err(Errno::EPERM), "not without the right");
    let gone = process_madvise(&process, AT, 2, MADV_COLD, 0, || Err::<&foldspace::AddressSpace, _>(Errno::ESRCH));
    assert_eq!(gone, Err(Errno::ESRCH));
    // One's own needs no right.
    assert_eq!(process_madvise(&process, AT, 2, MADV_DONTNEED, 0, || Ok(&*process.space)), Ok(3 * PAGE));
    ranges(&[AT, PAGE, AT + PAGE, 2 * PAGE]);
    process.rights.push(Capability::Nice);
    assert_eq!(advise(&process, 2, MADV_COLD, 0), Ok(3 * PAGE));
    // What is not mapped ends it: as an error only if nothing was advised.
    put(&process, AT, &[AT, PAGE, AT + 64 * PAGE, PAGE]);
    assert_eq!(advise(&process, 2, MADV_COLD, 0), Ok(PAGE));
    put(&process, AT, &[AT + 64 * PAGE, PAGE, AT, PAGE]);
    assert_eq!(advise(&process, 2, MADV_COLD, 0), Err(Errno::ENOMEM));
    // Empty ranges between others are passed over.
    put(&process, AT, &[AT, PAGE, AT + 64 * PAGE, 0, AT, PAGE]);
    assert_eq!(advise(&process, 3, MADV_COLD, 0), Ok(2 * PAGE));
}

/// Linux takes the number of ranges as an `unsigned` where they are the caller's own (`import_iovec`), and as a `size_t` where they are not.
#[test]
fn of_a_number_of_own_ranges_the_lower_half_counts() {
    let process = Process::new();
    process.map(0, 1, abi::PROT_READ | abi::PROT_WRITE);
    let own = |count| IoVec::import(&process.space, AT, count).map(|ranges| ranges.len());
    assert_eq!((own(1 << 32), own((1 << 62) + 2), own(1025)), (Ok(0), Ok(2), Err(Errno::EINVAL)));
    assert_eq!(IoVec::read(&process.space, AT, 1 << 32).map(drop), Err(Errno::EINVAL));
}
