//! Snapshots as files: all of one, or what it differs in from another.
//!
//! All numbers are little-endian. A file is a head, a body, and an end:
//!
//! | | bytes | |
//! | --- | ---: | --- |
//! | head | 8 | `FOLDSNAP` |
//! | | 4 | version: 1 |
//! | | 4 | 0: all of a snapshot; 1: a difference onto a base |
//! | | 8 | the mark of the base: the checksum at the end of the base's own file, and its length in bytes of body shifted left by 32; 0 for all of a snapshot |
//! | | 8 | bytes of the body as it is, before it is compressed |
//! | body | | LZ4 frame (`lz4_flex`), itself with checksums |
//! | end | 4 | CRC-32 (`crc32fast`) of everything before |
//!
//! The body, before compression, in numbers of 8 bytes: 12 addresses of the layout; how many ranges are unmapped, and of each start and end; how many areas are
//! mapped, and of each start, end, flags, the name's length, and its bytes; how many pages follow, and of each the address, what it is (0: nothing
//! of its own, 1: private, 2: a guard), and for a private one its 4096 bytes. A difference has the areas that differ, with all of their pages, and of the others
//! the pages that differ.
//!
//! Only anonymous memory goes into a file: a snapshot that shows objects or reference pages, or is watched, is refused, for those are not its own. Limits, and
//! whether a page was freed lazily, are not kept; areas that are sealed and were made read-only after stores are refused by the reader.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Difference, Layout, MapRequest, PageState, Placement, Snapshot};
use foldspace::vma::{Backing, Name, Vma, VmaFlags};
use foldspace::{AddressSpace, PageRange, VirtAddr};

use crate::{Host, Layouts};

const MAGIC: &[u8; 8] = b"FOLDSNAP";
const VERSION: u32 = 1;
const HEAD: usize = 32;
const END: usize = 4;
const PAGE: usize = PAGE_SIZE as usize;

/// Larger bodies are taken for damage before memory is asked for.
const MOST: u64 = 1 << 40;

/// Names the content of a file: what a difference says of its base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

/// Why a snapshot was not written, or a file not read.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The host's.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Something else than anonymous memory is mapped.
    #[error("what is mapped at {0} is not anonymous memory")]
    NotAnonymous(VirtAddr),
    /// The two snapshots do not come from each other.
    #[error("the snapshots are not related")]
    NotRelated,
    /// The file does not begin as one of these does.
    #[error("this is no snapshot")]
    NoSnapshot,
    /// It has another version.
    #[error("version {0} is not known here")]
    Version(u32),
    /// Bytes are missing, or were changed.
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    /// It is a difference, and this is not what it is the difference to.
    #[error("this is a difference onto another base")]
    OtherBase,
    /// The manager refused what the file says.
    #[error("{0}")]
    Refused(#[from] foldspace::Error),
}

/// Writes all of a snapshot: under another name first, which becomes `path` when everything is on the disk.
///
/// # Errors
/// [`ExportError`]; what was at `path` is there still.
pub fn export(snapshot: &Snapshot, path: &Path) -> Result<Mark, ExportError> {
    let nothing = AddressSpace::new(snapshot.space().memory(), snapshot.space().layout())?;
    write(&body(&nothing, snapshot.space())?, Mark(0), 0, path)
}

/// Writes what `snapshot` differs in from `base`, which `mark` names: [`export`] gave it, or [`export_difference`].
///
/// # Errors
/// As [`export`]; [`ExportError::NotRelated`].
pub fn export_difference(base: &Snapshot, mark: Mark, snapshot: &Snapshot, path: &Path) -> Result<Mark, ExportError> {
    if !base.space().is_related_to(snapshot.space()) {
        return Err(ExportError::NotRelated);
    }
    write(&body(base.space(), snapshot.space())?, mark, 1, path)
}

/// The address space that a file of [`export`] holds, and what it is called.
///
/// # Errors
/// [`ExportError`]; nothing is left behind.
pub fn import(host: &Host, bytes: &[u8]) -> Result<(Arc<AddressSpace>, Mark), ExportError> {
    let file = File::parse(bytes)?;
    if file.kind != 0 {
        return Err(ExportError::OtherBase);
    }
    let space = AddressSpace::new(host.memory(), Layouts::process())?;
    let mark = file.mark;
    file.apply(&space)?;
    Ok((space, mark))
}

/// The address space that a file of [`export_difference`] makes of its base, which is a snapshot that `mark` names.
///
/// # Errors
/// [`ExportError`]; nothing is left behind.
pub fn import_difference(base: &Snapshot, mark: Mark, bytes: &[u8]) -> Result<(Arc<AddressSpace>, Mark), ExportError> {
    let file = File::parse(bytes)?;
    if file.kind != 1 || file.base != mark {
        return Err(ExportError::OtherBase);
    }
    let (space, own) = (base.spawn()?, file.mark);
    file.apply(&space)?;
    Ok((space, own))
}

