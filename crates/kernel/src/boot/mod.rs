//! From the loader to the first process.

mod entry;
pub mod info;
mod memory;
mod processors;

use crate::{arch, log, sched, time};

/// First Rust code, on the boot stack and the boot tables.
///
/// # Safety
/// Called once, by `entry`, with the physical address of the start info.
unsafe extern "C" fn start(start_info: u32) -> ! {
    log::init();
    // SAFETY: this is boot, each step once, in the order in which they build on each other.
    let info = unsafe {
        arch::init_processor();
        let info = info::read(start_info);
        memory::init(info);
        time::init();
        info
    };
    processors::start_all(&info.processors);
    crate::run(info);
    sched::idle()
}
