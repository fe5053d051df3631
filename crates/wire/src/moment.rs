//! What `run --snapshot` keeps: the address spaces of a machine at a moment.

use serde::{Deserialize, Serialize};

/// Processes, their VMAs, and the page tables that they have or share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moment {
    /// Which, from 1 on.
    pub number: u32,
    /// Whatever who asked for it wrote.
    pub label: String,
    /// Upwards by their numbers.
    pub processes: Vec<MomentProcess>,
    /// Each once, however many share it.
    pub tables: Vec<MomentTable>,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MomentProcess {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Its name, as in `/proc/PID/comm`.
    pub name: String,
    /// The frame of its uppermost table.
    pub root: u32,
    /// Its VMAs: the lines of `/proc/PID/maps`.
    pub maps: Vec<String>,
}

/// A page table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MomentTable {
    /// The frame that it is in.
    pub frame: u32,
    /// 1 for the last, whose slots refer to pages, to 4 for a root.
    pub level: u8,
    /// How many slots link it.
    pub refs: u32,
    /// Its lineage, if it has been copied or is a copy.
    pub lineage: Option<u32>,
    /// What its slots refer to, upwards; those of user memory that are not empty.
    pub slots: Vec<MomentSlots>,
}

/// Slots in a row that differ only in frames that follow each other (of a reference page: that are the same): the first index, how many, what they
/// refer to (`table`, `object-table`, `page`, `object`, `reference`, `guard`), the first frame, how many slots refer to each, whether a processor may
/// store through them (0 or 1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MomentSlots(pub u16, pub u16, pub String, pub u32, pub u32, pub u8);

impl Moment {
    /// Adds what a later line says of the same moment.
    pub fn merge(&mut self, later: Self) {
        if !later.label.is_empty() {
            self.label = later.label;
        }
        for process in later.processes {
            match self.processes.iter_mut().find(|known| known.pid == process.pid) {
                Some(known) => known.maps.extend(process.maps),
                None => self.processes.push(process),
            }
        }
        self.tables.extend(later.tables);
    }
}
