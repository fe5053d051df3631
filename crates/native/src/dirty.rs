//! Which pages were stored to since the last time one asked: how long the list takes.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::ways::{Foldspace, PAGE, Region, Scanned, timed};

/// Bit 55 of an entry of pagemap: soft-dirty (`Documentation/admin-guide/mm/soft-dirty.rst`).
const SOFT_DIRTY: u64 = 1 << 55;

/// Microseconds of one list, or why there is none.
#[derive(Serialize, Clone)]
pub struct List {
    pub way: &'static str,
    pub micros: Option<f64>,
    pub note: Option<String>,
}

/// All ways, of memory of `size` bytes of which `resident` are filled and `pages` stored to.
pub fn measure(size: usize, resident: usize, pages: &[u64], rounds: usize) -> Vec<List> {
    let list = |way, outcome: Result<Duration>| match outcome {
        Ok(time) => List { way, micros: Some(time.as_secs_f64() * 1e6), note: None },
        Err(error) => List { way, micros: None, note: Some(error.to_string()) },
    };
    let best = |mut ask: Box<dyn FnMut() -> Result<Duration>>| -> Result<Duration> {
        let all = (0..rounds.max(1)).map(|_| ask()).collect::<Result<Vec<_>>>()?;
        Ok(all.into_iter().min().unwrap_or_default())
    };
    let foldspace = Foldspace::new(size, resident).and_then(|mut guest| {
        let pages = pages.to_vec();
        best(Box::new(move || guest.list(&pages)))
    });
    let scanned = Scanned::new(size, resident).and_then(|mut memory| {
        let pages = pages.to_vec();
        best(Box::new(move || memory.list(&pages)))
    });
    let soft = Region::anonymous(size).and_then(|memory| {
        let (memory, pages) = (memory.filled(resident), pages.to_vec());
        best(Box::new(move || soft_dirty(&memory, &pages)))
    });
    vec![
        list("Foldspace, diff against a snapshot", foldspace),
        list("userfaultfd (WP_ASYNC) and PAGEMAP_SCAN", scanned),
        list("soft-dirty: clear_refs and pagemap", soft),
    ]
}

/// Clears the bits, stores, and reads all entries.
fn soft_dirty(memory: &Region, pages: &[u64]) -> Result<Duration> {
    fs::write("/proc/self/clear_refs", "4")?;
    pages.iter().for_each(|page| memory.store(*page, 0));
    let (found, listed) = timed(|| {
        let mut pagemap = fs::File::open("/proc/self/pagemap")?;
        pagemap.seek(SeekFrom::Start(memory.base() as u64 / PAGE as u64 * 8))?;
        let mut entries = vec![0; memory.len() / PAGE * 8];
        pagemap.read_exact(&mut entries)?;
        let numbers = entries.chunks_exact(8).map(|entry| entry.try_into().map_or(0, u64::from_le_bytes));
        Ok(numbers.filter(|entry| entry & SOFT_DIRTY != 0).count())
    })?;
    anyhow::ensure!(
        found == pages.len(),
        "this kernel does not do it (CONFIG_MEM_SOFT_DIRTY): {found} pages listed of {}",
        pages.len()
    );
    Ok(listed)
}
