//! What `/proc` says of pages, beside a count of every path to every page.

use std::collections::{BTreeMap, HashMap};

use foldspace::addr::PAGE_SIZE;
use foldspace::proc::{FrameNumbers, PagemapEntry};
use foldspace::vma::{Backing, Vma, VmaFlags};
use foldspace::{AddressSpace, Frame, PageRange, VirtAddr};
use foldspace_hosted::{Cause, Host, Leaf};

/// Pages of an area of which the pagemap and mincore are asked for, at most.
const MOST_ASKED: u64 = 1200;

/// What the tables of some address spaces show, counted page by page.
pub struct Shown {
    /// The pages of each space.
    pub leaves: Vec<Vec<Leaf>>,
    /// How often each frame is mapped.
    pub mapped: HashMap<Frame, u64>,
}

impl Shown {
    /// Follows every path of all spaces on a memory.
    pub fn count(host: &Host, spaces: &[&AddressSpace]) -> Shown {
        let leaves: Vec<Vec<Leaf>> = spaces.iter().map(|space| host.leaves(space)).collect();
        let mut mapped = HashMap::new();
        for leaf in leaves.iter().flatten() {
            *mapped.entry(leaf.frame).or_default() += 1;
        }
        Shown { leaves, mapped }
    }

    fn within(&self, space: usize, range: PageRange) -> &[Leaf] {
        let leaves = &self.leaves[space];
        let first = leaves.partition_point(|leaf| leaf.addr < range.start());
        let end = leaves.partition_point(|leaf| leaf.addr < range.end());
        &leaves[first..end]
    }
}

/// The fields of one VMA in smaps, or of the rollup.
pub type Fields = BTreeMap<String, u64>;

/// Takes text of smaps apart: the first line and the fields of each VMA.
pub fn parse(text: &str) -> Vec<(String, Fields)> {
    let mut found: Vec<(String, Fields)> = Vec::new();
    for line in text.lines() {
        match line.split_once(':') {
            Some((name, value)) if !name.contains(' ') => {
                let value = value.trim().trim_end_matches(" kB").parse();
                if let (Ok(value), Some((_, fields))) = (value, found.last_mut()) {
                    fields.insert(name.to_owned(), value);
                }
            }
            _ => found.push((line.to_owned(), Fields::new())),
        }
    }
    found
}

