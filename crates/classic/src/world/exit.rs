//! The end of an address space.

use super::World;
use crate::operation::Process;

impl World {
    pub(super) fn exit(&mut self, process: Process) {
        let vmas: Vec<_> = self.space_mut(process).vmas.values().copied().collect();
        for vma in vmas {
            self.remove(vma);
        }
        let Some(space) = self.spaces.remove(&process) else { return };
        for page in space.pages.into_values() {
            self.release(page);
        }
    }
}
