//! Invariants 1 and 4: permissions, and equal views.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Verdict, describe, ensure};
use crate::addr::{Level, PAGE_SHIFT, PageRange, USER_END, VirtAddr};
use crate::backing::Block;
use crate::frame::{Frame, Memory};
use crate::space::AddressSpace;
use crate::table::Entry;
use crate::vma::{Backing, ProtectionKey, Version, Vma, VmaFlags};

/// A path from a root, as far as it has been walked.
#[derive(Clone, Copy)]
struct Path {
    base: u64,
    writable: bool,
    exclusive: bool,
    /// NO_EXECUTE, if a link on the way says so.
    forbidden: u64,
}

/// What of a VMA decides what may be installed, within a span. Bytes count from the start of the span: a table that mremap has moved is linked
/// at different addresses.
#[derive(PartialEq, Debug)]
struct View {
    start: u64,
    end: u64,
    flags: VmaFlags,
    key: ProtectionKey,
    source: Source,
}

/// What a VMA shows: zeros, a reference page, an object from a page on. Reference pages and objects by address.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Source {
    Zeros,
    Reference(usize),
    Object(usize, u64),
}

const DECIDING: VmaFlags = VmaFlags::ACCESS.union(VmaFlags::SHARED);

impl Memory {
    /// Invariant 1, and that each leaf is what its VMA says.
    pub(super) fn check_permissions(&self, space: &AddressSpace) -> Verdict {
        let vmas = space.vmas();
        let start = Path { base: 0, writable: true, exclusive: true, forbidden: 0 };
        self.check_below(space, &vmas, space.root(), Level::L4, start)
    }

    fn check_below(&self, space: &AddressSpace, vmas: &Version, table: Frame, level: Level, path: Path) -> Verdict {
        for (index, entry) in self.user_entries(table, level) {
            let base = path.base + index.get() as u64 * level.entry_span();
            let writable = path.writable && entry.is_writable();
            if entry.is_marker() {
                let (who, known) = (describe(space), space.may_have_guards() || entry.is_poison());
                ensure!(known, "{who}: a guard at {base:#x}, and nobody was to put one there");
                ensure!(vmas.view().find(VirtAddr(base)).is_some(), "{who}: a guard at {base:#x}, no VMA covers it");
                continue;
            }
            if entry.is_reference() {
                let who = describe(space);
                let end = VirtAddr(base + level.entry_span());
                ensure!(
                    self.is_reference_of(vmas, VirtAddr(base), end, level, entry),
                    "{who}: a reference at {base:#x} ({level:?}) reaches outside its VMA, or is another's"
                );
                continue;
            }
            let refs = self.record(entry.frame()).refs();
            match level.below() {
                Some(below) => {
                    ensure!(
                        !entry.is_writable() || refs == 1,
                        "{}: the slot at {base:#x} ({level:?}) lets a table with {refs} parents be written",
                        describe(space)
                    );
                    if entry.is_object() {
                        let end = VirtAddr(base + level.entry_span());
                        ensure!(
                            level == Level::L2 && is_table_of(vmas, VirtAddr(base), end, entry.frame()),
                            "{}: a table of an object at {base:#x} reaches outside its VMA, or is another's",
                            describe(space)
                        );
                    }
                    let exclusive = path.exclusive && refs == 1;
                    let forbidden = path.forbidden | (entry.bits() & Entry::NO_EXECUTE);
                    self.check_below(space, vmas, entry.frame(), below, Path { base, writable, exclusive, forbidden })?;
                }
                None => {
                    let entry = entry.with(path.forbidden);
                    self.check_leaf(space, vmas, VirtAddr(base), entry, Path { base, writable, ..path })?;
                }
            }
        }
        Ok(())
    }

    /// Whether all of `start..end`, where a table of `level` has a reference, is mapped, and of that reference page. By several VMAs, perhaps:
    /// a name given to a part changes no table.
    fn is_reference_of(&self, vmas: &Version, start: VirtAddr, end: VirtAddr, level: Level, entry: Entry) -> bool {
        let mut reached = start;
        for vma in vmas.view().iter_from(start) {
            if reached >= end || vma.start() > reached {
                break;
            }
            let tables = vma.backing.reference_tables(self);
            let key = vma.tag.key();
            // Higher up, a link says nothing of keys.
            let keyed =
                entry.bits() & Entry::KEY == Entry::key(key) && (level == Level::L1 || key == ProtectionKey::DEFAULT);
            if !keyed || tables.is_none_or(|tables| tables.at(level) != entry.frame()) {
                return false;
            }
            reached = vma.end();
        }
        reached >= end
    }