/// Sums of what smaps tells, in bytes; proportional ones with twelve binary places.
#[derive(Default)]
struct Sums(BTreeMap<&'static str, u64>);

impl Sums {
    fn add(&mut self, leaf: &Leaf, mapped: u64, shared_memory: bool, flags: VmaFlags) {
        let share = (PAGE_SIZE << 12) / mapped;
        let mut give = |name, value: u64| *self.0.entry(name).or_default() += value;
        give("Rss", PAGE_SIZE);
        give("Pss", share);
        give(
            if !leaf.object {
                "Pss_Anon"
            } else if shared_memory {
                "Pss_Shmem"
            } else {
                "Pss_File"
            },
            share,
        );
        give("Pss_Dirty", if leaf.dirty { share } else { 0 });
        give("Locked", if flags.contains(VmaFlags::LOCKED) { share } else { 0 });
        give("Referenced", if leaf.accessed { PAGE_SIZE } else { 0 });
        give("Anonymous", if leaf.object { 0 } else { PAGE_SIZE });
        give("LazyFree", if leaf.object || leaf.dirty { 0 } else { PAGE_SIZE });
        let kind = match (mapped > 1, leaf.dirty) {
            (true, true) => "Shared_Dirty",
            (true, false) => "Shared_Clean",
            (false, true) => "Private_Dirty",
            (false, false) => "Private_Clean",
        };
        give(kind, PAGE_SIZE);
    }

    fn compare(&self, fields: &Fields, what: &str) {
        for (name, value) in fields {
            if matches!(name.as_str(), "Size" | "KernelPageSize" | "MMUPageSize") {
                continue;
            }
            let expected = self.0.get(name.as_str()).copied().unwrap_or(0) >> 10;
            let places = if name.contains("ss_") || name == "Pss" || name == "Locked" { 12 } else { 0 };
            assert_eq!(*value, expected >> places, "{name} of {what}");
        }
    }
}

/// Compares smaps, the rollup, pagemap and mincore of every space with what the tables show. `is_lost` says of a page of a space whether it was lost with its memory.
pub fn verify(host: &Host, spaces: &[&AddressSpace], is_lost: impl Fn(usize, VirtAddr) -> bool) -> Shown {
    let shown = Shown::count(host, spaces);
    for (number, space) in spaces.iter().enumerate() {
        let text = String::from_utf8(space.smaps().text(space).expect("heap")).expect("text");
        let told = parse(&text);
        let vmas = space.vmas();
        assert_eq!(told.len(), vmas.view().iter().count(), "VMAs in smaps:\n{text}");
        let mut all = Sums::default();
        for (vma, (line, fields)) in vmas.view().iter().zip(&told) {
            let shared_memory = matches!(&vma.backing, Backing::Object(object) if object.is_anonymous());
            let mut sums = Sums::default();
            for leaf in shown.within(number, vma.range) {
                let stored_to =
                    matches!(&vma.backing, Backing::Object(object) if object.is_dirty(page_of(vma, leaf.addr)));
                let leaf = &Leaf { dirty: leaf.dirty || leaf.object && stored_to, ..*leaf };
                for sums in [&mut sums, &mut all] {
                    sums.add(leaf, shown.mapped[&leaf.frame], shared_memory, vma.flags);
                }
            }
            sums.compare(fields, line);
            let asked =
                vma.range.start().get()..vma.range.end().get().min(vma.range.start().get() + MOST_ASKED * PAGE_SIZE);
            if let Some(asked) = PageRange::new(VirtAddr(asked.start), VirtAddr(asked.end)) {
                verify_pages(host, space, asked, &shown, number, &|addr| is_lost(number, addr));
            }
        }
        let mut rollup = Vec::new();
        space.smaps_rollup(&mut rollup).expect("heap");
        let rollup = parse(&String::from_utf8(rollup).expect("text"));
        assert!(rollup.len() == 1 && rollup[0].1.len() == 22, "{rollup:?}");
        all.compare(&rollup[0].1, "the rollup");
    }
    shown
}

/// The page of an object that an area shows at an address.
pub fn page_of(vma: &Vma, addr: VirtAddr) -> u64 {
    vma.page_offset + (addr.get() - vma.start().get()) / PAGE_SIZE
}

/// Compares pagemap and mincore of pages of one VMA.
fn verify_pages(
    host: &Host,
    space: &AddressSpace,
    range: PageRange,
    shown: &Shown,
    number: usize,
    is_lost: &dyn Fn(VirtAddr) -> bool,
) {
    let mut entries = vec![PagemapEntry(u64::MAX); range.pages() as usize];
    space.pagemap(range, FrameNumbers::Shown, &mut entries).expect("heap");
    let mut resident = vec![2; range.pages() as usize];
    assert_eq!(space.mincore(range, &mut resident), Ok(resident.len()), "mincore of {range:?}");
    let leaves: HashMap<VirtAddr, &Leaf> = shown.within(number, range).iter().map(|leaf| (leaf.addr, leaf)).collect();
    let is_private = |addr| space.vmas().view().find(addr).is_some_and(|vma| matches!(vma.backing, Backing::Anonymous));
    for (page, (entry, resident)) in entries.iter().zip(resident).enumerate() {
        let addr = VirtAddr(range.start().get() + page as u64 * PAGE_SIZE);
        let expected = match (leaves.get(&addr), host.translate(space, addr)) {
            (Some(leaf), _) => {
                let mut flags = PagemapEntry::PRESENT;
                flags |= if leaf.object { PagemapEntry::FILE } else { 0 };
                flags |= if shown.mapped[&leaf.frame] == 1 { PagemapEntry::EXCLUSIVE } else { 0 };
                flags | u64::from(leaf.frame.0)
            }
            // Zeros.
            (None, Ok(translation)) => PagemapEntry::PRESENT | u64::from(translation.frame.0),
            // A guard is a swap entry on Linux: 6.18 shows these bits.
            (None, Err(Cause::NotPresent(_))) if space.is_guarded(addr) => 0x4400_0000_0000_009f,
            (None, Err(Cause::NotPresent(_))) if is_lost(addr) => PagemapEntry::SWAPPED,
            (None, Err(Cause::NotPresent(_))) => 0,
            (None, Err(cause)) => panic!("{addr}: {cause:?}"),
        };
        assert_eq!(entry.0, expected, "pagemap at {addr}: {:#x}, not {expected:#x}", entry.0);
        // What is lost counts as being in memory (`mincore_pte_range` in Linux's `mm/mincore.c`).
        let present = expected & PagemapEntry::PRESENT != 0 || expected == PagemapEntry::SWAPPED;
        if present || is_private(addr) {
            assert_eq!(resident == 1, present, "mincore at {addr}");
        }
    }
}
