//! Loads and stores of 8 bytes at places that nobody could guess: nanoseconds of each.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::ways::{FOLDSPACE_BASE, Foldspace, PAGE, Region};

/// Accesses that are timed together.
const ACCESSES: u64 = 20_000;

/// Nanoseconds of one access.
#[derive(Serialize, Clone)]
pub struct Throughput {
    pub way: &'static str,
    /// Bytes that the places lie in.
    pub bytes: usize,
    pub load: f64,
    pub store: f64,
}

/// All of those that access memory in a way of their own, within the first `bytes`.
pub fn measure(bytes: usize) -> Result<Vec<Throughput>> {
    let mut found = Vec::new();
    let plain = Region::anonymous(bytes)?.filled(bytes);
    found.push(Throughput {
        way: "a pointer of the host",
        bytes,
        load: each(bytes, |at| Ok(plain.load_at(at)))?,
        store: each(bytes, |at| {
            plain.store_at(at, 1);
            Ok(0)
        })?,
    });
    let memory: GuestMemoryMmap<()> = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), bytes)])?;
    for page in 0..bytes / PAGE {
        memory.write_obj(1_u64, GuestAddress((page * PAGE) as u64))?;
    }
    found.push(Throughput {
        way: "vm-memory",
        bytes,
        load: each(bytes, |at| Ok(memory.read_obj::<u64>(GuestAddress(at as u64))?))?,
        store: each(bytes, |at| {
            memory.write_obj(1_u64, GuestAddress(at as u64))?;
            Ok(0)
        })?,
    });
    let mut guest = Foldspace::new(bytes, bytes)?;
    let (base, cpu) = (FOLDSPACE_BASE, guest.cpu());
    found.push(Throughput {
        way: "Foldspace",
        bytes,
        load: each(bytes, |at| Ok(u64::from_le_bytes(cpu.load(base + at as u64)?)))?,
        store: each(bytes, |at| {
            cpu.store(base + at as u64, 1_u64.to_le_bytes())?;
            Ok(0)
        })?,
    });
    Ok(found)
}

fn each(bytes: usize, mut access: impl FnMut(usize) -> Result<u64>) -> Result<f64> {
    let (mut state, mut sum) = (0x9e37_79b9_7f4a_7c15_u64, 0_u64);
    let mut best = f64::INFINITY;
    // The shortest: what the machine does besides only adds.
    for _ in 0..200 {
        let start = Instant::now();
        for _ in 0..ACCESSES {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 20) as usize % (bytes / 8) * 8;
            sum = sum.wrapping_add(access(at)?);
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / ACCESSES as f64);
    }
    black_box(sum);
    Ok(best)
}
