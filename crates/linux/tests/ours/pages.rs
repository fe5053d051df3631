//! `MAP_REFPAGE` and `refpage_create`.

use foldspace::VirtAddr;
use foldspace_linux::{Content, Errno, OpenFile, OpenRights, abi, madvise, mmap, munmap, refpage_create};

use super::{AT, PAGE, Process};

const PRIVATE: u64 = abi::MAP_PRIVATE | abi::MAP_REFPAGE;
const RW: u64 = abi::PROT_READ | abi::PROT_WRITE;
/// `MADV_DONTNEED`.
const DONTNEED: i32 = 4;

/// A process with a page at [`AT`] that is full of `byte`.
fn process(byte: u8) -> Process {
    let process = Process::new();
    process.map(0, 1, RW);
    assert_eq!(process.space.write(VirtAddr(AT), &[byte; PAGE as usize]), PAGE as usize);
    process
}

fn byte_at(process: &Process, address: u64) -> u8 {
    let mut byte = [0];
    assert_eq!(process.space.read(VirtAddr(address), &mut byte), 1);
    byte[0]
}

#[test]
fn a_mapping_shows_the_page_as_it_was_at_the_call() {
    let process = process(7);
    // Descriptors are ignored, and no MAP_ANONYMOUS is needed.
    let at = mmap(&process, 0, 1 << 30, RW, PRIVATE, 99, AT).expect("a reference mapping");
    assert_eq!(process.space.write(VirtAddr(AT), &[8]), 1);
    munmap(&process, AT, PAGE).expect("the page may go");
    for offset in [0, 5 * PAGE + 3, (1 << 30) - 1] {
        assert_eq!(byte_at(&process, at + offset), 7);
    }
    // A store copies one page; giving it back brings the content back.
    assert_eq!(process.space.write(VirtAddr(at + 3 * PAGE), &[9]), 1);
    assert_eq!([3 * PAGE, 3 * PAGE + 1, 4 * PAGE].map(|offset| byte_at(&process, at + offset)), [9, 7, 7]);
    assert_eq!(process.space.usage().resident_anon, 1, "only copies are resident");
    madvise(&process, at, 1 << 30, DONTNEED).expect("it is mapped");
    assert_eq!(byte_at(&process, at + 3 * PAGE), 7);
}

#[test]
fn what_is_refused() {
    let process = process(1);
    let map = |flags, page| mmap(&process, 0, PAGE, abi::PROT_READ, flags, -1, page);
    assert_eq!(map(PRIVATE, AT + 1), Err(Errno::EINVAL), "misaligned");
    assert_eq!(map(PRIVATE, AT + PAGE), Err(Errno::EFAULT), "not mapped");
    assert_eq!(map(PRIVATE, 1 << 63), Err(Errno::EFAULT), "not even an address");
    assert_eq!(map(abi::MAP_SHARED | abi::MAP_REFPAGE, AT), Err(Errno::EINVAL), "shared");
    assert_eq!(map(PRIVATE | abi::MAP_GROWSDOWN, AT), Err(Errno::EINVAL), "a stack");
    process.map(1, 1, abi::PROT_NONE);
    assert_eq!(map(PRIVATE, AT + PAGE), Err(Errno::EFAULT), "not readable");
    assert_eq!(mmap(&process, 0, 0, abi::PROT_READ, PRIVATE, -1, AT), Err(Errno::EINVAL), "of no length");
    assert_eq!(map(PRIVATE, AT), map(PRIVATE, AT).map(|second| second + PAGE), "and what is not");
}

#[test]
fn a_pattern_repeats() {
    let mut process = process(0);
    assert_eq!(process.space.write(VirtAddr(AT + 16), b"0123456789abcdef"), 16);
    let create = |content, size, flags| refpage_create(&process, content, size, flags).map(drop);
    assert_eq!(create(AT + 16, 16, 1), Err(Errno::EINVAL), "flags");
    assert_eq!(create(AT + 16, 0, 0), Err(Errno::EINVAL), "of no size");
    assert_eq!(create(AT + 16, 12, 0), Err(Errno::EINVAL), "no power of two");
    assert_eq!(create(AT, 8192, 0), Err(Errno::EINVAL), "more than a page");
    assert_eq!(create(AT + 8, 16, 0), Err(Errno::EINVAL), "misaligned");
    assert_eq!(create(AT + PAGE, 16, 0), Err(Errno::EFAULT), "not mapped");

    let reference = refpage_create(&process, AT + 16, 16, 0).expect("a reference page");
    let rights = OpenRights::READ | OpenRights::WRITE | OpenRights::EXECUTE;
    process.files.push((5, OpenFile { content: Content::Pattern(reference), rights, max_len: u64::MAX }));
    let shared = mmap(&process, 0, PAGE, abi::PROT_READ, abi::MAP_SHARED, 5, 0);
    assert_eq!(shared, Err(Errno::EINVAL));
    let at =
        mmap(&process, 0, 2 * PAGE, abi::PROT_READ, abi::MAP_PRIVATE, 5, 7 * PAGE).expect("a mapping of the pattern");
    let mut seen = [0; 40];
    assert_eq!(process.space.read(VirtAddr(at + PAGE - 20), &mut seen), 40);
    assert_eq!(&seen, b"cdef0123456789abcdef0123456789abcdef0123");
}
