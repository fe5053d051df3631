//! What each frame is used for, to whoever goes through all of them.

use super::buddy::ORDERS;
use super::{Frame, Kind, Memory};
use crate::addr::Level;

/// What a frame is used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrameUse {
    /// It is none that the manager was given.
    Absent,
    /// In a free block.
    Free,
    /// Free in a processor's cache, on its way to its first use, or waiting out its grace period.
    Idle,
    /// Content of private memory.
    Private,
    /// A page of an object.
    Page,
    /// A page table.
    Table(Level),
    /// A reference page, the zero page, or one of their tables.
    Reference,
    /// The embedder's, and the records of frames.
    Reserved,
    /// It has failed, and is used for nothing any more.
    Poisoned,
}

impl FrameUse {
    /// Whether [`Memory::migrate`] can move what is in it.
    pub fn is_movable(self) -> bool {
        matches!(self, FrameUse::Private | FrameUse::Page)
    }
}

impl Memory {
    /// What `frame` is used for now; it may be something else a moment later. O(1), but for frames inside a free or reserved block: O(orders).
    pub fn frame_use(&self, frame: Frame) -> FrameUse {
        let Some(record) = self.records().get(frame.0 as usize) else { return FrameUse::Absent };
        match record.kind() {
            Kind::Absent | Kind::FreeTail => self.use_in_block(frame),
            Kind::Free => FrameUse::Free,
            Kind::Idle | Kind::Isolated => FrameUse::Idle,
            Kind::Anon => FrameUse::Private,
            Kind::Object if record.is_lost() => FrameUse::Poisoned,
            Kind::Object => FrameUse::Page,
            Kind::Poisoned => FrameUse::Poisoned,
            Kind::Reference => FrameUse::Reference,
            Kind::Reserved => FrameUse::Reserved,
            Kind::Table1 => FrameUse::Table(Level::L1),
            Kind::Table2 => FrameUse::Table(Level::L2),
            Kind::Table3 => FrameUse::Table(Level::L3),
            Kind::Table4 => FrameUse::Table(Level::L4),
        }
    }

    /// Of a frame inside a block, of which only the head says what it is.
    fn use_in_block(&self, frame: Frame) -> FrameUse {
        for order in 1..ORDERS {
            let head = frame.0 & !((1 << order) - 1);
            let record = self.record(Frame(head));
            let holds = (frame.0 - head) >> record.order() == 0;
            match record.kind() {
                Kind::Free if holds => return FrameUse::Free,
                Kind::Reserved if holds => return FrameUse::Reserved,
                _ => {}
            }
        }
        FrameUse::Absent
    }
}