fn body(before: &AddressSpace, after: &AddressSpace) -> Result<Vec<u8>, ExportError> {
    let (mut gone, mut new, mut pages, mut strange) = (Vec::new(), Vec::new(), Vec::new(), None);
    before.diff(after, |difference| match difference {
        Difference::Gone(vma) => gone.push(vma.range),
        Difference::New(vma) => new.push(vma.clone()),
        Difference::Pages { range, after, .. } => pages.push((range, after)),
    });
    for vma in after.vmas().view().iter().filter(|vma| !is_plain(vma)) {
        strange.get_or_insert(vma.start());
    }
    if let Some(at) = strange {
        return Err(ExportError::NotAnonymous(at));
    }
    if !gone.is_empty() {
        // What is mapped anew on the other side has nothing yet: all of its pages, also those that are the same.
        let is_new = |addr: VirtAddr| new.iter().any(|vma: &Vma| vma.range.contains(addr));
        let nothing = AddressSpace::new(after.memory(), after.layout())?;
        let mut all = Vec::new();
        nothing.diff(after, |difference| {
            if let Difference::Pages { range, after, .. } = difference {
                all.extend(single_pages(range).filter(|page| is_new(page.start())).map(|page| (page, after)));
            }
        });
        pages.retain(|(range, _)| !is_new(range.start()) && after.vmas().view().find(range.start()).is_some());
        pages.extend(all);
    }
    let mut body = Vec::new();
    let put = |body: &mut Vec<u8>, number: u64| body.extend(number.to_le_bytes());
    addresses(&mut after.layout()).iter().for_each(|address| put(&mut body, address.get()));
    put(&mut body, gone.len() as u64);
    for range in gone {
        put(&mut body, range.start().get());
        put(&mut body, range.end().get());
    }
    put(&mut body, new.len() as u64);
    for vma in new {
        let name = vma.name.as_deref().unwrap_or_default();
        let flags = u64::from(vma.flags.bits()) | u64::from(vma.name.is_some()) << 32;
        for number in [vma.start().get(), vma.end().get(), flags, name.len() as u64] {
            put(&mut body, number);
        }
        body.extend(name);
    }
    let pages: Vec<_> =
        pages.into_iter().flat_map(|(range, state)| single_pages(range).map(move |page| (page, state))).collect();
    put(&mut body, pages.len() as u64);
    for (page, state) in pages {
        put(&mut body, page.start().get());
        put(&mut body, state as u64);
        if state == PageState::Private {
            let mut content = [0; PAGE];
            if !after.read_private(page.start(), &mut content) {
                return Err(ExportError::Damaged("the snapshot changes while it is written"));
            }
            body.extend(content);
        }
    }
    Ok(body)
}

/// Whether all that an area has can be written down: what somebody else answers for cannot.
fn is_plain(vma: &Vma) -> bool {
    matches!(vma.backing, Backing::Anonymous) && !vma.flags.intersects(VmaFlags::WATCHED)
}

fn single_pages(range: PageRange) -> impl Iterator<Item = PageRange> {
    (range.start().get()..range.end().get()).step_by(PAGE).filter_map(|addr| PageRange::page_of(VirtAddr(addr)))
}

/// The addresses of a layout in the order of the file.
fn addresses(layout: &mut Layout) -> [&mut VirtAddr; 12] {
    let Layout { mmap_base, start_brk, brk, start_stack, code, data, args, env, .. } = layout;
    [
        mmap_base,
        start_brk,
        brk,
        start_stack,
        &mut code.0,
        &mut code.1,
        &mut data.0,
        &mut data.1,
        &mut args.0,
        &mut args.1,
        &mut env.0,
        &mut env.1,
    ]
}

fn write(body: &[u8], base: Mark, kind: u32, path: &Path) -> Result<Mark, ExportError> {
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
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut temporary = tempfile::NamedTempFile::new_in(directory)?;
    temporary.write_all(&file)?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    fs::File::open(directory)?.sync_all()?;
    Ok(mark(checksum, body.len()))
}

fn mark(checksum: u32, body: usize) -> Mark {
    Mark(u64::from(checksum) | (body as u64) << 32)
}

/// A file that has been checked from end to end.
struct File {
    kind: u32,
    base: Mark,
    mark: Mark,
    layout: [VirtAddr; 12],
    gone: Vec<PageRange>,
    areas: Vec<MapRequest>,
    names: Vec<(PageRange, Name)>,
    pages: Vec<(VirtAddr, u64, Vec<u8>)>,
}

/// What is still to be read.
struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn take(&mut self, len: u64) -> Result<&'b [u8], ExportError> {
        let len = usize::try_from(len).ok().filter(|len| *len <= self.0.len());
        let (taken, rest) = self.0.split_at(len.ok_or(ExportError::Damaged("it ends too early"))?);
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, ExportError> {
        let bytes = self.take(8)?;
        Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
    }
}

