//! Runs the actors of a case under many schedules, and compares what comes of each with what comes of one operation after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use foldspace::space::ForkMode;
use foldspace::sync::explore;
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

use crate::op::Op;
use crate::schedule::OnePreemption;
use crate::stage::{Family, Hands, Stage, Who};

/// A thread of a program that runs in one of the address spaces.
#[derive(Clone, Debug)]
pub struct Actor {
    pub who: Who,
    /// What its processors have done before, so that they remember translations.
    pub warm: Vec<Op>,
    pub ops: Vec<Op>,
}

/// A few actors at once.
#[derive(Clone, Debug)]
pub struct Case {
    pub family: Family,
    pub mode: ForkMode,
    pub actors: Vec<Actor>,
    /// What each outcome has to be.
    pub rule: Rule,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.family, self.mode)?;
        for Actor { who, warm, ops } in &self.actors {
            write!(f, "; {who:?} {ops:?} after {warm:?}")?;
        }
        Ok(())
    }
}

/// What each outcome has to be, beside that the invariants hold and nothing is stale or lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// That of one operation after the other, in some order that keeps the order of each actor's.
    Serial,
    /// Anything. Frames run out after so many more have been allocated; operations may fail.
    OutOfMemory(u32),
}

/// How much to explore.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Schedules with one preemption, of each case.
    pub systematic: usize,
    /// Random schedules of each case, and PCT schedules.
    pub random: usize,
    pub seed: u64,
}

#[derive(Default, Debug)]
pub struct Tally {
    pub schedules: u64,
    pub steps: u64,
    /// Outcomes that were seen, and those that there are of one operation after the other.
    pub seen: usize,
    pub serial: usize,
}

/// A schedule that failed.
#[derive(Debug)]
pub struct Failure {
    pub scheduler: &'static str,
    pub what: String,
}

const DEPTH: usize = 3;
const STACK: usize = 256 << 10;
/// An execution that takes so many steps is one that does not end.
const MOST_STEPS: usize = 200_000;

/// Explores one case.
pub fn explore_case(case: &Case, effort: Effort, tally: &mut Tally) -> Result<(), Failure> {
    let mut run = Run::new(case.clone())?;
    let threads = case.actors.len();
    let outcome = run
        .under("one preemption", OnePreemption::new(threads, effort.systematic, effort.seed as usize))
        .and_then(|()| run.under("pct", PctScheduler::new_from_seed(effort.seed, DEPTH, effort.random)))
        .and_then(|()| run.under("random", RandomScheduler::new_from_seed(effort.seed, effort.random)));
    tally.schedules += run.counts.executions.load(Ordering::Relaxed);
    tally.steps += run.counts.steps.load(Ordering::Relaxed);
    tally.seen += run.counts.seen.lock().expect("nobody panicked with it").len();
    tally.serial += run.serial.len();
    outcome
}

/// Runs one schedule again.
pub fn replay(case: &Case, schedule: &str) -> Result<(), Failure> {
    Run::new(case.clone())?.under("replay", ReplayScheduler::new_from_encoded(schedule))
}

struct Run {
    case: Arc<Case>,
    serial: Arc<BTreeSet<String>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    executions: AtomicU64,
    steps: AtomicU64,
    seen: Mutex<BTreeMap<String, u64>>,
}

impl Run {
    fn new(case: Case) -> Result<Run, Failure> {
        let case = Arc::new(case);
        let serial: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        if case.rule == Rule::Serial {
            let (case, found) = (case.clone(), serial.clone());
            let all = move || {
                for order in orders(&case.actors.iter().map(|actor| actor.ops.len()).collect::<Vec<_>>()) {
                    let outcome = in_order(&case, &order).unwrap_or_else(|violation| panic!("{violation}"));
                    found.lock().expect("nobody panicked with it").insert(outcome);
                }
            };
            run("one after the other", RandomScheduler::new_from_seed(0, 1), all)?;
        }
        let serial = Arc::new(std::mem::take(&mut *serial.lock().expect("nobody panicked with it")));
        Ok(Run { case, serial, counts: Arc::default() })
    }

