//! The ten ways in which VMAs become one or two (Linux's `vma_merge_*` and `split_vma` in `mm/vma.c`), for everything that tells VMAs apart.
//!
//! A letter is a page, what it is says which attributes its VMA has; `|` is a boundary between VMAs, a dot an unmapped page.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use foldspace::addr::PAGE_SIZE;
use foldspace::backing::Reference;
use foldspace::space::{Advice, MapRequest, Placement};
use foldspace::vma::{Backing, Name, Version, Vma, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::threads::rounds;

/// Pages before the change; the change gives pages `from..until` what `to` stands for; pages afterwards, if equals may merge and if nothing may.
struct Case {
    name: &'static str,
    before: &'static str,
    from: u64,
    until: u64,
    to: char,
    merged: &'static str,
    apart: &'static str,
}

const fn case(
    name: &'static str,
    before: &'static str,
    (from, until, to): (u64, u64, char),
    merged: &'static str,
    apart: &'static str,
) -> Case {
    Case { name, before, from, until, to, merged, apart }
}

const CASES: [Case; 10] = [
    case("merge both", "AA|BB|AA", (2, 4, 'A'), "AAAAAA", "AA|AA|AA"),
    case("merge left, full", "AA|BB|CC", (2, 4, 'A'), "AAAA|CC", "AA|AA|CC"),
    case("merge left, partial", "AA|BBBB", (2, 3, 'A'), "AAA|BBB", "AA|A|BBB"),
    case("merge right, full", "CC|BB|AA", (2, 4, 'A'), "CC|AAAA", "CC|AA|AA"),
    case("merge right, partial", "BBBB|AA", (3, 4, 'A'), "BBB|AAA", "BBB|A|AA"),
    case("new, both", "AA..AA", (2, 4, 'A'), "AAAAAA", "AA|AA|AA"),
    case("new, left", "AA..BB", (2, 3, 'A'), "AAA.BB", "AA|A.BB"),
    case("new, right", "BB..AA", (3, 4, 'A'), "BB.AAA", "BB.A|AA"),
    case("split below", "BBBB", (0, 2, 'A'), "AA|BB", "AA|BB"),
    case("split above", "BBBB", (2, 4, 'A'), "BB|AA", "BB|AA"),
];

const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(MAY);
/// The last-level table that holds the pages ends between page 2 and page 3.
const AT: u64 = 0x4000_0000 - 3 * PAGE_SIZE;

fn page(number: u64) -> VirtAddr {
    VirtAddr(AT + number * PAGE_SIZE)
}

fn pages(from: u64, until: u64) -> PageRange {
    PageRange::new(page(from), page(until)).unwrap()
}

/// What tells VMAs apart.
trait Attribute: Sync {
    /// Maps pages that are like the letter.
    fn map(&self, space: &AddressSpace, range: PageRange, letter: char);
    /// Makes mapped pages like the letter.
    fn change(&self, space: &AddressSpace, range: PageRange, letter: char) {
        self.map(space, range, letter);
    }
    /// Whether [`Attribute::change`] keeps what was stored.
    fn keeps_content(&self) -> bool {
        false
    }
    /// What a VMA is like.
    fn letter(&self, vma: &Vma) -> char;
}

fn map(space: &AddressSpace, range: PageRange, flags: VmaFlags, backing: Backing, page_offset: u64) {
    let (placement, len) = (Placement::Fixed(range.start()), range.len());
    space.map(MapRequest { placement, len, flags, backing, page_offset }).unwrap();
}

fn show(attribute: &dyn Attribute, version: &Version) -> String {
    let (mut text, mut end) = (String::new(), page(0));
    for vma in version.view().iter() {
        let hole = (vma.start().get() - end.get()) / PAGE_SIZE;
        text += &".".repeat(hole as usize);
        if hole == 0 && end > page(0) {
            text.push('|');
        }
        text.extend((0..vma.range.pages()).map(|_| attribute.letter(vma)));
        end = vma.end();
    }
    text
}

/// Maps what a case begins with: each VMA as it is shown, by one call.
fn prepare(attribute: &dyn Attribute, space: &AddressSpace, before: &str) {
    let mut at = 0;
    for run in before.split('|').flat_map(|run| run.split_inclusive("..")) {
        let mapped = run.trim_end_matches('.');
        let len = mapped.len() as u64;
        attribute.map(space, pages(at, at + len), mapped.chars().next().unwrap());
        at += run.len() as u64;
    }
    assert_eq!(show(attribute, &space.vmas()), before);
}

fn is_new(case: &Case) -> bool {
    case.before.contains('.')
}

fn carry_out(attribute: &dyn Attribute, space: &AddressSpace, case: &Case) {
    let range = pages(case.from, case.until);
    if is_new(case) {
        attribute.map(space, range, case.to);
    } else {
        attribute.change(space, range, case.to);
    }
}

/// Each page holds its number where it can be stored to; zero where it cannot.
fn contents(space: &AddressSpace) -> Vec<Option<u8>> {
    let read = |number| {
        let mut byte = [0];
        (space.read(page(number), &mut byte) == 1).then_some(byte[0])
    };
    (0..6).map(read).collect()
}

fn all_cases(attribute: &dyn Attribute, host: &Host, expected: impl Fn(&Case) -> &'static str) {
    for case in &CASES {
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        prepare(attribute, &space, case.before);
        for number in 0..6 {
            space.write_forced(page(number), &[number as u8 + 1]);
        }
        let before = contents(&space);
        let relative = space.fork().unwrap();
        carry_out(attribute, &space, case);
        assert_eq!(show(attribute, &space.vmas()), expected(case), "{}", case.name);
        assert_eq!(show(attribute, &relative.vmas()), case.before, "{}: a child has its own", case.name);
        if attribute.keeps_content() && !is_new(case) {
            // Some pages can be read before, or after, only.
            let agree = before.iter().zip(contents(&space)).all(|(a, b)| a.is_none() || b.is_none() || *a == b);
            assert!(agree, "{}: {before:?}, then {:?}", case.name, contents(&space));
        }
        host.memory().check(&[&space, &relative], &[]).unwrap();
    }
}

/// A reader of maps sees the VMAs as they were or as they are, whatever moment he looks at.
fn readers_see_before_or_after(attribute: &dyn Attribute, host: &Host) {
    for case in &CASES {
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        prepare(attribute, &space, case.before);
        let (stop, looks) = (AtomicBool::new(false), AtomicU64::new(0));
        let seen = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = BTreeSet::new();
                while !stop.load(Ordering::Relaxed) {
                    seen.insert(show(attribute, space.maps().vmas()));
                    looks.fetch_add(1, Ordering::Relaxed);
                }
                seen
            });
            let mut round = 0;
            // Until he has looked often enough while things changed.
            while round < rounds(200) || looks.load(Ordering::Relaxed) < 100 {
                carry_out(attribute, &space, case);
                let range = pages(case.from, case.until);
                if is_new(case) {
                    space.unmap(range).unwrap();
                } else {
                    attribute.change(&space, range, case.before.replace('|', "").as_bytes()[case.from as usize].into());
                }
                round += 1;
            }
            carry_out(attribute, &space, case);
            stop.store(true, Ordering::Relaxed);
            reader.join().unwrap()
        });
        let allowed = [case.before, case.merged].map(String::from);
        assert!(seen.iter().all(|text| allowed.contains(text)), "{}: a reader saw {seen:?}", case.name);
    }
}

