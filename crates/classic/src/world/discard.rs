//! MADV_DONTNEED: a private mapping's own pages go.

use super::World;
use crate::operation::{Area, Process};

impl World {
    pub(super) fn discard(&mut self, process: Process, area: Area) {
        // Only private mappings have pages here.
        self.drop_pages(process, area);
    }
}
