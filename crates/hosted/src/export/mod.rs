//! Snapshots as files: all of one, or what it differs in from another.
//!
//! All numbers are little-endian. A file is a head, a body, and an end:
//!
//! | | bytes | |
//! | --- | ---: | --- |
//! | head | 8 | `FOLDSNAP` |
//! | | 4 | version: 2 |
//! | | 4 | 0: all of a snapshot; 1: a difference onto a base |
//! | | 8 | the mark of the base: the checksum at the end of the base's own file, and its length in bytes of body shifted left by 32; 0 for all of a snapshot |
//! | | 8 | bytes of the body as it is, before it is compressed |
//! | body | | LZ4 frame (`lz4_flex`), itself with checksums |
//! | end | 4 | CRC-32 (`crc32fast`) of everything before |
//!
//! The body, before compression, in numbers of 8 bytes: 12 addresses of the layout; how many ranges are unmapped, and of each start and end; how many areas are
//! mapped, and of each start, end, flags, the name's length, and its bytes; how many rows of pages follow, and of each the first address, how many pages, what
//! they are (0: nothing of their own, 1: private, 2: guards, 3: private and as in the base, where the area around them is mapped anew), and for 1 the bytes of
//! each. A difference has the areas that differ, and the pages that differ.
//!
//! Only anonymous memory goes into a file: a snapshot that shows objects or reference pages, or is watched, is refused, for those are not its own. Limits, the protection keys that are given out, and
//! whether a page was freed lazily, are not kept; areas that are sealed and were made read-only after stores are refused by the reader.

mod reader;
mod writer;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Layout, PageState, Snapshot};
use foldspace::{AddressSpace, VirtAddr};

use crate::{Host, Layouts};
use reader::File;
use writer::{body, encode};

const MAGIC: &[u8; 8] = b"FOLDSNAP";
const VERSION: u32 = 2;
/// Where an area's protection key is in its flags; bit 32 says that it has a name.
const KEY_SHIFT: u32 = 34;
const HEAD: usize = 32;
const END: usize = 4;
const PAGE: usize = PAGE_SIZE as usize;

/// What a file holds, as its head says.
const ALL: u32 = 0;
const DIFFERENCE: u32 = 1;

/// What rows of pages are.
const UNTOUCHED: u64 = PageState::Untouched as u64;
const PRIVATE: u64 = PageState::Private as u64;
const GUARD: u64 = PageState::Guard as u64;
const AS_BEFORE: u64 = 3;
const LOST: u64 = PageState::Lost as u64;

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
    /// The memory that held a page has failed: its content cannot be written down.
    #[error("what was at {0} is lost")]
    Lost(VirtAddr),
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
    let (file, mark) = to_bytes(snapshot)?;
    save(&file, path).map(|()| mark)
}

/// The same file, in memory.
///
/// # Errors
/// [`ExportError`].
pub fn to_bytes(snapshot: &Snapshot) -> Result<(Vec<u8>, Mark), ExportError> {
    let nothing = AddressSpace::new(snapshot.space().memory(), snapshot.space().layout())?;
    encode(&body(&nothing, snapshot.space())?, Mark(0), ALL)
}

/// Writes what `snapshot` differs in from `base`, which `mark` names: [`export`] gave it, or [`export_difference`], or [`import`].
///
/// # Errors
/// As [`export`]; [`ExportError::NotRelated`].
pub fn export_difference(base: &Snapshot, mark: Mark, snapshot: &Snapshot, path: &Path) -> Result<Mark, ExportError> {
    let (file, mark) = difference_to_bytes(base, mark, snapshot)?;
    save(&file, path).map(|()| mark)
}

/// The same file, in memory: what goes to another machine while the program runs on.
///
/// # Errors
/// As [`to_bytes`]; [`ExportError::NotRelated`].
pub fn difference_to_bytes(base: &Snapshot, mark: Mark, snapshot: &Snapshot) -> Result<(Vec<u8>, Mark), ExportError> {
    if !base.space().is_related_to(snapshot.space()) {
        return Err(ExportError::NotRelated);
    }
    encode(&body(base.space(), snapshot.space())?, mark, DIFFERENCE)
}

/// The address space that a file of [`export`] holds, and what it is called.
///
/// # Errors
/// [`ExportError`]; nothing is left behind.
pub fn import(host: &Host, bytes: &[u8]) -> Result<(Arc<AddressSpace>, Mark), ExportError> {
    let file = File::parse(bytes)?;
    if file.kind != ALL {
        return Err(ExportError::OtherBase);
    }
    let space = AddressSpace::new(host.memory(), Layouts::process())?;
    let mark = file.mark;
    file.apply(&space, None)?;
    Ok((space, mark))
}

/// The address space that a file of [`export_difference`] makes of its base, which is a snapshot that `mark` names.
///
/// # Errors
/// [`ExportError`]; nothing is left behind.
pub fn import_difference(base: &Snapshot, mark: Mark, bytes: &[u8]) -> Result<(Arc<AddressSpace>, Mark), ExportError> {
    let file = File::parse(bytes)?;
    if file.kind != DIFFERENCE || file.base != mark {
        return Err(ExportError::OtherBase);
    }
    let (space, own) = (base.spawn()?, file.mark);
    file.apply(&space, Some(base.space()))?;
    Ok((space, own))
}

/// Writes a file under another name, which becomes `path` when everything is on the disk.
fn save(file: &[u8], path: &Path) -> Result<(), ExportError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut temporary = tempfile::NamedTempFile::new_in(directory)?;
    temporary.write_all(file)?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    fs::File::open(directory)?.sync_all()?;
    Ok(())
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

fn mark(checksum: u32, body: usize) -> Mark {
    Mark(u64::from(checksum) | (body as u64) << 32)
}
