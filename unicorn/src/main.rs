//! The Unicorn engine (QEMU's code generator as a library) with Foldspace's tables as its MMU: the arena is the machine's physical memory, and where the
//! engine's TLB has no entry it asks Foldspace, which resolves faults, copies on write, or refuses.
//!
//! `./x test unicorn`
//!
//! The guest is the program of the example `riscv`, which counts primes by a sieve. One guest runs to a point; others are forked from a snapshot of it, each in
//! an engine of its own. Then the first goes back to the snapshot and runs again.

mod engine;

use std::error::Error;
use std::time::Instant;

use engine::{Engine, Event, Machine};
use foldspace::addr::PAGE_SIZE;
use foldspace_hosted::{Guest, Permissions};

const PROGRAM: &[u8] = include_bytes!("../../crates/hosted/examples/riscv/primes.elf");
const STACK: u64 = 0x7000_0000;

/// Linux's numbers for RISC-V.
const WRITE: u64 = 64;
const EXIT: u64 = 93;

fn main() -> Result<(), Box<dyn Error>> {
    let machine = Machine::new(256 << 20)?;
    let guest = machine.host().guest()?;
    let entry = load(&guest)?;
    guest.map(STACK - 16 * PAGE_SIZE, 16 * PAGE_SIZE, Permissions::READ_WRITE)?;
    let mut first = Engine::new(&machine, &guest, entry)?;
    first.set_register(2, STACK)?;
    assert_eq!(first.run()?, Event::Break, "it stops where it wants to be forked");
    let snapshot = guest.snapshot()?;
    let registers = first.registers()?;

    let started = Instant::now();
    let mut forked = Vec::new();
    for (below, primes) in [(100, 25), (10_000, 1_229), (1_000_000, 78_498)] {
        let guest = machine.host().guest_from(&snapshot)?;
        let mut engine = Engine::new(&machine, &guest, registers.pc)?;
        engine.set_registers(&registers)?;
        engine.set_register(10, below)?;
        let output = to_the_end(&mut engine, &guest)?;
        let stored: u64 = guest.dirty_since(&snapshot).iter().map(|row| row.pages()).sum();
        println!("below {below}: {} ({} faults, {stored} pages stored to)", output.trim_end(), engine.fills());
        assert_eq!(output, format!("{primes}\n"));
        forked.push((guest, stored));
    }
    println!("three guests in {:.2?}", started.elapsed());
    // Each has its own: what they stored is not in the first, and not the same among them.
    assert!(forked.is_sorted_by_key(|(_, stored)| *stored) && forked[0].1 < forked[2].1);
    assert_eq!(guest.dirty_since(&snapshot), []);

    // The first: runs, goes back, runs again. Its engine forgets what the restore has made stale.
    for (below, primes) in [(10_000, "1229\n"), (100, "25\n"), (10_000, "1229\n")] {
        guest.restore(&snapshot)?;
        first.set_registers(&registers)?;
        first.set_register(10, below)?;
        assert_eq!(to_the_end(&mut first, &guest)?, primes);
    }

    // A store that is not allowed stops the engine with the reason.
    guest.restore(&snapshot)?;
    guest.unmap(STACK - 16 * PAGE_SIZE, 16 * PAGE_SIZE)?;
    guest.protect(entry / PAGE_SIZE * PAGE_SIZE, PAGE_SIZE, Permissions::READ)?;
    first.set_registers(&registers)?;
    println!("with its code made unexecutable: {}", first.run().expect_err("a fetch is not allowed"));
    drop((forked, snapshot));
    machine.host().memory().check(&[guest.space()], &[])?;
    Ok(())
}

/// Runs to the program's end; what it wrote.
fn to_the_end(engine: &mut Engine, guest: &Guest) -> Result<String, Box<dyn Error>> {
    let mut output = Vec::new();
    loop {
        let event = engine.run()?;
        let [number, a0, a1, a2] = [17, 10, 11, 12].map(|register| engine.register(register));
        match (event, number?) {
            (Event::Call, WRITE) => {
                let mut bytes = vec![0; a2? as usize];
                if guest.read(a1?, &mut bytes) < bytes.len() {
                    return Err("it writes what it cannot read".into());
                }
                engine.set_register(10, bytes.len() as u64)?;
                output.extend(bytes);
            }
            (Event::Call, EXIT) if a0? == 0 => return Ok(String::from_utf8(output)?),
            (event, number) => return Err(format!("{event:?} {number}").into()),
        }
    }
}

/// Maps what the program's headers say and copies it in; where it begins.
fn load(guest: &Guest) -> Result<u64, Box<dyn Error>> {
    use elf::abi::{PF_W, PF_X, PT_LOAD};
    let file = elf::ElfBytes::<elf::endian::LittleEndian>::minimal_parse(PROGRAM)?;
    for segment in file.segments().ok_or("no segments")?.iter().filter(|segment| segment.p_type == PT_LOAD) {
        let start = segment.p_vaddr / PAGE_SIZE * PAGE_SIZE;
        let end = (segment.p_vaddr + segment.p_memsz).next_multiple_of(PAGE_SIZE);
        let permissions = match (segment.p_flags & PF_W != 0, segment.p_flags & PF_X != 0) {
            (true, true) => Permissions::ALL,
            (true, false) => Permissions::READ_WRITE,
            (false, true) => Permissions::READ_EXECUTE,
            (false, false) => Permissions::READ,
        };
        guest.map(start, end - start, permissions)?;
        let bytes = file.segment_data(&segment)?;
        if guest.load_image(segment.p_vaddr, bytes) != bytes.len() {
            return Err("the program does not fit".into());
        }
    }
    Ok(file.ehdr.e_entry)
}