    fn under(&mut self, name: &'static str, scheduler: impl Scheduler + 'static) -> Result<(), Failure> {
        let (case, serial, counts) = (self.case.clone(), self.serial.clone(), self.counts.clone());
        let execution = move || {
            let outcome = at_once(&case).unwrap_or_else(|violation| panic!("{violation}"));
            if case.rule == Rule::Serial {
                assert!(serial.contains(&outcome), "an outcome of its own:\n{outcome}instead of\n{}", list(&serial));
            }
            counts.executions.fetch_add(1, Ordering::Relaxed);
            counts.steps.fetch_add(shuttle::current::context_switches() as u64, Ordering::Relaxed);
            *counts.seen.lock().expect("nobody panicked with it").entry(outcome).or_default() += 1;
        };
        run(name, scheduler, execution)
    }
}

/// Runs an execution as often as the scheduler wants, or until it fails.
fn run(
    name: &'static str,
    scheduler: impl Scheduler + 'static,
    execution: impl Fn() + Send + Sync + 'static,
) -> Result<(), Failure> {
    let runner = Runner::new(scheduler, config());
    let ended = catch_unwind(AssertUnwindSafe(|| runner.run(execution)));
    explore(false);
    ended.map(|_| ()).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Failure { scheduler: name, what: text.into() }
    })
}

fn list(outcomes: &BTreeSet<String>) -> String {
    outcomes.iter().map(String::as_str).collect::<Vec<_>>().join("or\n")
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config
}

/// All ways to merge sequences of these lengths: whose turn it is, each time.
fn orders(lengths: &[usize]) -> Vec<Vec<usize>> {
    if lengths.iter().all(|length| *length == 0) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (first, _) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
        let mut rest = lengths.to_vec();
        rest[first] -= 1;
        all.extend(orders(&rest).into_iter().map(|rest| [vec![first], rest].concat()));
    }
    all
}

fn prepare(case: &Case) -> (Stage, Vec<Hands>) {
    let stage = Stage::new(case.family, case.mode);
    let hands =
        case.actors.iter().enumerate().map(|(number, actor)| stage.hands(actor.who, number, &actor.warm)).collect();
    (stage, hands)
}

/// One operation after the other.
fn in_order(case: &Case, order: &[usize]) -> Result<String, String> {
    let (stage, mut hands) = prepare(case);
    let mut next = vec![0; case.actors.len()];
    for &turn in order {
        let actor = &case.actors[turn];
        let result = actor.ops[next[turn]].perform(&stage, actor.who, &mut hands[turn]);
        hands[turn].results.push(result);
        next[turn] += 1;
    }
    let outcome = stage.outcome(&hands)?;
    stage.end(hands)?;
    Ok(outcome)
}

/// All actors at once, as the scheduler wants it.
fn at_once(case: &Arc<Case>) -> Result<String, String> {
    explore(false);
    let (stage, hands) = prepare(case);
    if let Rule::OutOfMemory(frames) = case.rule {
        stage.host.memory().fail_after(Some(frames));
    }
    let stage = Arc::new(stage);
    explore(true);
    let threads: Vec<_> = hands
        .into_iter()
        .enumerate()
        .map(|(number, mut hands)| {
            let (case, stage) = (case.clone(), stage.clone());
            shuttle::thread::spawn(move || {
                let actor = &case.actors[number];
                for op in &actor.ops {
                    let result = op.perform(&stage, actor.who, &mut hands);
                    hands.results.push(result);
                }
                drop(stage);
                hands
            })
        })
        .collect();
    let hands: Vec<Hands> = threads.into_iter().map(|thread| thread.join().expect("it ends")).collect();
    explore(false);
    stage.host.memory().fail_after(None);
    let stage = Arc::into_inner(stage).expect("the actors have ended");
    let outcome = stage.outcome(&hands)?;
    stage.end(hands)?;
    Ok(outcome)
}
