//! From bytes to an address space: everything is checked before anything is made.

use std::io::Read;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, Name, ProtectionKey, VmaFlags};
use foldspace::{AddressSpace, PageRange, VirtAddr};

use super::{
    AS_BEFORE, END, ExportError, GUARD, KEY_SHIFT, MAGIC, MOST, Mark, PAGE, PRIVATE, UNTOUCHED, VERSION, addresses,
    mark,
};

/// A file that has been checked from end to end.
pub(super) struct File {
    pub(super) kind: u32,
    pub(super) base: Mark,
    pub(super) mark: Mark,
    layout: [VirtAddr; 12],
    gone: Vec<PageRange>,
    areas: Vec<MapRequest>,
    names: Vec<(PageRange, Name)>,
    keys: Vec<(PageRange, VmaFlags, ProtectionKey)>,
    rows: Vec<(PageRange, u64, Vec<u8>)>,
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
    pub(super) fn parse(bytes: &[u8]) -> Result<File, ExportError> {
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
            keys: Vec::new(),
            rows: Vec::new(),
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
            let (start, pages, state) = (VirtAddr(body.number()?), body.number()?, body.number()?);
            let len = pages.checked_mul(PAGE_SIZE).ok_or(ExportError::Damaged("a row of pages is none"))?;
            let range = PageRange::from_len(start, len).ok_or(ExportError::Damaged("a row of pages is none"))?;
            let content = match state {
                PRIVATE => body.take(len)?.to_vec(),
                UNTOUCHED | GUARD | AS_BEFORE => Vec::new(),
                _ => return Err(ExportError::Damaged("a row of pages is none")),
            };
            file.rows.push((range, state, content));
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
        let key =
            ProtectionKey::new((flags >> KEY_SHIFT) as u32).filter(|_| flags >> 33 & 1 == 0).ok_or_else(damaged)?;
        self.areas.push(MapRequest {
            placement: Placement::Fixed(VirtAddr(start)),
            len: range.len(),
            flags: bits,
            backing: Backing::Anonymous,
            page_offset: 0,
        });
        if flags >> 32 & 1 != 0 {
            self.names.push((range, name));
        }
        if key != ProtectionKey::DEFAULT {
            self.keys.push((range, bits & VmaFlags::ACCESS, key));
        }
        Ok(())
    }

    /// Makes `space`, which is nobody's yet and equals `base`, what the file says.
    pub(super) fn apply(self, space: &AddressSpace, base: Option<&AddressSpace>) -> Result<(), ExportError> {
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
            if promised {
                if let Some(range) = PageRange::from_len(start, len) {
                    to_protect.push((range, flags & VmaFlags::ACCESS));
                }
            }
        }
        for (range, name) in self.names {
            space.set_name(range, Some(name))?;
        }
        for (range, state, content) in self.rows {
            match state {
                GUARD => space.guard_install(range)?,
                UNTOUCHED => {
                    space.guard_remove(range)?;
                    space.discard(range)?;
                }
                PRIVATE => {
                    space.guard_remove(range)?;
                    store(space, range.start(), &content)?;
                }
                _ => as_before(base, space, range)?,
            }
        }
        to_protect.into_iter().try_for_each(|(range, access)| space.protect(range, access))?;
        self.keys.into_iter().try_for_each(|(range, access, key)| space.protect_with_key(range, access, key))?;
        Ok(())
    }
}

fn store(space: &AddressSpace, at: VirtAddr, content: &[u8]) -> Result<(), ExportError> {
    if space.write_forced(at, content) == content.len() {
        Ok(())
    } else {
        Err(ExportError::Damaged("a page is where nothing is mapped, or there is no memory for it"))
    }
}

/// Pages that the base has, in areas that were mapped anew.
fn as_before(base: Option<&AddressSpace>, space: &AddressSpace, range: PageRange) -> Result<(), ExportError> {
    let mut content = [0; PAGE];
    for at in (range.start().get()..range.end().get()).step_by(PAGE) {
        if !base.is_some_and(|base| base.read_private(VirtAddr(at), &mut content)) {
            return Err(ExportError::Damaged("a page is not there in the base"));
        }
        store(space, VirtAddr(at), &content)?;
    }
    Ok(())
}