impl File {
    fn parse(bytes: &[u8]) -> Result<File, ExportError> {
        if bytes.len() < MAGIC.len() || !bytes.starts_with(MAGIC) {
            return Err(ExportError::NoSnapshot);
        }
        let mut head = Rest(&bytes[MAGIC.len()..]);
        let words = head.number()?;
        if words as u32 != VERSION {
            return Err(ExportError::Version(words as u32));
        }
        let (base, len) = (Mark(head.number()?), head.number()?);
        let Some((rest, end)) = head.0.split_last_chunk::<END>() else {
            return Err(ExportError::Damaged("it ends too early"));
        };
        let checksum = u32::from_le_bytes(*end);
        if crc32fast::hash(&bytes[..bytes.len() - END]) != checksum {
            return Err(ExportError::Damaged("its checksum is another"));
        }
        if len > MOST {
            return Err(ExportError::Damaged("it is too large"));
        }
        let mut body = Vec::new();
        let decoder = lz4_flex::frame::FrameDecoder::new(rest);
        decoder.take(len + 1).read_to_end(&mut body).map_err(|_| ExportError::Damaged("it cannot be decompressed"))?;
        if body.len() as u64 != len {
            return Err(ExportError::Damaged("it has another length"));
        }
        let mut file = File {
            kind: (words >> 32) as u32,
            base,
            mark: mark(checksum, body.len()),
            layout: Default::default(),
            gone: Vec::new(),
            areas: Vec::new(),
            names: Vec::new(),
            pages: Vec::new(),
        };
        let mut body = Rest(&body);
        for address in &mut file.layout {
            *address = VirtAddr(body.number()?);
        }
        for _ in 0..body.number()? {
            let (start, end) = (VirtAddr(body.number()?), VirtAddr(body.number()?));
            file.gone.push(PageRange::new(start, end).ok_or(ExportError::Damaged("a range is none"))?);
        }
        for _ in 0..body.number()? {
            file.area(&mut body)?;
        }
        for _ in 0..body.number()? {
            let (addr, state) = (VirtAddr(body.number()?), body.number()?);
            if !addr.is_page_aligned() || state > PageState::Guard as u64 {
                return Err(ExportError::Damaged("a page is none"));
            }
            let content = if state == PageState::Private as u64 { body.take(PAGE_SIZE)?.to_vec() } else { Vec::new() };
            file.pages.push((addr, state, content));
        }
        if body.0.is_empty() { Ok(file) } else { Err(ExportError::Damaged("something follows its end")) }
    }

    fn area(&mut self, body: &mut Rest<'_>) -> Result<(), ExportError> {
        let damaged = || ExportError::Damaged("an area is none");
        let [start, end, flags, len] = [body.number()?, body.number()?, body.number()?, body.number()?];
        let range = PageRange::new(VirtAddr(start), VirtAddr(end)).ok_or_else(damaged)?;
        let name = Name::new(body.take(len)?).ok_or_else(damaged)?;
        let own = VmaFlags::SHARED | VmaFlags::OBJECT | VmaFlags::FILE_OF_ZEROS | VmaFlags::WATCHED;
        let bits = VmaFlags::from_bits(flags as u32).filter(|bits| !bits.intersects(own)).ok_or_else(damaged)?;
        if flags >> 33 != 0 {
            return Err(damaged());
        }
        self.areas.push(MapRequest {
            placement: Placement::Fixed(VirtAddr(start)),
            len: range.len(),
            flags: bits,
            backing: Backing::Anonymous,
            page_offset: 0,
        });
        if flags >> 32 != 0 {
            self.names.push((range, name));
        }
        Ok(())
    }

    /// Makes `space`, which is nobody's yet, what the file says.
    fn apply(self, space: &AddressSpace) -> Result<(), ExportError> {
        space.update_layout(|layout| {
            addresses(layout).into_iter().zip(self.layout).for_each(|(address, value)| *address = value);
        });
        self.gone.into_iter().try_for_each(|range| space.unmap(range))?;
        let mut to_protect = Vec::new();
        for area in self.areas {
            let flags = area.flags;
            // What was promised when it could be written, and holds pages, stays promised: so it is filled as such.
            let promised = flags.contains(VmaFlags::ACCOUNT) && !flags.contains(VmaFlags::WRITE);
            let first = if promised { flags | VmaFlags::READ | VmaFlags::WRITE } else { flags };
            let len = area.len;
            let start = space.map(MapRequest { flags: first, ..area })?;
            if promised && let Some(range) = PageRange::from_len(start, len) {
                to_protect.push((range, flags & VmaFlags::ACCESS));
            }
        }
        for (range, name) in self.names {
            space.set_name(range, Some(name))?;
        }
        for (addr, state, content) in self.pages {
            let page = PageRange::page_of(addr).ok_or(ExportError::Damaged("a page is none"))?;
            if space.is_guarded(addr) {
                space.guard_remove(page)?;
            }
            if state == PageState::Guard as u64 {
                space.guard_install(page)?;
            } else if state == PageState::Untouched as u64 {
                space.discard(page)?;
            } else if space.write_forced(addr, &content) != content.len() {
                return Err(ExportError::Damaged("a page is where nothing is mapped, or there is no memory for it"));
            }
        }
        to_protect.into_iter().try_for_each(|(range, access)| space.protect(range, access))?;
        Ok(())
    }
}
