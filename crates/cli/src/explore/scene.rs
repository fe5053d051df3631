//! The sequence that is shown when no log is given: what the design's first picture shows.

use anyhow::Result;
use foldspace_classic::{Area, Backing, Operation, Process, VmaFlags};
use foldspace_replay::Manager;

use super::record::{Recorder, Recording};

/// Pages that a last-level table maps.
const TABLE: u64 = 512;
/// Where the memory is: at the beginning of a table of the third level, so that all of it lies below one.
const START: u64 = 0x4000_0000 >> 12;

/// 8 MiB of which every page has been written to; a child, its first writes, a grandchild, a change of layout, and their ends.
pub fn recording() -> Result<Recording> {
    let (first, second, third) = (Process(1), Process(2), Process(3));
    let area = Area { start: START, end: START + 4 * TABLE };
    let flags = VmaFlags::READ | VmaFlags::WRITE;
    let store = |process, page| Operation::Store { process, page: START + page };
    let mut recorder = Recorder::new(Manager::new(64 << 20)?, 0, usize::MAX);
    recorder.take(&[
        Operation::Start { process: first },
        Operation::Map { process: first, area, backing: Backing::Anonymous, flags },
    ])?;
    recorder.take(&(0..4 * TABLE).map(|page| store(first, page)).collect::<Vec<_>>())?;
    recorder.take(&[Operation::Fork { parent: first, child: second }])?;
    recorder.take(&[store(second, 700)])?;
    recorder.take(&[store(second, 701)])?;
    recorder.take(&[store(first, 700)])?;
    recorder.take(&[store(first, 3)])?;
    recorder.take(&[
        Operation::Fork { parent: second, child: third },
        Operation::Unmap { process: third, area: Area { start: START + TABLE / 2, end: START + 2 * TABLE } },
    ])?;
    recorder.take(&[store(third, 1600)])?;
    let read_only = Area { start: START + 3 * TABLE, end: START + 4 * TABLE };
    recorder.take(&[
        Operation::Change { process: second, area: read_only, clear: VmaFlags::WRITE, set: VmaFlags::empty() },
        Operation::Exit { process: second },
        Operation::Exit { process: third },
    ])?;
    recorder.take(&[store(first, 1000)])?;
    recorder.finish("a scene made for it: `foldspace explore` without a log")
}