/// mprotect.
struct Permissions;

impl Permissions {
    fn of(letter: char) -> VmaFlags {
        match letter {
            'A' => VmaFlags::READ | VmaFlags::WRITE,
            'B' => VmaFlags::READ,
            _ => VmaFlags::empty(),
        }
    }
}

impl Attribute for Permissions {
    fn map(&self, space: &AddressSpace, range: PageRange, letter: char) {
        map(space, range, Permissions::of(letter) | MAY, Backing::Anonymous, 0);
    }
    fn change(&self, space: &AddressSpace, range: PageRange, letter: char) {
        space.protect(range, Permissions::of(letter)).unwrap();
    }
    fn keeps_content(&self) -> bool {
        true
    }
    fn letter(&self, vma: &Vma) -> char {
        let is = |letter: &char| Permissions::of(*letter) == vma.flags & VmaFlags::ACCESS;
        ['A', 'B', 'C'].into_iter().find(is).unwrap()
    }
}

/// madvise: what a VMA is to be like.
struct Advised;

impl Advised {
    fn of(letter: char) -> VmaFlags {
        match letter {
            'A' => VmaFlags::DONT_DUMP,
            'B' => VmaFlags::empty(),
            _ => VmaFlags::RANDOM,
        }
    }
}

impl Attribute for Advised {
    fn map(&self, space: &AddressSpace, range: PageRange, letter: char) {
        map(space, range, RW | Advised::of(letter), Backing::Anonymous, 0);
    }
    fn change(&self, space: &AddressSpace, range: PageRange, letter: char) {
        let advice = if letter == 'A' { Advice::DontDump } else { Advice::DoDump };
        space.advise(range, advice).unwrap();
    }
    fn keeps_content(&self) -> bool {
        true
    }
    fn letter(&self, vma: &Vma) -> char {
        let is = |letter: &char| Advised::of(*letter) == vma.flags & (VmaFlags::DONT_DUMP | VmaFlags::RANDOM);
        ['A', 'B', 'C'].into_iter().find(is).unwrap()
    }
}

