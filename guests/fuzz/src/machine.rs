//! Whether the machine works, and what it has.

use foldspace_guest_measure::{PAGES_PER_MIB, Region, figures, process};
use std::fs;
use std::io::{self, Read, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Free memory in KiB.
pub fn free_kib() -> Result<u64, String> {
    figures::free_kib().map_err(|error| format!("free memory cannot be asked for: {error}"))
}

/// Free memory when what was freed has arrived: the highest of some looks, with processes that come and go in between, until it is `enough` or a while
/// has passed in vain. Processes that were killed take their time on a busy machine.
pub fn settled_free_kib(enough: u64) -> Result<u64, String> {
    let (mut most, began) = (0, Instant::now());
    while most < enough && began.elapsed() < Duration::from_secs(10) {
        let _ = process::in_child(|| Ok(()));
        sleep(Duration::from_millis(20));
        most = most.max(free_kib()?);
    }
    Ok(most)
}

/// Kills what a child has left behind: every process that is younger than it.
pub fn stop_strangers(child: i32) -> Result<(), String> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid > child as u32 && pid != own {
            // SAFETY: sends a signal.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
    }
    Ok(())
}

/// Memory can be had, kept and shared, processes made, files written: in a process of its own.
pub fn works() -> Result<(), String> {
    process::in_child(|| {
        let pages = 8 * PAGES_PER_MIB;
        let mut region = Region::filled(pages)?;
        process::in_child(|| {
            let mut mine = Region::filled(64)?;
            mine.write(0, 7);
            Ok(())
        })?;
        (0..pages).step_by(2).for_each(|page| region.write(page, 5));
        let right = |page: usize| region.read(page) == if page.is_multiple_of(2) { 5 } else { page as u64 + 1 };
        if !(0..pages).all(right) {
            return Err(io::Error::other("memory does not hold what was written"));
        }
        let path = "/tmp/fuzz.works";
        fs::File::create(path)?.write_all(b"works")?;
        let mut text = String::new();
        fs::File::open(path)?.read_to_string(&mut text)?;
        fs::remove_file(path)?;
        if text == "works" { Ok(()) } else { Err(io::Error::other("a file does not hold what was written")) }
    })
    .map_err(|error| format!("the machine does not work: {error}"))
}
