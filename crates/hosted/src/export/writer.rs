//! From a snapshot to bytes.

use std::io::{self, Write};

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Difference, PageState};
use foldspace::vma::{Backing, Vma, VmaFlags};
use foldspace::{AddressSpace, PageRange, VirtAddr};

use super::{AS_BEFORE, ExportError, HEAD, KEY_SHIFT, LOST, MAGIC, Mark, PAGE, PRIVATE, VERSION, addresses, mark};

/// What differs.
#[derive(Default)]
struct Found {
    gone: Vec<PageRange>,
    new: Vec<Vma>,
    /// Rows of pages, upwards, and what they are.
    rows: Vec<(PageRange, u64)>,
}

impl Found {
    fn between(before: &AddressSpace, after: &AddressSpace) -> Found {
        let mut found = Found::default();
        before.diff(after, |difference| match difference {
            Difference::Gone(vma) => found.gone.push(vma.range),
            Difference::New(vma) => found.new.push(vma.clone()),
            Difference::Pages { range, after, .. } => found.rows.push((range, after as u64)),
        });
        found
    }

    /// Whether an area that is mapped anew holds an address.
    fn is_new(&self, addr: VirtAddr) -> bool {
        let above = self.new.partition_point(|vma| vma.start() <= addr);
        above.checked_sub(1).and_then(|at| self.new.get(at)).is_some_and(|vma| vma.range.contains(addr))
    }

    /// Whether the page at an address differs.
    fn differs(&self, addr: VirtAddr) -> bool {
        let above = self.rows.partition_point(|(range, _)| range.start() <= addr);
        above.checked_sub(1).and_then(|at| self.rows.get(at)).is_some_and(|(range, _)| range.contains(addr))
    }

    /// The rows of pages to be written where areas of the base are unmapped: what is mapped anew in their place has nothing, so all of its pages, of those that
    /// are as before only that they are; and of what is unmapped and stays so, none.
    fn rows_with_new(&self, after: &AddressSpace) -> foldspace::Result<Vec<(PageRange, u64)>> {
        let nothing = AddressSpace::new(after.memory(), after.layout())?;
        let mut rows = Vec::new();
        nothing.diff(after, |difference| {
            if let Difference::Pages { range, after: state, .. } = difference {
                for page in single_pages(range).filter(|page| self.is_new(page.start())) {
                    let as_before = state == PageState::Private && !self.differs(page.start());
                    join(&mut rows, page, if as_before { AS_BEFORE } else { state as u64 });
                }
            }
        });
        let vmas = after.vmas();
        for (range, state) in &self.rows {
            let stays = |page: &PageRange| !self.is_new(page.start()) && vmas.view().find(page.start()).is_some();
            single_pages(*range).filter(stays).for_each(|page| join(&mut rows, page, *state));
        }
        Ok(rows)
    }
}

/// Adds a page to the last row, or as a row of its own.
fn join(rows: &mut Vec<(PageRange, u64)>, page: PageRange, state: u64) {
    let last = rows.last_mut().filter(|(last, of)| *of == state && last.end() == page.start());
    match last.and_then(|(last, _)| Some((PageRange::new(last.start(), page.end())?, last))) {
        Some((longer, last)) => *last = longer,
        None => rows.push((page, state)),
    }
}

fn single_pages(range: PageRange) -> impl Iterator<Item = PageRange> {
    (range.start().get()..range.end().get()).step_by(PAGE).filter_map(|addr| PageRange::page_of(VirtAddr(addr)))
}

/// Whether all that an area has can be written down: what somebody else answers for cannot.
fn is_plain(vma: &Vma) -> bool {
    matches!(vma.backing, Backing::Anonymous) && !vma.flags.intersects(VmaFlags::WATCHED)
}

/// A body, as the module's page has it.
pub(super) fn body(before: &AddressSpace, after: &AddressSpace) -> Result<Vec<u8>, ExportError> {
    if let Some(strange) = after.vmas().view().iter().find(|vma| !is_plain(vma)) {
        return Err(ExportError::NotAnonymous(strange.start()));
    }
    let mut found = Found::between(before, after);
    if !found.gone.is_empty() {
        found.rows = found.rows_with_new(after)?;
    }
    if let Some((range, _)) = found.rows.iter().find(|(_, state)| *state == LOST) {
        return Err(ExportError::Lost(range.start()));
    }
    let mut body = Vec::new();
    let put = |body: &mut Vec<u8>, number: u64| body.extend(number.to_le_bytes());
    addresses(&mut after.layout()).iter().for_each(|address| put(&mut body, address.get()));
    put(&mut body, found.gone.len() as u64);
    for range in found.gone {
        put(&mut body, range.start().get());
        put(&mut body, range.end().get());
    }
    put(&mut body, found.new.len() as u64);
    for vma in found.new {
        let name = vma.name.as_deref().unwrap_or_default();
        let key = u64::from(vma.tag.key().number()) << KEY_SHIFT;
        let flags = u64::from(vma.flags.bits()) | u64::from(vma.name.is_some()) << 32 | key;
        for number in [vma.start().get(), vma.end().get(), flags, name.len() as u64] {
            put(&mut body, number);
        }
        body.extend(name);
    }
    put(&mut body, found.rows.len() as u64);
    for (range, state) in found.rows {
        for number in [range.start().get(), range.len() / PAGE_SIZE, state] {
            put(&mut body, number);
        }
        if state == PRIVATE {
            for page in single_pages(range) {
                let mut content = [0; PAGE];
                if !after.read_private(page.start(), &mut content) {
                    return Err(ExportError::Damaged("the snapshot changes while it is written"));
                }
                body.extend(content);
            }
        }
    }
    Ok(body)
}

/// A file of a body.
pub(super) fn encode(body: &[u8], base: Mark, kind: u32) -> Result<(Vec<u8>, Mark), ExportError> {
    let mut file = Vec::with_capacity(HEAD + body.len() / 2);
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    file.extend(kind.to_le_bytes());
    file.extend(base.0.to_le_bytes());
    file.extend((body.len() as u64).to_le_bytes());
    let mut frame = lz4_flex::frame::FrameEncoder::new(file);
    frame.write_all(body)?;
    let mut file = frame.finish().map_err(io::Error::other)?;
    let checksum = crc32fast::hash(&file);
    file.extend(checksum.to_le_bytes());
    Ok((file, mark(checksum, body.len())))
}
