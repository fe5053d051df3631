//! Reference pages: one frame, and tables all of whose entries are that frame, or the table below.

use crate::addr::{ENTRIES, Level};
use crate::frame::Frame;
use crate::table::Entry;

/// A frame that may be mapped anywhere, read-only, and the tables that map it 512, 512² and 512³ times. They are linked like any subtree,
/// never written, never counted: every entry that refers to one says so.
pub(crate) struct ReferenceTables {
    /// What reads see.
    pub(crate) page: Frame,
    /// Tables of level 1 to 3.
    pub(crate) tables: [Frame; 3],
}

impl ReferenceTables {
    /// All its frames.
    pub(crate) fn frames(&self) -> [Frame; 4] {
        let [l1, l2, l3] = self.tables;
        [self.page, l1, l2, l3]
    }

    /// What an entry of a table of `level` refers to: the page itself, or the table of the level below.
    pub(crate) fn at(&self, level: Level) -> Frame {
        match level {
            Level::L1 => self.page,
            Level::L2 => self.tables[0],
            Level::L3 => self.tables[1],
            Level::L4 => self.tables[2],
        }
    }

    /// Calls `store(table, index, entry)` for each entry of its tables.
    pub(crate) fn fill_tables(&self, mut store: impl FnMut(Frame, usize, u64)) {
        for (level, table) in [Level::L1, Level::L2, Level::L3].into_iter().zip(self.tables) {
            for index in 0..ENTRIES {
                store(table, index, Entry::reference(self.at(level)).bits());
            }
        }
    }
}
