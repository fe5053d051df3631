//! The machine as the program shall find it.

use std::path::Path;

use foldspace_wire::ttys;
use nix::mount::{MsFlags, mount};
use nix::time::{ClockId, clock_gettime};

/// Mounts the kernel's own file systems where they are missing.
///
/// Foldspace boots with `/dev`, `/proc` and `/sys` in place; Linux leaves both to its first process. A failure shows later, in
/// words that name what is missing, when something is opened there.
pub fn mount_missing() {
    let missing = |proof: &str| !Path::new(proof).exists();
    if missing("/proc/self") {
        mount_at("proc", "/proc");
    }
    if missing(ttys::OUTPUT) {
        mount_at("devtmpfs", "/dev");
        // Only Linux gets here.
        mount_at("sysfs", "/sys");
    }
    // Where C libraries keep what programs share by name.
    if std::fs::create_dir_all("/dev/shm").is_ok() {
        mount_at("tmpfs", "/dev/shm");
    }
}

fn mount_at(kind: &str, place: &str) {
    let _ = mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>);
}

/// The monotonic clock, in nanoseconds; 0 where there is none.
pub fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |now| now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs())
}
