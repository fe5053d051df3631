//! A guest of foldspace-hosted.

use anyhow::{Result, ensure};
use foldspace_hosted::{Cpu, Guest, Host, Permissions};

use super::{PAGE, Round, Way, content, timed};

/// See the module.
pub struct Foldspace {
    guest: Guest,
    cpu: Cpu,
    host: Host,
}

/// Where the guest's memory begins.
pub const AT: u64 = 1 << 40;

impl Foldspace {
    pub fn new(size: usize, resident: usize) -> Result<Foldspace> {
        // Records and tables, some copies of pages, and what waits for a grace period.
        let host = Host::new((resident + resident / 32 + (256 << 20)) as u64)?;
        let guest = host.guest()?;
        guest.map(AT, size as u64, Permissions::READ_WRITE)?;
        let mut cpu = guest.cpu();
        for page in 0..(resident / PAGE) as u64 {
            cpu.store(AT + page * PAGE as u64, content(page).to_le_bytes())?;
        }
        Ok(Foldspace { guest, cpu, host })
    }

    /// What executes the guest.
    pub fn cpu(&mut self) -> &mut Cpu {
        &mut self.cpu
    }

    /// How long it takes to list the pages that were stored to since a snapshot.
    pub fn list(&mut self, pages: &[u64]) -> Result<std::time::Duration> {
        let snapshot = self.guest.snapshot()?;
        for page in pages {
            self.cpu.store(AT + page * PAGE as u64, 0_u64.to_le_bytes())?;
        }
        let (rows, listed) = timed(|| Ok(self.guest.dirty_since(&snapshot)))?;
        let found: u64 = rows.iter().map(|row| row.pages()).sum();
        ensure!(found == pages.len() as u64, "{found} pages listed of {}", pages.len());
        self.guest.restore(&snapshot)?;
        Ok(listed)
    }
}

impl Way for Foldspace {
    fn round(&mut self, pages: &[u64]) -> Result<Round> {
        self.host.memory().reclaim();
        let before = self.host.memory().stats().free;
        let (kept, snapshot) = timed(|| Ok(self.guest.snapshot()?))?;
        let ((), writes) = timed(|| {
            for page in pages {
                self.cpu.store(AT + page * PAGE as u64, 0_u64.to_le_bytes())?;
            }
            Ok(())
        })?;
        self.host.memory().reclaim();
        let bytes = (before - self.host.memory().stats().free) * PAGE as u64;
        let ((), restore) = timed(|| Ok(self.guest.restore(&kept)?))?;
        for page in pages {
            let value = u64::from_le_bytes(self.cpu.load(AT + page * PAGE as u64)?);
            ensure!(value == content(*page), "Foldspace came back wrong");
        }
        Ok(Round { snapshot, writes, restore, bytes })
    }
}
