//! prctl(PR_SET_VMA). The facts are of Linux's sources: `prctl_set_vma` in kernel/sys.c, `madvise_set_anon_name` in mm/madvise.c.

use std::sync::Arc;

use foldspace::VirtAddr;
use foldspace::backing::{Identity, Source};
use foldspace::{Object, PageRange};
use foldspace_linux::{Content, Errno, OpenFile, OpenRights, abi, prctl_set_vma};

use super::{AT, PAGE, Process};

/// A page with strings, below what is named.
const STRINGS: u64 = AT - 16 * PAGE;

fn process() -> Process {
    let process = Process::new();
    let flags = abi::MAP_PRIVATE | abi::MAP_ANONYMOUS | abi::MAP_FIXED;
    let mapped = foldspace_linux::mmap(&process, STRINGS, PAGE, abi::PROT_READ | abi::PROT_WRITE, flags, -1, 0);
    assert_eq!(mapped, Ok(STRINGS));
    process
}

/// Puts a string into the page of strings, so that it ends with it; returns its address.
fn string(process: &Process, bytes: &[u8]) -> u64 {
    let address = STRINGS + PAGE - bytes.len() as u64;
    assert_eq!(process.space.write(VirtAddr(address), bytes), bytes.len());
    address
}

/// The names of the areas from [`AT`] on.
fn names(process: &Process) -> Vec<(u64, u64, Option<String>)> {
    let version = process.space.vmas();
    let range = PageRange::from_len(VirtAddr(AT), 1 << 30).expect("pages");
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).expect("ASCII");
    let area = |vma: &foldspace::vma::Vma| {
        let page = |address: VirtAddr| (address.get() - AT) / PAGE;
        (page(vma.start()), page(vma.end()), vma.name.as_ref().map(|text| name(text)))
    };
    version.view().range(range).map(area).collect()
}

#[test]
fn arguments_are_checked_in_linuxs_order() {
    let process = process();
    process.map(0, 4, abi::PROT_READ);
    let good = string(&process, b"heap\0");
    let unreadable = AT - PAGE;
    let set = |option, address, len, name| prctl_set_vma(&process, option, address, len, name);
    // The option before the name,
    assert_eq!(set(1, AT, PAGE, unreadable), Err(Errno::EINVAL));
    assert_eq!(set(1 << 32, AT, PAGE, good), Err(Errno::EINVAL));
    // the name before the address,
    assert_eq!(set(0, AT + 1, PAGE, unreadable), Err(Errno::EFAULT));
    assert_eq!(set(0, AT + 1, PAGE, good), Err(Errno::EINVAL));
    // and lengths that wrap, or are nothing.
    assert_eq!(set(0, AT, u64::MAX, good), Err(Errno::EINVAL));
    assert_eq!(set(0, AT, 0u64.wrapping_sub(AT), good), Err(Errno::EINVAL));
    assert_eq!(set(0, AT, (1 << 63) - AT, good), Err(Errno::ENOMEM), "named, and a hole after it");
    assert_eq!(set(0, 0, 0, good), Ok(()));
    assert_eq!(set(0, AT + 64 * PAGE, PAGE, good), Err(Errno::ENOMEM));
    assert_eq!(set(0, 1 << 63, PAGE, good), Err(Errno::ENOMEM));
}

#[test]
fn names_are_printable_and_short() {
    let process = process();
    process.map(0, 4, abi::PROT_READ);
    let name = |bytes: &[u8]| prctl_set_vma(&process, 0, AT, PAGE, string(&process, bytes));
    let mut longest = [b'x'; 80];
    longest[79] = 0;
    assert_eq!(name(&longest), Ok(()));
    assert_eq!(name(&[b'x'; 80]), Err(Errno::EINVAL), "no end within 80 bytes");
    assert_eq!(name(&[b'x'; 79]), Err(Errno::EFAULT), "nor before what cannot be read");
    for byte in 1..=255 {
        let allowed = (0x20..0x7f).contains(&byte) && !b"\\`$[]".contains(&byte);
        assert_eq!(name(&[b'a', byte, 0]).is_ok(), allowed, "{byte:#x}");
    }
    assert_eq!(name(b"\0"), Ok(()), "a name of nothing is one");
    assert_eq!(names(&process)[0], (0, 1, Some(String::new())));
    assert_eq!(prctl_set_vma(&process, 0, AT, PAGE, 0), Ok(()), "no name is none");
    assert_eq!(names(&process), [(0, 4, None)]);
}

/// An empty file.
struct Nothing;

impl Source for Nothing {
    fn fill(&self, _: u64, _: &mut [u8]) -> foldspace::Result<()> {
        Ok(())
    }
    fn identity(&self) -> Identity {
        Identity::default()
    }
    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"/nothing");
    }
}

#[test]
fn holes_are_passed_over_and_files_end_it() {
    let mut process = process();
    let object: Arc<Object> = Object::new(process.space.memory(), Box::new(Nothing), PAGE).expect("an object");
    let rights = OpenRights::READ | OpenRights::EXECUTE;
    process.files.push((3, OpenFile { content: Content::Object(object), rights, max_len: u64::MAX }));
    process.map(0, 2, abi::PROT_READ);
    process.map(3, 2, abi::PROT_READ);
    let flags = abi::MAP_PRIVATE | abi::MAP_FIXED;
    let file = foldspace_linux::mmap(&process, AT + 5 * PAGE, PAGE, abi::PROT_READ, flags, 3, 0);
    assert_eq!(file, Ok(AT + 5 * PAGE));
    process.map(6, 1, abi::PROT_READ);
    let named = |name: &str| Some(name.to_owned());

    let first = string(&process, b"first\0");
    assert_eq!(prctl_set_vma(&process, 0, AT + PAGE, 3 * PAGE, first), Err(Errno::ENOMEM));
    let after =
        [(0, 1, None), (1, 2, named("first")), (3, 4, named("first")), (4, 5, None), (5, 6, None), (6, 7, None)];
    assert_eq!(names(&process), after);

    let second = string(&process, b"second\0");
    assert_eq!(prctl_set_vma(&process, 0, AT + 3 * PAGE, 4 * PAGE, second), Err(Errno::EBADF));
    let after = [(0, 1, None), (1, 2, named("first")), (3, 5, named("second")), (5, 6, None), (6, 7, None)];
    assert_eq!(names(&process), after);
}
