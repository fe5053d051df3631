//! What it costs an allocator to fill everything that it hands out with a pattern, as hardened allocators and sanitizers do:
//! not at all, by writing it, and by mapping a reference page, when a program then uses little, half, or all of it.
//!
//! `refpage [--wall] [--json] [MIB]` (256 MiB unless told)
//!
//! Each case runs in a process of its own: it allocates, uses, looks at its resident size, and checks every page. Costs are
//! guest instructions (true under QEMU's `-icount`), or nanoseconds with `--wall`. Linux has no reference pages; there the
//! first two ways are measured.

use foldspace_guest_measure::figures::Status;
use foldspace_guest_measure::heap::{self, Fill, Heap, Use};
use foldspace_guest_measure::{Counter, Shared, process, region};
use lexopt::prelude::*;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

struct Arguments {
    counter: Counter,
    json: bool,
    mib: usize,
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    let mut arguments = Arguments { counter: Counter::Instructions, json: false, mib: 256 };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("wall") => arguments.counter = Counter::Nanoseconds,
            Long("json") => arguments.json = true,
            Value(mib) => arguments.mib = mib.parse()?,
            other => return Err(other.unexpected()),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let outcome = match arguments() {
        Ok(arguments) => all(&arguments),
        Err(error) => {
            eprintln!("refpage: {error}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("refpage: {error}");
            ExitCode::FAILURE
        }
    }
}

fn all(arguments: &Arguments) -> io::Result<()> {
    region::small_pages_only();
    let unit = arguments.counter.unit();
    if !arguments.json {
        println!(
            "{:8} {:14} {:>16} {:>10} {:>14} {:>10}",
            "used", "filled by", unit, "of none", "resident, KiB", "of none"
        );
    }
    for usage in Use::ALL {
        let mut none = None;
        for fill in Fill::ALL {
            let Some(figures) = in_a_process(arguments, fill, usage)? else { continue };
            let base = *none.get_or_insert(figures);
            if arguments.json {
                let line = serde_json::json!({
                    "use": usage.name(), "fill": fill.name(), "mib": arguments.mib,
                    "cost": figures.cost, "unit": unit, "resident_kib": figures.resident_kib,
                });
                println!("{line}");
            } else {
                let ratio = |value: u64, base: u64| format!("{:.3}", value as f64 / base.max(1) as f64);
                println!(
                    "{:8} {:14} {:>16} {:>10} {:>14} {:>10}",
                    usage.name(),
                    fill.name(),
                    figures.cost,
                    ratio(figures.cost, base.cost),
                    figures.resident_kib,
                    ratio(figures.resident_kib, base.resident_kib)
                );
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Figures {
    cost: u64,
    resident_kib: u64,
}

/// The figures of one case; `None` if the kernel has no reference pages.
fn in_a_process(arguments: &Arguments, fill: Fill, usage: Use) -> io::Result<Option<Figures>> {
    let shared = Shared::new()?;
    process::in_child(|| {
        let before = resident_kib()?;
        let start = arguments.counter.now();
        let mut heap = match Heap::new(fill) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
            heap => heap?,
        };
        let blocks = heap::allocate_and_use(&mut heap, arguments.mib, usage)?;
        shared.set(1, arguments.counter.now() - start);
        shared.set(2, resident_kib()?.saturating_sub(before));
        if !heap::holds_the_pattern(&blocks, usage, fill) {
            return Err(io::Error::other(format!(
                "{}, {}: a page does not hold what it should",
                usage.name(),
                fill.name()
            )));
        }
        shared.set(0, 1);
        Ok(())
    })?;
    Ok((shared.get(0) == 1).then(|| Figures { cost: shared.get(1), resident_kib: shared.get(2) }))
}

fn resident_kib() -> io::Result<u64> {
    Status::of("self")?.kib("VmRSS").ok_or_else(|| io::Error::other("status has no VmRSS"))
}
