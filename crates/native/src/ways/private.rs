//! The memory is written to a memfd, and mapped from it privately: what is stored to is copied by the host, and dropped to go back.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use anyhow::{Result, ensure};

use super::{PAGE, Region, Round, Way, content, timed};

/// See the module.
pub struct Private {
    memory: Region,
    resident: usize,
}

impl Private {
    pub fn new(size: usize, resident: usize) -> Result<Private> {
        Ok(Private { memory: Region::anonymous(size)?.filled(resident), resident })
    }
}

impl Way for Private {
    fn round(&mut self, pages: &[u64]) -> Result<Round> {
        let ((file, guest), snapshot) = timed(|| {
            // SAFETY: a name without a NUL inside; the descriptor is ours.
            let file = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC) };
            if file < 0 {
                return Err(io::Error::last_os_error().into());
            }
            // SAFETY: it was made a moment ago, and nobody else has it.
            let file = unsafe { File::from_raw_fd(file) };
            file.set_len(self.memory.len() as u64)?;
            let written = Region::of_file(self.memory.len(), libc::MAP_SHARED, file.as_raw_fd())?;
            written.copy_from(&self.memory, self.resident);
            let guest = Region::of_file(self.memory.len(), libc::MAP_PRIVATE, file.as_raw_fd())?;
            Ok((file, guest))
        })?;
        let ((), writes) = timed(|| {
            pages.iter().for_each(|page| guest.store(*page, 0));
            Ok(())
        })?;
        let ((), restore) = timed(|| {
            // SAFETY: our mapping; its private pages are what is to go.
            match unsafe { libc::madvise(guest.base().cast(), guest.len(), libc::MADV_DONTNEED) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error().into()),
            }
        })?;
        ensure!(pages.iter().all(|page| guest.load(*page) == content(*page)), "the mapping came back wrong");
        drop(file);
        Ok(Round { snapshot, writes, restore, bytes: (self.resident + pages.len() * PAGE) as u64 })
    }
}
