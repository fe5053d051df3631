#![doc = include_str!("../README.md")]
#![no_std]
#![no_main]

extern crate alloc;

mod arch;
mod boot;
mod errno;
mod fs;
mod log;
mod mm;
mod panic;
mod picture;
mod power;
mod process;
mod sched;
mod sync;
mod syscall;
mod time;

use boot::info::BootInfo;

/// After the machine has been set up, before the first process: files from the initial archive, then pid 1.
fn run(info: &'static BootInfo) {
    fs::init_from_cpio(info.archive_bytes());
    power::boot_is_over();
    process::start_init();
}
