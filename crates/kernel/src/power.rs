//! Switching the machine off, and the report that goes before.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

use foldspace::AddressSpace;

use crate::arch::{self, Serial, serial};
use crate::boot::info::info;
use crate::fs::procfs::frames::rows;
use crate::mm::{self, objects, stack};
use crate::process::exit::ExitStatus;
use crate::syscall::unknown::{self, UnknownCall};
use crate::{panic, picture, process};

/// What is written to isa-debug-exit: QEMU then exits with status 33.
const ORDERLY_EXIT: u32 = 0x10;

/// The port that whoever started the machine listens to.
pub const CONTROL_PORT: usize = 2;

static FREE_AT_BOOT_END: AtomicU64 = AtomicU64::new(0);

/// Whether the manager's invariants are to be verified when the machine is switched off.
pub fn checks_at_end() -> bool {
    match info().option("foldspace.check") {
        Some(value) => value != "0",
        None => cfg!(debug_assertions),
    }
}

/// Remembers what is free before the first process runs.
pub fn boot_is_over() {
    FREE_AT_BOOT_END.store(free_frames(), Ordering::Relaxed);
}

/// The first process has ended, so nothing is left to do.
pub fn first_process_ended(status: ExitStatus) -> ! {
    log::info!("the first process has ended: {status:?}");
    off()
}

/// Reports, and switches the machine off. With a violated invariant it panics instead.
///
/// The caller holds no lock; other processors stop first, each where it holds none.
pub fn off() -> ! {
    if !arch::park_others() {
        arch::park_if_told();
    }
    // SAFETY: all others have stopped, none of them in the middle of anything.
    unsafe { mm::flush_epochs_of_all() };
    report();
    if checks_at_end() {
        check();
    }
    arch::poweroff(ORDERLY_EXIT)
}

/// Frames that processes could have: the free ones, and those that the kernel's heap and stacks have taken and will use again.
fn free_frames() -> u64 {
    stack::trim();
    let memory = mm::memory();
    memory.reclaim();
    memory.stats().free + mm::heap_frames() + stack::stack_frames()
}

fn check() {
    // Tasks may share an address space; those that have ended share an empty one.
    let mut spaces: Vec<Arc<AddressSpace>> = Vec::from([process::empty_space()]);
    for task in process::all() {
        let space = task.space();
        if !spaces.iter().any(|known| Arc::ptr_eq(known, &space)) {
            spaces.push(space);
        }
    }
    let objects = objects::all();
    let spaces: Vec<&AddressSpace> = spaces.iter().map(|space| &**space).collect();
    let objects: Vec<_> = objects.iter().map(|object| &**object).collect();
    match mm::memory().check(&spaces, &objects) {
        Ok(()) => log::info!("checked {} address spaces and {} objects", spaces.len(), objects.len()),
        Err(violation) => panic::die(format_args!("an invariant does not hold: {violation:?}"), None),
    }
}

/// One line of JSON on the control port.
fn report() {
    let free_at_end = free_frames();
    let (total, free_at_boot_end) = (mm::memory().stats().total, FREE_AT_BOOT_END.load(Ordering::Relaxed));
    let mut port = Port(serial(CONTROL_PORT));
    // Writing to a serial port cannot fail.
    let _ = write!(
        port,
        r#"{{"kernel":"foldspace","frames":{{"total":{total},"free_at_boot_end":{free_at_boot_end},"free_at_end":{free_at_end},"heap":{},"stacks":{}}},"unknown_syscalls":["#,
        mm::heap_frames(),
        stack::stack_frames(),
    );
    for (index, call) in unknown::list().iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        let _ = write!(port, "{separator}{}", Json(call));
    }
    let _ = writeln!(port, "]}}");
}

bitflags::bitflags! {
    /// What is told when a process ends.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct AtEnd: u8 {
        /// Who maps which frame.
        const FRAMES = 1;
        /// All address spaces.
        const SNAPSHOT = 2;
    }
}

/// A process that was asked to tell something ends, and has its memory still.
pub fn program_ends(tells: u8) {
    let tells = AtEnd::from_bits_truncate(tells);
    if tells.contains(AtEnd::FRAMES) {
        report_frames();
    }
    if tells.contains(AtEnd::SNAPSHOT) {
        picture::take(b"the program ends");
    }
}

/// Who maps which frame now: a line of JSON on the control port for each run of frames.
fn report_frames() {
    let port = serial(CONTROL_PORT);
    let complete = rows(|row| {
        let (first, count) = row.frames;
        let mut line = String::new();
        // Writing to a String cannot fail.
        let _ = write!(line, r#"{{"mapped_frames":[{{"first":{first},"count":{count},"used":"{}""#, row.used);
        if let Some((path, page)) = &row.file {
            let _ = write!(line, r#","file":"{}","page":{page}"#, Escaped(path));
        }
        let _ = line.write_str(r#","places":["#);
        for (number, (pid, at)) in row.places.iter().enumerate() {
            let separator = if number == 0 { "" } else { "," };
            let _ = write!(line, "{separator}[{pid},{}]", at.get());
        }
        line.push_str("]}]}\n");
        port.write(line.as_bytes());
    });
    if !complete {
        log::warn!("no heap to say who maps which frame");
    }
}

/// Formats into a serial port.
struct Port(&'static Serial);

impl Write for Port {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// An unknown call as a JSON object.
struct Json<'a>(&'a UnknownCall);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownCall { number, program } = self.0;
        let name = self.0.name().unwrap_or_default();
        write!(f, r#"{{"nr":{number},"name":"{name}","program":"{}"}}"#, Escaped(program))
    }
}

/// Bytes as they stand in a string of JSON.
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in String::from_utf8_lossy(self.0).chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '\0'..'\x20' => write!(f, "\\u{:04x}", u32::from(character))?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}
