//! What `/proc` shows as text: the names of areas, the memory lines of status. And the words of errors.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::backing::{Identity, Reference, Source};
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, Name, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts, Processor};

const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const READ: VmaFlags = VmaFlags::READ.union(MAY);
const RW: VmaFlags = READ.union(VmaFlags::WRITE);

/// A file of ones whose name is not a good one.
struct Odd;

impl Source for Odd {
    fn fill(&self, _index: u64, page: &mut [u8]) -> foldspace::Result<()> {
        page.fill(1);
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity { major: 8, minor: 17, inode: 4711 }
    }

    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"/a\nname of\ttwo lines\n");
    }
}

fn machine() -> (Host, Arc<AddressSpace>, Processor) {
    let host = Host::new(16 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    (host, space, processor)
}

fn map(space: &AddressSpace, start: u64, pages: u64, flags: VmaFlags, backing: Backing, page_offset: u64) {
    let placement = Placement::Fixed(VirtAddr(start));
    space.map(MapRequest { placement, len: pages * PAGE_SIZE, flags, backing, page_offset }).unwrap();
}

/// Code, data, a heap of two pages, a file, shared memory, and a stack.
fn process() -> (Host, Arc<AddressSpace>, Processor) {
    let (host, space, processor) = machine();
    let file = Object::new(host.memory(), Box::new(Odd), 9 * PAGE_SIZE).unwrap();
    let shared = Object::anonymous(host.memory(), 2 * PAGE_SIZE).unwrap();
    let code = READ | VmaFlags::EXEC;
    map(&space, 0x40_0000, 256, code, Backing::Object(Arc::clone(&file)), 0);
    map(&space, 0x50_0000, 16, RW, Backing::Anonymous, 0);
    let layout = space.layout();
    space.brk(VirtAddr(layout.start_brk.get() + 2 * PAGE_SIZE));
    map(&space, 0x7000_0000_0000, 3, READ, Backing::Object(file), 5);
    map(&space, 0x7000_0001_0000, 2, RW | VmaFlags::SHARED, Backing::Object(shared), 0);
    map(&space, 0x7000_0002_0000, 4, code, Backing::Anonymous, 0);
    map(&space, 0x7fff_fffd_e000, 32, RW | VmaFlags::GROWS_DOWN, Backing::Anonymous, 0);
    (host, space, processor)
}

#[test]
fn each_area_has_its_name() {
    let (_host, space, _processor) = process();
    let text = String::from_utf8(space.maps().text()).unwrap();
    let named: Vec<(&str, &str)> =
        text.lines().map(|line| (&line[..line.find(' ').unwrap()], line.get(73..).unwrap_or(""))).collect();
    let file = "/a\\012name of\ttwo lines\\012";
    assert_eq!(
        named,
        [
            ("00400000-00500000", file),
            ("00500000-00510000", ""),
            ("00600000-00602000", "[heap]"),
            ("700000000000-700000003000", file),
            ("700000010000-700000012000", "/dev/zero (deleted)"),
            ("700000020000-700000024000", ""),
            ("7ffffffde000-7fffffffe000", "[stack]"),
        ]
    );
    let line = text.lines().nth(3).unwrap();
    assert!(line.starts_with("700000000000-700000003000 r--p 00005000 08:11 4711 "), "{line}");
    // Line by line it is the same text.
    let (maps, mut lines, mut from) = (space.maps(), Vec::new(), VirtAddr(0));
    while let Some(next) = maps.line(from, &mut lines) {
        from = next;
    }
    assert_eq!(String::from_utf8(lines).unwrap(), text);
    // And in pieces of any size, each of whole lines.
    for bytes in [1, 100, 300, text.len(), text.len() + 1] {
        let (mut pieces, mut from) = (Vec::new(), VirtAddr(0));
        while let Some(next) = maps.lines(from, pieces.len() + bytes, &mut pieces) {
            assert_eq!(pieces.last(), Some(&b'\n'));
            from = next;
        }
        assert_eq!(String::from_utf8(pieces).unwrap(), text);
    }
    assert_eq!(maps.vmas().view().iter().count(), named.len());
}

#[test]
fn what_has_a_path_takes_no_name() {
    let (host, space, _processor) = machine();
    let zeros = Reference::zeros_of(host.memory(), Box::new(Odd));
    map(&space, 0x50_0000, 2, RW, Backing::Anonymous, 0);
    map(&space, 0x50_2000, 2, RW, Backing::Reference(zeros), 0);
    let range = PageRange::from_len(VirtAddr(0x50_0000), 4 * PAGE_SIZE).unwrap();
    let name = Name::new(b"mine").unwrap();
    assert_eq!(space.set_name(range, Some(name)), Err(Error::WrongKind));
    let text = String::from_utf8(space.maps().text()).unwrap();
    let last: Vec<&str> = text.lines().map(|line| line.get(73..).unwrap_or("")).collect();
    assert_eq!(last, ["[anon:mine]", "/a\\012name of\ttwo lines\\012"], "up to the file");
}

#[test]
fn status_counts_pages_by_kind() {
    let (_host, space, mut processor) = process();
    for page in 0..5 {
        processor.store(VirtAddr(0x50_0000 + page * PAGE_SIZE), &[1]).unwrap();
    }
    processor.store(VirtAddr(0x7000_0001_1000), &[1]).unwrap();
    let mut byte = [0];
    for page in 0..3 {
        processor.load(VirtAddr(0x7000_0000_0000 + page * PAGE_SIZE), &mut byte).unwrap();
        assert_eq!(byte, [1]);
    }
    let mut text = Vec::new();
    space.status_lines(&mut text);
    let text = String::from_utf8(text).unwrap();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        let number = line.unwrap_or_else(|| panic!("no {name} in {text}")).strip_suffix(" kB").unwrap();
        assert!(number.len() >= 8, "{number:?} is not as wide as on Linux");
        number.trim().parse::<u64>().unwrap() / 4
    };
    let mapped = 256 + 16 + 2 + 3 + 2 + 4 + 32;
    assert_eq!((value("VmSize"), value("VmPeak")), (mapped, mapped));
    assert_eq!((value("RssAnon"), value("RssShmem"), value("RssFile")), (5, 1, 3));
    assert_eq!((value("VmRSS"), value("VmHWM")), (9, 9));
    assert_eq!((value("VmData"), value("VmStk")), (16 + 2, 32));
    // What can be executed: within the program's code, and elsewhere.
    assert_eq!((value("VmExe"), value("VmLib")), (256, 4));
    assert_eq!((value("VmLck"), value("VmPin"), value("VmSwap")), (0, 0, 0));
    assert!(value("VmPTE") >= 4);
    // Peaks stay.
    space.unmap(PageRange::from_len(VirtAddr(0x50_0000), 16 * PAGE_SIZE).unwrap()).unwrap();
    let mut after = Vec::new();
    space.status_lines(&mut after);
    let after = String::from_utf8(after).unwrap();
    assert!(after.contains(&format!("VmPeak:\t{:8} kB", mapped * 4)), "{after}");
    assert!(after.contains(&format!("VmSize:\t{:8} kB", (mapped - 16) * 4)), "{after}");
    assert!(after.contains(&format!("VmHWM:\t{:8} kB", 9 * 4)), "{after}");
}

#[test]
fn addresses_with_a_meaning_can_be_moved() {
    let (_host, space, _processor) = process();
    space.update_layout(|layout| layout.start_stack = VirtAddr(0x7000_0002_1000));
    assert_eq!(space.layout().start_stack, VirtAddr(0x7000_0002_1000));
    let text = String::from_utf8(space.maps().text()).unwrap();
    let stacks: Vec<&str> = text.lines().filter(|line| line.ends_with("[stack]")).collect();
    assert_eq!(stacks.len(), 1);
    assert!(stacks[0].starts_with("700000020000-"), "{stacks:?}");
}

#[test]
fn every_error_has_words_of_its_own() {
    let errors = [
        Error::OutOfMemory,
        Error::NoRoom,
        Error::TooManyVmas,
        Error::BadRange,
        Error::NotMapped,
        Error::AlreadyMapped,
        Error::AccessDenied,
        Error::LockLimit,
        Error::Sealed,
        Error::CommitLimit,
        Error::WrongKind,
    ];
    let words: BTreeSet<String> = errors.iter().map(Error::to_string).collect();
    assert_eq!(words.len(), errors.len());
    assert!(words.iter().all(|words| words.len() > 8 && !words.ends_with('.')));
}
