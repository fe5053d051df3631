//! A key-value store that saves itself by forking, as Redis does: the child writes what the parent held at that moment, while the parent goes on.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};

use foldspace_guest_measure::counter;
use foldspace_guest_measure::figures::free_kib;
use foldspace_guest_measure::pipe::Pipe;
use foldspace_guest_measure::process::{self, Child, Fork, Gate};
use foldspace_guest_measure::row::{Figures, Row, Settings};
use foldspace_guest_measure::statistics::XorShift;
use foldspace_guest_measure::{Counter, Shared};

const MIB: usize = 256;
/// Bytes of a value, and how many there are.
const VALUE: usize = 1 << 10;
const VALUES: usize = (MIB << 20) / VALUE;
/// Writes of the client before a save, and during it.
const WRITES: usize = 4000;

/// What a row is about.
#[derive(Clone, Copy)]
enum Figure {
    Pause,
    WriteBefore,
    WriteDuring,
    TailBefore,
    TailDuring,
    Memory,
}

pub fn rows() -> Vec<Row> {
    let row = |(name, words, figure): (&str, &str, Figure)| {
        let work = move |settings: &Settings| {
            let runs = (0..settings.effort.runs(3)).map(|_| save(settings.counter, figure));
            runs.collect::<io::Result<Vec<f64>>>().map(Figures::from)
        };
        let row =
            Row::new(name, format!("a store of {MIB} MiB: {words}"), "call", work).needs_mib(2 * MIB as u64 + 128);
        if matches!(figure, Figure::Memory) { row.in_unit("KiB") } else { row }
    };
    [
        ("store_pause", "the pause when it forks to save", Figure::Pause),
        ("store_write", "a write of a client, the server's own time, mean", Figure::WriteBefore),
        ("store_write_saving", "the same during a save", Figure::WriteDuring),
        ("store_write_p99_9", "a write of a client, the server's own time, 99.9 %", Figure::TailBefore),
        ("store_write_saving_p99_9", "the same during a save", Figure::TailDuring),
        ("store_memory", "memory that a save takes, with 4,000 writes to random keys meanwhile", Figure::Memory),
    ]
    .into_iter()
    .map(row)
    .collect()
}

/// Slots of the page that server and client share.
const PAUSE: usize = 0;
const FREE_BEFORE: usize = 1;
const FREE_DURING: usize = 2;
/// Of each phase two: the mean and 99.9 %.
const LATENCIES: usize = 3;

const SAVE: u64 = u64::MAX;
const END: u64 = u64::MAX - 1;

fn save(clock: Counter, figure: Figure) -> io::Result<f64> {
    let shared = Shared::new()?;
    let (requests, replies) = (Pipe::new()?, Pipe::new()?);
    let server = match process::fork()? {
        Fork::Child => process::exit(match serve(clock, &shared, &requests, &replies) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("bench-apps: the store: {error}");
                1
            }
        }),
        Fork::Parent(server) => server,
    };
    let mut random = XorShift::new(0x9e37_79b9_7f4a_7c15);
    let ask = |what: u64| requests.send(&what.to_ne_bytes()).and_then(|()| replies.receive::<1>().map(drop));
    for phase in [SAVE, END] {
        for _ in 0..WRITES {
            ask(random.next_number() % VALUES as u64)?;
        }
        ask(phase)?;
    }
    server.wait()?;
    let latency = |at: usize| shared.get(LATENCIES + at) as f64;
    Ok(match figure {
        Figure::Pause => shared.get(PAUSE) as f64,
        Figure::WriteBefore => latency(0),
        Figure::TailBefore => latency(1),
        Figure::WriteDuring => latency(2),
        Figure::TailDuring => latency(3),
        Figure::Memory => shared.get(FREE_BEFORE) as f64 - shared.get(FREE_DURING) as f64,
    })
}

fn serve(clock: Counter, shared: &Shared, requests: &Pipe, replies: &Pipe) -> io::Result<()> {
    let mut values = vec![0x11u8; VALUES * VALUE];
    let gate = Gate::new()?;
    let mut saver: Option<Child> = None;
    let mut times = Vec::with_capacity(WRITES);
    let mut phase = 0;
    loop {
        let request = u64::from_ne_bytes(requests.receive()?);
        if request == SAVE || request == END {
            latencies(shared, phase, &mut times);
            phase += 1;
            if request == END {
                shared.set(FREE_DURING, free_kib()?);
                gate.open();
                saver.take().map_or(Ok(()), Child::wait)?;
                return replies.send(b".");
            }
            shared.set(FREE_BEFORE, free_kib()?);
            let timed = process::timed_fork(clock)?;
            match timed.side {
                Fork::Child => {
                    let written = write_all(&values);
                    // What it holds stays held until the client is done, however fast it was.
                    gate.pass();
                    process::exit(i32::from(written.is_err()))
                }
                Fork::Parent(child) => saver = Some(child),
            }
            shared.set(PAUSE, timed.end - timed.start);
        } else {
            let start = counter::own_time();
            let at = request as usize * VALUE;
            values[at..at + VALUE].fill(request as u8);
            times.push(counter::own_time() - start);
        }
        replies.send(b".")?;
    }
}

/// The whole store, in large pieces, to where it costs nothing but its copying.
fn write_all(values: &[u8]) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, OpenOptions::new().write(true).open("/dev/null")?);
    for value in values.chunks(VALUE) {
        out.write_all(value)?;
    }
    out.flush()
}

fn latencies(shared: &Shared, phase: usize, times: &mut Vec<u64>) {
    times.sort_unstable();
    let mean = times.iter().sum::<u64>() / times.len().max(1) as u64;
    let tail = times.get((times.len().saturating_sub(1)) * 999 / 1000).copied().unwrap_or(0);
    shared.set(LATENCIES + phase * 2, mean);
    shared.set(LATENCIES + phase * 2 + 1, tail);
    times.clear();
}
