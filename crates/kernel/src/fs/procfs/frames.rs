//! `/proc/frames`: who maps which frame. Not on Linux.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use foldspace::addr::{Level, PAGE_SIZE};
use foldspace::frame::FrameUse;
use foldspace::proc::FrameRun;
use foldspace::{AddressSpace, VirtAddr};

use super::system::Text;
use crate::errno::Errno;
use crate::process::Pid;
use crate::{mm, process};

/// What a frame is used for, in a word.
fn word(used: FrameUse) -> &'static str {
    match used {
        FrameUse::Absent => "absent",
        FrameUse::Free => "free",
        FrameUse::Idle => "idle",
        FrameUse::Private => "private",
        FrameUse::Page => "file",
        FrameUse::Table(Level::L1) => "table1",
        FrameUse::Table(Level::L2) => "table2",
        FrameUse::Table(Level::L3) => "table3",
        FrameUse::Table(Level::L4) => "root",
        FrameUse::Reference => "reference",
        FrameUse::Reserved => "kernel",
        FrameUse::Poisoned => "poisoned",
    }
}

/// Frames in a row, as a program reads them.
pub struct Row {
    /// First frame number, and how many.
    pub frames: (u32, u32),
    /// What for.
    pub used: &'static str,
    /// The file, and the page of it that the first is.
    pub file: Option<(Vec<u8>, u64)>,
    /// By which process at which address the first is mapped; process 0 where none has that address space any more.
    pub places: Vec<(Pid, VirtAddr)>,
}

/// Calls `visit` with all frames, upwards. False without heap for it.
pub fn rows(mut visit: impl FnMut(&Row)) -> bool {
    let owners: Vec<(Pid, Arc<AddressSpace>)> =
        process::all().iter().filter(|task| task.is_leader()).map(|task| (task.pid, task.space())).collect();
    let owner = |space: &Arc<AddressSpace>| {
        owners.iter().find(|(_, owned)| Arc::ptr_eq(owned, space)).map_or(0, |(pid, _)| *pid)
    };
    let row = |run: &FrameRun| Row {
        frames: (run.first.0, run.frames),
        used: word(run.used),
        file: run.page.as_ref().map(|(object, page)| {
            let mut path = Vec::new();
            object.path(&mut path);
            (path, *page)
        }),
        places: run.places.iter().map(|(space, at)| (owner(space), *at)).collect(),
    };
    mm::memory().frame_runs(|run| visit(&row(run))).is_ok()
}

/// The text: first and last frame, their number, what for, the file and its page, and process and addresses of each mapping.
///
/// # Errors
/// `ENOMEM`.
pub fn listing(text: &mut Text<'_>) -> Result<(), Errno> {
    /// Bytes of a row, of the name of its page beside the path, and of a place, at most.
    const ROW: usize = 64;
    const PLACE: usize = 48;
    let mut room = Ok(());
    let whole = rows(|row| {
        // What is not UTF-8 becomes three bytes for one.
        let path = row.file.as_ref().map_or(0, |(path, _)| 3 * path.len());
        room = room.and_then(|()| text.reserve(ROW + path + row.places.len() * PLACE));
        if room.is_err() {
            return;
        }
        let (first, count) = row.frames;
        text.put(format_args!("{first:08x}-{:08x} {count:>7} {:<9}", first + count - 1, row.used));
        if let Some((path, page)) = &row.file {
            text.put(format_args!(" {}+{page}", String::from_utf8_lossy(path)));
        }
        for (pid, at) in &row.places {
            text.put(format_args!(" {pid}:{:x}-{:x}", at.get(), at.get() + u64::from(count) * PAGE_SIZE));
        }
        text.bytes(b"\n");
    });
    room.and(if whole { Ok(()) } else { Err(Errno::ENOMEM) })
}
