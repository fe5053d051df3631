//! A fuzz loop over a real parser, cJSON, compiled for RISC-V: each execution begins with `Guest::restore` of one snapshot, and what the interpreter sees of
//! jumps is the coverage. Run twice: cJSON as it is, and with a bug planted (`guest/build.sh` says which), which has to be found.
//!
//! `cargo run -p foldspace-hosted --release --example fuzz [-- EXECUTIONS]`
//!
//! The input lies at the end of a page, and there is nothing behind it: a parser that reads on faults.

mod coverage;
#[path = "../riscv/hart.rs"]
mod hart;
mod mutate;
#[path = "../riscv/program.rs"]
mod program;

use std::error::Error;
use std::time::Instant;

use coverage::Coverage;
use foldspace::addr::PAGE_SIZE;
use foldspace::space::Snapshot;
use foldspace_hosted::{Guest, Host, Permissions};
use hart::{Event, Hart, Trap};
use mutate::mutate;
use program::load;

const PARSER: &[u8] = include_bytes!("guest/cjson.elf");
const PLANTED: &[u8] = include_bytes!("guest/cjson-planted.elf");

const STACK: u64 = 0x7000_0000;
/// Enough for an array in an array, as deep as the longest input says.
const STACK_PAGES: u64 = 64;
/// A page; the input ends where it ends.
const INPUT: u64 = 0x7100_0000;
const MOST_INPUT: usize = 512;
/// Instructions after which an execution counts as one that does not end.
const BUDGET: u64 = 5_000_000;
const SEEDS: [&[u8]; 3] = [br#"{"name": ["a", 1, -2.5e3]}"#, br#"[true, false, null]"#, br#""\u00e9\n""#];

/// How an execution ended.
#[derive(Debug)]
enum Outcome {
    /// The parser took the input, or refused it.
    Parsed,
    Refused,
    Crashed(Trap),
    Endless,
}

/// A parser that waits for its input, and a guest that goes back there.
struct Target {
    host: Host,
    guest: Guest,
    snapshot: Snapshot,
    ready: Hart,
    hart: Hart,
}

impl Target {
    /// Runs the program to where it waits for its input.
    fn new(program: &[u8]) -> Result<Target, Box<dyn Error>> {
        let host = Host::new(64 << 20)?;
        let guest = host.guest()?;
        let entry = load(&guest, program)?;
        guest.map(STACK - STACK_PAGES * PAGE_SIZE, STACK_PAGES * PAGE_SIZE, Permissions::READ_WRITE)?;
        guest.map(INPUT, PAGE_SIZE, Permissions::READ_WRITE)?;
        let mut ready = Hart::new(guest.cpu(), entry);
        ready.registers[2] = STACK;
        if ready.run()? != Event::Break {
            return Err("the program ends before it asks for its input".into());
        }
        let snapshot = guest.snapshot()?;
        let hart = ready.in_guest(guest.cpu());
        Ok(Target { host, guest, snapshot, ready, hart })
    }

    /// One execution, in the guest that goes back to the snapshot.
    fn execute(&mut self, input: &[u8], coverage: &mut Coverage) -> Result<Outcome, Box<dyn Error>> {
        self.guest.restore(&self.snapshot)?;
        (self.hart.registers, self.hart.pc) = (self.ready.registers, self.ready.pc);
        parse(&self.guest, &mut self.hart, input, coverage)
    }

    /// One execution, in a new guest: what a fork server does.
    fn execute_forked(&self, input: &[u8], coverage: &mut Coverage) -> Result<Outcome, Box<dyn Error>> {
        let guest = self.host.guest_from(&self.snapshot)?;
        parse(&guest, &mut self.ready.in_guest(guest.cpu()), input, coverage)
    }
}

fn parse(guest: &Guest, hart: &mut Hart, input: &[u8], coverage: &mut Coverage) -> Result<Outcome, Box<dyn Error>> {
    let at = INPUT + PAGE_SIZE - input.len() as u64;
    if guest.write(at, input) != input.len() {
        return Err("no room for the input".into());
    }
    (hart.registers[10], hart.registers[11]) = (at, input.len() as u64);
    Ok(match hart.run_for(BUDGET, |from, to| coverage.jumped(from, to)) {
        Ok(Some(Event::Call)) if hart.registers[10] == 1 => Outcome::Parsed,
        Ok(Some(_)) => Outcome::Refused,
        Ok(None) => Outcome::Endless,
        Err(trap) => Outcome::Crashed(trap),
    })
}

/// What a campaign has found.
struct Findings {
    executions: u64,
    corpus: Vec<Vec<u8>>,
    edges: (usize, usize),
    crash: Option<(Vec<u8>, Outcome)>,
}

/// At most so many executions; ends at the first crash.
fn campaign(target: &mut Target, most: u64) -> Result<Findings, Box<dyn Error>> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut coverage = Coverage::new();
    let mut findings = Findings { executions: 0, corpus: Vec::new(), edges: (0, 0), crash: None };
    let mut waiting: Vec<Vec<u8>> = SEEDS.map(<[u8]>::to_vec).into();
    let mut seeds = waiting.len();
    while findings.executions < most {
        let input = waiting.pop().unwrap_or_else(|| mutate(&findings.corpus, MOST_INPUT, &mut random));
        let outcome = target.execute(&input, &mut coverage)?;
        findings.executions += 1;
        if let Outcome::Crashed(_) | Outcome::Endless = outcome {
            findings.crash = Some((input, outcome));
            break;
        }
        let is_seed = seeds > 0;
        if coverage.is_new() || is_seed {
            findings.corpus.push(input);
        }
        seeds = seeds.saturating_sub(1);
        if is_seed && seeds == 0 {
            findings.edges.0 = coverage.edges();
        }
    }
    findings.edges.1 = coverage.edges();
    Ok(findings)
}

