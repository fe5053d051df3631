//! A process and its child on a hosted machine: what fork takes, what the first store takes, and what `/proc/PID/maps` would show.
//!
//! `cargo run -p foldspace-hosted --release --example embed`

use std::error::Error;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts};

fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::new(256 << 20)?;
    let parent = AddressSpace::new(host.memory(), Layouts::process())?;
    parent.brk(VirtAddr(parent.layout().start_brk.get() + 4 * PAGE_SIZE));
    let data = parent.map(MapRequest {
        placement: Placement::Anywhere,
        len: 128 << 20,
        flags: VmaFlags::READ | VmaFlags::WRITE | VmaFlags::MAY_READ | VmaFlags::MAY_WRITE,
        backing: Backing::Anonymous,
        page_offset: 0,
    })?;

    let mut processor = host.processor(CacheSize::Bounded(1536));
    processor.activate(&parent);
    for page in 0..(128 << 20) / PAGE_SIZE {
        processor.store(VirtAddr(data.get() + page * PAGE_SIZE), b"parent")?;
    }
    let tables = || {
        host.memory().reclaim();
        host.memory().stats().tables
    };

    let before = tables();
    let child = parent.fork()?;
    let forked = tables();
    processor.activate(&child);
    processor.store(data, b"child ")?;
    let stored = tables();
    println!("resident before the fork  {:>8} pages in {before} tables", parent.usage().resident_anon);
    println!("the fork took             {:>8} table", forked - before);
    println!("the child's first store   {:>8} tables", stored - forked);

    let mut seen = [0; 6];
    processor.activate(&parent);
    processor.load(data, &mut seen)?;
    println!("the parent still sees     {:>8}", String::from_utf8_lossy(&seen));
    print!("\nmaps of the child:\n{}", String::from_utf8_lossy(&child.maps().text()));
    Ok(())
}