/// prctl(PR_SET_VMA): A has no name, as new memory.
struct Named;

impl Named {
    fn of(letter: char) -> Option<Name> {
        match letter {
            'A' => None,
            'B' => Some(Name::from(*b"both")),
            _ => Some(Name::from(*b"")),
        }
    }
}

impl Attribute for Named {
    fn map(&self, space: &AddressSpace, range: PageRange, letter: char) {
        map(space, range, RW, Backing::Anonymous, 0);
        if letter != 'A' {
            self.change(space, range, letter);
        }
    }
    fn change(&self, space: &AddressSpace, range: PageRange, letter: char) {
        // Each time a copy of its own: names are compared, not who has them.
        space.set_name(range, Named::of(letter)).unwrap();
    }
    fn keeps_content(&self) -> bool {
        true
    }
    fn letter(&self, vma: &Vma) -> char {
        ['A', 'B', 'C'].into_iter().find(|letter| Named::of(*letter) == vma.name).unwrap()
    }
}

/// Reference pages: a letter is the page's content.
struct References([Arc<Reference>; 3]);

impl References {
    fn new(host: &Host) -> References {
        References([b'A', b'B', b'C'].map(|byte| Reference::new(host.memory(), &[byte]).unwrap()))
    }
}

impl Attribute for References {
    fn map(&self, space: &AddressSpace, range: PageRange, letter: char) {
        let reference = &self.0[letter as usize - 'A' as usize];
        map(space, range, RW, Backing::Reference(reference.clone()), 0);
    }
    fn letter(&self, vma: &Vma) -> char {
        let is = |reference: &Arc<Reference>| matches!(&vma.backing, Backing::Reference(other) if Arc::ptr_eq(reference, other));
        ['A', 'B', 'C'][self.0.iter().position(is).unwrap()]
    }
}

/// Letters are content of which no two mappings are the same reference, although it looks the same.
struct DifferentReferences;

impl Attribute for DifferentReferences {
    fn map(&self, space: &AddressSpace, range: PageRange, letter: char) {
        // The letter, and which page it is for.
        let number = (range.start().get() - AT) / PAGE_SIZE;
        let reference = Reference::new(space.memory(), &[letter as u8, number as u8]).unwrap();
        map(space, range, RW, Backing::Reference(reference), 0);
    }
    fn letter(&self, vma: &Vma) -> char {
        let Backing::Reference(reference) = &vma.backing else { panic!("{vma:?}") };
        let mut content = [0; PAGE_SIZE as usize];
        reference.read(&mut content);
        content[0].into()
    }
}

/// One object; letters are permissions, and the pages of it are where `offset` says.
struct File {
    object: Arc<Object>,
    offset: fn(u64) -> u64,
    sharing: VmaFlags,
}

impl Attribute for File {
    fn map(&self, space: &AddressSpace, range: PageRange, letter: char) {
        let number = (range.start().get() - AT) / PAGE_SIZE;
        let flags = Permissions::of(letter) | MAY | self.sharing;
        map(space, range, flags, Backing::Object(self.object.clone()), (self.offset)(number));
    }
    fn letter(&self, vma: &Vma) -> char {
        Permissions.letter(vma)
    }
}

/// As [`File`], changed by mprotect.
struct ProtectedFile(File);

impl Attribute for ProtectedFile {
    fn map(&self, space: &AddressSpace, range: PageRange, letter: char) {
        self.0.map(space, range, letter);
    }
    fn change(&self, space: &AddressSpace, range: PageRange, letter: char) {
        Permissions.change(space, range, letter);
    }
    fn keeps_content(&self) -> bool {
        true
    }
    fn letter(&self, vma: &Vma) -> char {
        Permissions.letter(vma)
    }
}

/// Three objects: letters.
struct Files([Arc<Object>; 3]);