/// The example: so many executions of each parser at most.
pub fn fuzz(most: u64) -> Result<(), Box<dyn Error>> {
    let mut target = Target::new(PARSER)?;
    let started = Instant::now();
    let found = campaign(&mut target, most)?;
    let rate = found.executions as f64 / started.elapsed().as_secs_f64();
    println!(
        "cJSON: {} executions, {rate:.0} a second by restore, {} instructions each; {} edges (seeds: {}), {} inputs kept",
        found.executions,
        target.hart.executed / found.executions,
        found.edges.1,
        found.edges.0,
        found.corpus.len()
    );
    if let Some((input, outcome)) = found.crash {
        return Err(format!("cJSON itself: {outcome:?} with {:?}", String::from_utf8_lossy(&input)).into());
    }
    assert!(found.edges.1 > found.edges.0, "mutations come to code that seeds do not come to");

    // The same inputs, each in a guest of its own.
    let started = Instant::now();
    let mut parsed = 0;
    let forks = (most / 10).max(1);
    let mut coverage = Coverage::new();
    for (input, _) in found.corpus.iter().cycle().zip(0..forks) {
        parsed += u64::from(matches!(target.execute_forked(input, &mut coverage)?, Outcome::Parsed));
        coverage.is_new();
    }
    let rate = forks as f64 / started.elapsed().as_secs_f64();
    println!("the kept inputs again: {forks} executions, {rate:.0} a second by a new guest each, {parsed} parsed");

    let mut target = Target::new(PLANTED)?;
    let started = Instant::now();
    let found = campaign(&mut target, most.saturating_mul(20))?;
    let Some((input, outcome)) = found.crash else {
        return Err(format!("the planted bug was not found in {} executions", found.executions).into());
    };
    println!("with a bug planted: found after {} executions, {:.2?}", found.executions, started.elapsed());
    println!("  {:?}", String::from_utf8_lossy(&input));
    let Outcome::Crashed(trap) = outcome else { return Err("the planted bug is no endless loop".into()) };
    println!("  {trap}");
    Ok(())
}

/// Runs it.
#[allow(dead_code, reason = "the test calls `fuzz`")]
pub fn main() -> Result<(), Box<dyn Error>> {
    fuzz(std::env::args().nth(1).map_or(Ok(100_000), |number| number.parse())?)
}
