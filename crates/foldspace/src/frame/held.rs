//! Frames that are kept alive, and from being reused in place, until many address spaces have shot down what they remember of them.

use super::record::NONE;
use super::{Frame, Garbage, Memory};

/// Data frames, each with one reference more than there are slots that map it. Needs no memory: they are linked through their records.
///
/// Each is in one such list at most: who has one also has the lock of the object that they show, or were copied from.
#[must_use = "frames in it are never freed unless they are let go of"]
pub(crate) struct Held {
    head: u32,
}

impl Held {
    pub(crate) const fn new() -> Held {
        Held { head: NONE }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Under the lock of a table that maps the frame.
    pub(crate) fn hold(&mut self, memory: &Memory, frame: Frame) {
        let record = memory.record(frame);
        if memory.begin_hold(frame) {
            record.set_next(self.head);
            self.head = frame.0;
        }
    }

    /// Ends it: no processor remembers a translation to any of them any more.
    pub(crate) fn let_go(self, memory: &Memory, garbage: &mut Garbage) {
        let mut at = self.head;
        while at != NONE {
            let record = memory.record(Frame(at));
            let next = record.next();
            if memory.end_hold(Frame(at)) {
                garbage.push_data(memory, Frame(at));
            }
            at = next;
        }
    }
}
