//! A small RISC-V emulator (RV64IM, user mode) whose guests' memory Foldspace manages: one guest runs to a point, and others are forked from a snapshot of
//! it, each on a thread of its own, with an argument of its own.
//!
//! `cargo run -p foldspace-hosted --release --example riscv`
//!
//! The program is `primes.S`: it counts the primes below a number by a sieve, and prints how many there are.

mod hart;
mod program;

use std::error::Error;
use std::thread;
use std::time::Instant;

use foldspace::addr::PAGE_SIZE;
use foldspace_hosted::{Host, Permissions};
use hart::{Event, Hart};
use program::load;

const PROGRAM: &[u8] = include_bytes!("primes.elf");
const STACK: u64 = 0x7000_0000;

/// Linux's numbers for RISC-V.
const WRITE: u64 = 64;
const EXIT: u64 = 93;

/// The example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let host = Host::new(256 << 20)?;
    let guest = host.guest()?;
    let entry = load(&guest, PROGRAM)?;
    guest.map(STACK - 16 * PAGE_SIZE, 16 * PAGE_SIZE, Permissions::READ_WRITE)?;
    let mut hart = Hart::new(guest.cpu(), entry);
    hart.registers[2] = STACK;
    assert_eq!(hart.run()?, Event::Break, "it stops where it wants to be forked");
    let snapshot = guest.snapshot()?;

    let expected = [(100, 25), (10_000, 1_229), (100_000, 9_592), (1_000_000, 78_498)];
    let started = Instant::now();
    let outcomes = thread::scope(|scope| {
        let guests = expected.map(|(below, _)| {
            let (host, snapshot, hart) = (&host, &snapshot, &hart);
            scope.spawn(move || -> Result<(String, u64, u64), String> {
                let guest = host.guest_from(snapshot).map_err(|error| error.to_string())?;
                let mut hart = hart.in_guest(guest.cpu());
                hart.registers[10] = below;
                let output = run(&mut hart).map_err(|error| error.to_string())?;
                let stored = guest.dirty_since(snapshot).iter().map(|row| row.pages()).sum();
                Ok((output, hart.executed, stored))
            })
        });
        guests.map(|guest| guest.join().expect("a guest does not panic"))
    });
    let time = started.elapsed();
    let mut executed = 0;
    for ((below, primes), outcome) in expected.into_iter().zip(outcomes) {
        let (output, instructions, stored) = outcome?;
        println!("below {below}: {} ({instructions} instructions, {stored} pages stored to)", output.trim_end());
        assert_eq!(output, format!("{primes}\n"));
        executed += instructions;
    }
    println!("{:.1} million instructions a second, four guests together", executed as f64 / time.as_secs_f64() / 1e6);
    Ok(())
}

/// Runs to the end; what it wrote.
fn run(hart: &mut Hart) -> Result<String, Box<dyn Error>> {
    let mut output = Vec::new();
    loop {
        let event = hart.run()?;
        let [number, a0, a1, a2] = [17, 10, 11, 12].map(|register| hart.registers[register]);
        match (event, number) {
            (Event::Call, WRITE) => {
                let _descriptor = a0;
                let mut bytes = vec![0; a2 as usize];
                hart.cpu.load_slice(a1, &mut bytes)?;
                output.extend(bytes);
                hart.registers[10] = a2;
            }
            (Event::Call, EXIT) if a0 == 0 => return Ok(String::from_utf8(output)?),
            (event, number) => return Err(format!("{event:?} {number}, status {a0}").into()),
        }
    }
}
