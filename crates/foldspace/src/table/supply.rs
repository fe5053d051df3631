//! Frames set aside for tables before an operation changes anything.

use crate::error::Result;
use crate::frame::{Frame, Memory, NONE};

/// Zeroed frames for tables. What is not taken goes back when it is dropped.
pub(crate) struct Supply<'m> {
    memory: &'m Memory,
    head: u32,
}

impl<'m> Supply<'m> {
    /// Nothing set aside: frames are allocated as they are taken.
    pub(crate) fn on_demand(memory: &'m Memory) -> Supply<'m> {
        Supply { memory, head: NONE }
    }

    /// `tables` frames set aside, or none.
    pub(crate) fn reserve(memory: &'m Memory, tables: u64) -> Result<Supply<'m>> {
        let mut supply = Supply::on_demand(memory);
        for _ in 0..tables {
            let frame = memory.alloc_zeroed()?;
            memory.record(frame).set_next(supply.head);
            supply.head = frame.0;
        }
        Ok(supply)
    }

    /// A frame full of zeros, idle.
    pub(crate) fn take(&mut self) -> Result<Frame> {
        if self.head == NONE {
            return self.memory.alloc_zeroed();
        }
        let frame = Frame(self.head);
        self.head = self.memory.record(frame).next();
        Ok(frame)
    }
}

impl Drop for Supply<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.head != NONE {
            self.give_back();
        }
    }
}

impl Supply<'_> {
    fn give_back(&mut self) {
        while self.head != NONE {
            let frame = Frame(self.head);
            self.head = self.memory.record(frame).next();
            self.memory.free_table(frame);
        }
    }
}
