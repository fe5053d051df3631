//! All of the resident memory is copied, both ways.

use anyhow::{Result, ensure};

use super::{Region, Round, Way, content, timed};

/// See the module.
pub struct Copying {
    memory: Region,
    resident: usize,
}

impl Copying {
    pub fn new(size: usize, resident: usize) -> Result<Copying> {
        Ok(Copying { memory: Region::anonymous(size)?.filled(resident), resident })
    }
}

impl Way for Copying {
    fn round(&mut self, pages: &[u64]) -> Result<Round> {
        let (kept, snapshot) = timed(|| {
            let kept = Region::anonymous(self.memory.len())?;
            kept.copy_from(&self.memory, self.resident);
            Ok(kept)
        })?;
        let ((), writes) = timed(|| {
            pages.iter().for_each(|page| self.memory.store(*page, 0));
            Ok(())
        })?;
        let ((), restore) = timed(|| {
            self.memory.copy_from(&kept, self.resident);
            Ok(())
        })?;
        ensure!(pages.iter().all(|page| self.memory.load(*page) == content(*page)), "copying came back wrong");
        Ok(Round { snapshot, writes, restore, bytes: self.resident as u64 })
    }
}
