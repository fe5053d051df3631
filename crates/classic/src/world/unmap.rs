//! Unmapping.

use super::World;
use crate::operation::{Area, Process};

impl World {
    pub(super) fn unmap(&mut self, process: Process, area: Area) {
        for vma in self.isolate(process, area) {
            self.remove(vma);
        }
        self.drop_pages(process, area);
    }
}
