//! `/proc/PID/map_files`: a link for each mapping of a file, named after where it is.

use alloc::format;
use alloc::vec::Vec;

use foldspace::VirtAddr;
use foldspace::addr::PAGE_SHIFT;
use foldspace::vma::{Backing, Vma, VmaFlags};

use super::node::{Node, open_task};
use crate::errno::Errno;
use crate::process::Pid;

fn name(vma: &Vma) -> Vec<u8> {
    format!("{:x}-{:x}", vma.start().get(), vma.end().get()).into_bytes()
}

/// Lets `look` at the mapping of a file that begins there. `ENOENT`; `EACCES` if the memory is not for the caller to look at.
fn with<R>(pid: Pid, start: VirtAddr, look: impl FnOnce(&Vma) -> R) -> Result<R, Errno> {
    let space = open_task(pid)?.space();
    let version = space.vmas();
    let vma = version.view().find(start).filter(|vma| vma.start() == start && is_shown(vma)).ok_or(Errno::ENOENT)?;
    Ok(look(vma))
}

/// Whether a file is behind it.
fn is_shown(vma: &Vma) -> bool {
    match &vma.backing {
        Backing::Object(_) => true,
        Backing::Reference(reference) => reference.file().is_some(),
        Backing::Anonymous => false,
    }
}

/// The link of that name.
pub fn find(pid: Pid, wanted: &[u8]) -> Option<Node> {
    let text = core::str::from_utf8(wanted).ok()?;
    let start = VirtAddr(u64::from_str_radix(text.split_once('-')?.0, 16).ok()?);
    with(pid, start, |vma| name(vma) == wanted).ok()?.then_some(Node::MapFile { pid, start })
}

/// Calls `take` with position, name and node of each link whose position is `from` or above, until it returns false: that is the page that it begins with.
pub fn list(pid: Pid, from: u64, take: &mut dyn FnMut(u64, &[u8], Node) -> bool) {
    let Ok(task) = open_task(pid) else { return };
    let version = task.space().vmas();
    let mut at = VirtAddr(from << PAGE_SHIFT);
    while let Some(vma) = version.view().find_at_or_after(at) {
        let start = vma.start();
        let is_before = start < at;
        at = vma.end();
        if is_shown(vma) && !is_before && !take(start.get() >> PAGE_SHIFT, &name(vma), Node::MapFile { pid, start }) {
            return;
        }
    }
}

/// Permission bits of a link: what may be done through the mapping.
pub fn permissions(pid: Pid, start: VirtAddr) -> u32 {
    let of = |vma: &Vma| {
        let writes = vma.flags.contains(VmaFlags::SHARED | VmaFlags::MAY_WRITE);
        (u32::from(vma.flags.contains(VmaFlags::MAY_READ)) << 8) | (u32::from(writes) << 7)
    };
    with(pid, start, of).unwrap_or(0)
}

/// The file's path. `ENOENT`: nothing is mapped there any more.
pub fn path(pid: Pid, start: VirtAddr) -> Result<Vec<u8>, Errno> {
    with(pid, start, |vma| {
        let mut path = Vec::new();
        match &vma.backing {
            Backing::Object(object) => object.path(&mut path),
            Backing::Reference(reference) => reference.file().into_iter().for_each(|file| file.path(&mut path)),
            Backing::Anonymous => {}
        }
        path
    })
}
