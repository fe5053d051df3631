//! Seals: what may never be done to a memfd again (fcntl(2), "File Sealing"; Linux's `mm/memfd.c`).

use bitflags::bitflags;
use linux_raw_sys::general as raw;

use super::inode::Inode;
use crate::errno::Errno;

bitflags! {
    /// Seals of a file, with the values of `F_ADD_SEALS`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Seals: u32 {
        /// No more seals. Files that are no memfds, and memfds made without `MFD_ALLOW_SEALING`, have it from the start.
        const SEAL = raw::F_SEAL_SEAL;
        /// It does not get shorter.
        const SHRINK = raw::F_SEAL_SHRINK;
        /// It does not get longer.
        const GROW = raw::F_SEAL_GROW;
        /// Its content does not change. Needs that nothing maps it so that it could.
        const WRITE = raw::F_SEAL_WRITE;
        /// Its content does not change but through mappings that exist.
        const FUTURE_WRITE = raw::F_SEAL_FUTURE_WRITE;
        /// Its execute bits do not change.
        const EXEC = raw::F_SEAL_EXEC;
    }
}

/// Who may execute, of a mode.
const EXECUTE_BITS: u32 = 0o111;

impl Seals {
    /// Whether the content is sealed, against all writers or new ones.
    pub fn forbid_writing(self) -> bool {
        self.intersects(Seals::WRITE | Seals::FUTURE_WRITE)
    }

    /// `EPERM` if the length may not go from `old` to `new`.
    pub fn check_len(self, old: u64, new: u64) -> Result<(), Errno> {
        let forbidden = new < old && self.contains(Seals::SHRINK) || new > old && self.contains(Seals::GROW);
        if forbidden { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// `EPERM` if the mode may not go from `old` to `new`.
    pub fn check_mode(self, old: u32, new: u32) -> Result<(), Errno> {
        let forbidden = self.contains(Seals::EXEC) && (old ^ new) & EXECUTE_BITS != 0;
        if forbidden { Err(Errno::EPERM) } else { Ok(()) }
    }
}

/// Adds seals to a file that is open for writing, errors in Linux's order.
///
/// # Errors
/// `EINVAL`: unknown seals, or a file that cannot have any. `EPERM`: [`Seals::SEAL`]. `EBUSY`: a shared mapping can write.
pub fn add(inode: &Inode, bits: u32) -> Result<(), Errno> {
    let mut added = Seals::from_bits(bits).ok_or(Errno::EINVAL)?;
    let regular = inode.regular().ok_or(Errno::EINVAL)?;
    let permissions = inode.attributes.lock().permissions;
    if added.contains(Seals::EXEC) && permissions & EXECUTE_BITS != 0 {
        // What may be executed for ever must not be written any more.
        added |= Seals::SHRINK | Seals::GROW | Seals::WRITE | Seals::FUTURE_WRITE;
    }
    regular.change_seals(|seals| {
        if seals.contains(Seals::SEAL) {
            return Err(Errno::EPERM);
        }
        if added.contains(Seals::WRITE) && !seals.contains(Seals::WRITE) && regular.object().mapped_writable() {
            return Err(Errno::EBUSY);
        }
        if added.forbid_writing() {
            // Advice about mappings does not come by here.
            regular.object().seal();
        }
        Ok(seals | added)
    })
}
