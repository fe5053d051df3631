//! Which code a measurement executes: a plugin for QEMU's emulation in software.
//!
//! A measuring program reads the time-stamp counter before and after what it measures. From the first place in user code that does, to any other place
//! that does, each block of instructions is counted; at the end the counts are written to the file that `out=` names: address, instructions in the block, times executed.
//!
//! QEMU's interface for plugins (docs/devel/tcg-plugins in its sources), version 1, as QEMU 7.2 has it; its functions are those of the program that loads the plugin.

#![allow(non_upper_case_globals, reason = "a name that QEMU looks for")]

mod qemu;

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt::Write;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The version of the interface that this is made for.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// `rdtsc`.
const RDTSC: [u8; 2] = [0x0f, 0x31];
/// Above are the kernel's addresses.
const USER_END: u64 = 1 << 47;

/// Instructions that are executed one after the other.
struct Block {
    instructions: u64,
    executed: AtomicU64,
}

/// By first address and number of instructions. They stay to the end: QEMU's translations refer to them.
static BLOCKS: Mutex<Option<HashMap<(u64, u64), &'static Block>>> = Mutex::new(None);
static OUT: OnceLock<String> = OnceLock::new();

/// Whether something is being measured.
static COUNTING: AtomicBool = AtomicBool::new(false);
/// Where measuring begins: the first place that read the counter; 0 before.
static START: AtomicU64 = AtomicU64::new(0);

/// What QEMU calls when it has loaded the plugin.
///
/// # Safety
/// `argv` has `argc` strings that end with NUL, as QEMU promises.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    for at in 0..argc.max(0) as usize {
        // SAFETY: by this function's contract.
        let argument = unsafe { CStr::from_ptr(*argv.add(at)) };
        if let Some(path) = argument.to_str().ok().and_then(|text| text.strip_prefix("out=")) {
            let _ = OUT.set(path.to_owned());
        }
    }
    if OUT.get().is_none() {
        return 1;
    }
    qemu::on_translation(id, translated);
    qemu::at_exit(id, ended);
    0
}

/// A block has been translated: from now on its executions are counted.
extern "C" fn translated(_id: u64, block: *mut qemu::Translation) {
    let block = qemu::Piece::of(block);
    let known = {
        let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let (address, instructions) = (block.address(), block.instructions());
        let make = || &*Box::leak(Box::new(Block { instructions, executed: AtomicU64::new(0) }));
        *blocks.get_or_insert_default().entry((address, instructions)).or_insert_with(make)
    };
    block.on_execution(executed, std::ptr::from_ref(known).cast_mut().cast());
    for at in 0..block.instructions() {
        let (address, bytes) = block.instruction(at);
        if address < USER_END && bytes == RDTSC {
            block.on_instruction(at, clock_read, std::ptr::without_provenance_mut(address as usize));
        }
    }
}

extern "C" fn executed(_processor: c_uint, block: *mut c_void) {
    if COUNTING.load(Ordering::Relaxed) {
        // SAFETY: what `translated` gave: a block that is never freed, of which only the counter changes.
        let block = unsafe { &*block.cast::<Block>() };
        block.executed.fetch_add(1, Ordering::Relaxed);
    }
}

extern "C" fn clock_read(_processor: c_uint, address: *mut c_void) {
    let address = address.addr() as u64;
    let start = START.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|start| start);
    COUNTING.store(start == 0 || start == address, Ordering::Relaxed);
}

extern "C" fn ended(_id: u64, _data: *mut c_void) {
    let blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    for ((address, _), block) in blocks.iter().flatten() {
        let executed = block.executed.load(Ordering::Relaxed);
        if executed > 0 {
            let _ = writeln!(text, "{address:#x} {} {executed}", block.instructions);
        }
    }
    if let Some(Err(error)) = OUT.get().map(|path| fs::write(path, text)) {
        eprintln!("foldspace-profiler: {error}");
    }
}