    fn check_leaf(&self, space: &AddressSpace, vmas: &Version, addr: VirtAddr, entry: Entry, path: Path) -> Verdict {
        let who = describe(space);
        let Some(vma) = vmas.view().find(addr) else {
            ensure!(false, "{who}: {addr} is present, and no VMA covers it");
            return Ok(());
        };
        if path.writable {
            let frame = self.record(entry.frame());
            ensure!(path.exclusive, "{who}: {addr} can be written through a shared table");
            ensure!(vma.flags.contains(VmaFlags::WRITE), "{who}: {addr} can be written, its VMA does not allow it");
            if entry.is_object() {
                ensure!(
                    vma.flags.contains(VmaFlags::SHARED),
                    "{who}: {addr} lets an object be written by a private mapping"
                );
            } else {
                ensure!(frame.is_alone(), "{who}: {addr} can be written, its frame has {} references", frame.refs());
            }
        }
        let accessible = vma.flags.intersects(VmaFlags::ACCESS);
        ensure!(accessible || !entry.is_user(), "{who}: {addr} is accessible, its VMA allows nothing");
        ensure!(
            !entry.is_executable() || vma.flags.contains(VmaFlags::EXEC) || !entry.is_user(),
            "{who}: {addr} can be executed, its VMA does not allow it"
        );
        ensure!(
            entry.bits() & Entry::KEY == Entry::key(vma.tag.key()),
            "{who}: {addr} has not the protection key of its VMA, {:?}",
            vma.tag
        );
        ensure!(
            !entry.is_object() || matches!(vma.backing, Backing::Object(_)),
            "{who}: {addr} shows an object where none is mapped"
        );
        if let Backing::Object(object) = &vma.backing {
            // Copies that private mappings have made go with the pages past the end, too.
            let page = vma.page_at(addr);
            ensure!(!object.is_past_end(page), "{who}: {addr} is present, page {page} of an object that ends before");
            ensure!(
                !entry.is_object() || object.shows(page, entry.frame()),
                "{who}: {addr} shows a frame that its object does not have as page {page}"
            );
        }
        Ok(())
    }

    /// Invariant 4: for each table that has several parents, the views of all who reach it.
    pub(super) fn check_views(&self, spaces: &[&AddressSpace]) -> Verdict {
        let mut first: BTreeMap<Frame, (usize, Vec<View>)> = BTreeMap::new();
        for (number, space) in spaces.iter().enumerate() {
            let vmas = space.vmas();
            self.compare_views(number, spaces, &vmas, space.root(), Level::L4, 0, &mut first)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a recursive walk with its context")]
    fn compare_views(
        &self,
        number: usize,
        spaces: &[&AddressSpace],
        vmas: &Version,
        table: Frame,
        level: Level,
        base: u64,
        first: &mut BTreeMap<Frame, (usize, Vec<View>)>,
    ) -> Verdict {
        let Some(below) = level.below() else { return Ok(()) };
        for (index, entry) in
            self.user_entries(table, level).filter(|(_, entry)| !entry.is_reference() && !entry.is_object())
        {
            let at = base + index.get() as u64 * level.entry_span();
            if self.record(entry.frame()).is_shared() {
                // Below, everything is the same for all who come this way: one look is enough.
                let mine = views(vmas, at, level.entry_span());
                match first.get(&entry.frame()) {
                    Some((other, theirs)) => {
                        ensure!(
                            mine == *theirs,
                            "{} and {} share the table at {at:#x} ({below:?}), and see {mine:?} and {theirs:?} there",
                            describe(spaces[number]),
                            describe(spaces[*other])
                        );
                        continue;
                    }
                    None => {
                        first.insert(entry.frame(), (number, mine));
                    }
                }
            }
            self.compare_views(number, spaces, vmas, entry.frame(), below, at, first)?;
        }
        Ok(())
    }
}

/// Whether all of `start..end` is mapped, by VMAs that show the block of an object of which `table` is the object's table.
fn is_table_of(vmas: &Version, start: VirtAddr, end: VirtAddr, table: Frame) -> bool {
    let mut reached = start;
    for vma in vmas.view().iter_from(start) {
        if reached >= end || vma.start() > reached {
            break;
        }
        let Backing::Object(object) = &vma.backing else { return false };
        let skipped = (reached.get() - start.get()) >> PAGE_SHIFT;
        let block = Block::at(vma.page_at(reached).wrapping_sub(skipped));
        if block.and_then(|block| object.table_of(block)) != Some(table) {
            return false;
        }
        reached = vma.end();
    }
    reached >= end
}

/// The VMAs of a span, as far as they decide.
fn views(vmas: &Version, start: u64, span: u64) -> Vec<View> {
    let end = (start + span).min(USER_END.get());
    let Some(span) = PageRange::new(VirtAddr(start), VirtAddr(end)) else { return Vec::new() };
    let mut views: Vec<View> = Vec::new();
    for vma in vmas.view().range(span) {
        let Some(range) = vma.range.intersect(span) else { continue };
        let view = View {
            start: range.start().get() - start,
            end: range.end().get() - start,
            flags: vma.flags & DECIDING,
            key: vma.tag.key(),
            source: source(vma, range),
        };
        // Names and advice split VMAs without changing what may be installed.
        match views.last_mut() {
            Some(last)
                if last.end == view.start
                    && last.flags == view.flags
                    && last.key == view.key
                    && continues(last, &view) =>
            {
                last.end = view.end;
            }
            _ => views.push(view),
        }
    }
    views
}

fn source(vma: &Vma, range: PageRange) -> Source {
    match &vma.backing {
        Backing::Anonymous => Source::Zeros,
        Backing::Reference(reference) => Source::Reference(Arc::as_ptr(reference) as usize),
        Backing::Object(object) => {
            let skipped = (range.start().get() - vma.start().get()) >> PAGE_SHIFT;
            Source::Object(Arc::as_ptr(object) as usize, vma.page_offset + skipped)
        }
    }
}

fn continues(last: &View, next: &View) -> bool {
    match (last.source, next.source) {
        (Source::Object(a, offset), Source::Object(b, next)) => {
            a == b && offset + ((last.end - last.start) >> PAGE_SHIFT) == next
        }
        (last, next) => last == next,
    }
}