impl Attribute for Files {
    fn map(&self, space: &AddressSpace, range: PageRange, letter: char) {
        let number = (range.start().get() - AT) / PAGE_SIZE;
        map(space, range, RW, Backing::Object(self.0[letter as usize - 'A' as usize].clone()), number);
    }
    fn letter(&self, vma: &Vma) -> char {
        let is = |object: &Arc<Object>| matches!(&vma.backing, Backing::Object(other) if Arc::ptr_eq(object, other));
        ['A', 'B', 'C'][self.0.iter().position(is).unwrap()]
    }
}

fn object(host: &Host) -> Arc<Object> {
    Object::anonymous(host.memory(), 64 * PAGE_SIZE).unwrap()
}

fn host() -> Host {
    Host::new(8 << 20).unwrap()
}

fn if_equal(case: &Case) -> &'static str {
    case.merged
}

fn never(case: &Case) -> &'static str {
    case.apart
}

#[test]
fn permissions_merge_and_split() {
    all_cases(&Permissions, &host(), if_equal);
    readers_see_before_or_after(&Permissions, &host());
}

#[test]
fn advice_merges_and_splits() {
    all_cases(&Advised, &host(), if_equal);
    readers_see_before_or_after(&Advised, &host());
}

#[test]
fn names_merge_and_split() {
    all_cases(&Named, &host(), if_equal);
    readers_see_before_or_after(&Named, &host());
}

#[test]
fn the_same_reference_merges_and_splits() {
    let host = host();
    all_cases(&References::new(&host), &host, if_equal);
    readers_see_before_or_after(&References::new(&host), &host);
}

#[test]
fn different_references_never_merge() {
    all_cases(&DifferentReferences, &host(), never);
}

#[test]
fn files_merge_where_their_offsets_go_on() {
    let host = host();
    for sharing in [VmaFlags::empty(), VmaFlags::SHARED] {
        let contiguous = || File { object: object(&host), offset: |number| number + 7, sharing };
        all_cases(&contiguous(), &host, if_equal);
        all_cases(&ProtectedFile(contiguous()), &host, if_equal);
        readers_see_before_or_after(&contiguous(), &host);
        let files = Files([object(&host), object(&host), object(&host)]);
        all_cases(&files, &host, if_equal);
    }
}

#[test]
fn files_stay_apart_where_their_offsets_do_not() {
    let host = host();
    for sharing in [VmaFlags::empty(), VmaFlags::SHARED] {
        // Always the same page; backwards; one too far.
        for offset in [|_| 3, |number| 40 - number, |number| 2 * number] {
            let file = || File { object: object(&host), offset, sharing };
            all_cases(&file(), &host, never);
        }
    }
}

/// brk: the heap grows and shrinks as one VMA; what follows it, and what was put right behind it, keeps its own.
#[test]
fn the_heap_extends_what_it_has() {
    let host = host();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let start = Layouts::process().start_brk.page_ceil().unwrap();
    let at = |pages: u64| VirtAddr(start.get() + pages * PAGE_SIZE);
    let maps = || -> Vec<String> {
        String::from_utf8(space.maps().text()).unwrap().lines().map(|line| line.trim_end().to_owned()).collect()
    };
    let line = |from: u64, until: u64, rest: &str| format!("{:08x}-{:08x} {rest}", at(from).get(), at(until).get());
    const HEAP: &str = "rw-p 00000000 00:00 0                                  [heap]";
    assert_eq!(space.brk(at(2)), at(2));
    assert_eq!(maps(), [line(0, 2, HEAP)]);
    assert_eq!(space.brk(at(5)), at(5));
    assert_eq!(maps(), [line(0, 5, HEAP)], "new, left");
    space.protect(PageRange::new(at(3), at(5)).unwrap(), VmaFlags::READ).unwrap();
    const READ_ONLY: &str = "r--p 00000000 00:00 0                                  [heap]";
    assert_eq!(maps(), [line(0, 3, HEAP), line(3, 5, READ_ONLY)], "split above");
    assert_eq!(space.brk(at(6)), at(6));
    assert_eq!(maps(), [line(0, 3, HEAP), line(3, 5, READ_ONLY), line(5, 6, HEAP)], "nothing equal to extend");
    space.protect(PageRange::new(at(3), at(5)).unwrap(), VmaFlags::READ | VmaFlags::WRITE).unwrap();
    assert_eq!(maps(), [line(0, 6, HEAP)], "merge both");
    assert_eq!(space.brk(at(4)), at(4));
    assert_eq!(maps(), [line(0, 4, HEAP)]);
}
