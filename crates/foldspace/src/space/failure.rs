//! Memory that fails, or is said to: madvise(MADV_HWPOISON and MADV_SOFT_OFFLINE).

use super::{Access, AddressSpace, Fault};
use crate::addr::VirtAddr;
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::migrate::{Lost, NotMoved};

/// How often the frame of a page is asked for again that changed before it could be had.
const PATIENCE: usize = 16;

impl AddressSpace {
    /// The frame at `addr`, made present as by a load; the zero page, perhaps. Another moment it may be another one.
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::fault`].
    pub fn frame_at(&self, addr: VirtAddr) -> Result<Frame, Fault> {
        loop {
            if let Some(frame) = self.with_page(addr, Access::Read, |frame| frame) {
                return Ok(frame);
            }
            self.fault(addr, Access::Read)?;
        }
    }

    /// The memory that holds the page at `addr` has failed ([`crate::Memory::poison`]). The page is made present first, as by a load.
    ///
    /// # Errors
    ///
    /// [`Error::NotMapped`] if it cannot be loaded from, or is secret (EFAULT); [`Error::Busy`] if it is a page that has no frame of its own (the zero page, a
    /// reference page), or others were changing it again and again; [`Error::OutOfMemory`]. Nothing has changed then.
    pub fn poison(&self, addr: VirtAddr) -> Result<Lost> {
        let place = (self.root, addr.page_floor());
        self.with_frame_at(addr, |frame| self.memory.poison_at(frame, Some(place)))
    }

    /// The memory that holds the page at `addr` is expected to fail ([`crate::Memory::soft_offline`]). Programs notice nothing.
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::poison`].
    pub fn soft_offline(&self, addr: VirtAddr) -> Result<()> {
        self.with_frame_at(addr, |frame| self.memory.soft_offline(frame).map(drop))
    }

    fn with_frame_at<T>(&self, addr: VirtAddr, act: impl Fn(Frame) -> Result<T, NotMoved>) -> Result<T> {
        if self.is_secret(addr) {
            return Err(Error::NotMapped);
        }
        for _ in 0..PATIENCE {
            let frame = self.frame_at(addr).map_err(|fault| match fault {
                Fault::OutOfMemory => Error::OutOfMemory,
                _ => Error::NotMapped,
            })?;
            match act(frame) {
                Ok(done) => return Ok(done),
                Err(NotMoved::OutOfMemory) => return Err(Error::OutOfMemory),
                Err(NotMoved::Fixed) => return Err(Error::Busy),
                Err(NotMoved::Unused | NotMoved::Busy) => {}
            }
        }
        Err(Error::Busy)
    }
}
