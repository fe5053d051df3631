//! Random lives of a few address spaces, step by step beside the model.

use std::env;

use foldspace::space::Layout;
use foldspace_hosted::{CacheSize, Host, Layouts};
use proptest::collection::vec;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::ops::{self, By, Op};
use crate::world::{Starved, World};

/// What a life has.
pub const MEMORY: u64 = 32 << 20;

/// Runs lives: `cases` of them, or as many as `FOLDSPACE_CASES` says.
fn lives(cases: u32, steps: usize, seed: u64, live: impl Fn(Vec<Op>)) {
    lives_of(ops::op(), cases, steps, seed, live);
}

/// The same with steps of another kind.
pub fn lives_of<S: Strategy>(op: S, cases: u32, steps: usize, seed: u64, live: impl Fn(Vec<S::Value>)) {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let config = Config {
        cases: number("FOLDSPACE_CASES").map_or(cases, |cases| cases as u32),
        rng_seed: RngSeed::Fixed(number("FOLDSPACE_SEED").unwrap_or(seed)),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&vec(op, 1..steps), |ops| {
        live(ops);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// A life, and the end of it: nothing is left.
pub fn live(ops: &[Op], caches: &[CacheSize], layout: Layout, starved: Starved) {
    let mut world = World::new(MEMORY, caches, layout);
    world.starved = starved;
    for &op in ops {
        world.step(op);
        world.verify();
    }
    world.audit(By::Processor(0));
    world.verify();
    world.audit(By::Kernel);
    world.verify();
    nothing_left(world);
}

/// Ends a world and counts frames.
pub fn nothing_left(world: World) {
    let failed = world.failed;
    let host = world.end();
    host.memory().reclaim();
    let end = host.memory().stats();
    host.memory().check(&[], &[]).expect("an empty memory is in order");
    let start = Host::new(MEMORY).expect("a second arena").memory().stats();
    assert_eq!(
        (end.free + failed, end.tables, end.data),
        (start.free, start.tables, start.data),
        "frames were left behind"
    );
}

#[test]
fn short_lives_with_the_stalest_caches() {
    lives(400, 40, 1, |ops| live(&ops, &[CacheSize::Unbounded; 3], Layouts::process(), Starved::No));
}

#[test]
fn long_lives_with_the_stalest_caches() {
    lives(40, 300, 2, |ops| live(&ops, &[CacheSize::Unbounded; 2], Layouts::process(), Starved::No));
}

#[test]
fn lives_with_small_caches() {
    let caches = [CacheSize::Bounded(16), CacheSize::Bounded(4), CacheSize::Unbounded];
    lives(200, 60, 3, |ops| live(&ops, &caches, Layouts::process(), Starved::No));
}

#[test]
fn lives_within_narrow_limits() {
    let limits = Layout {
        stack_limit: 64 << 10,
        data_limit: (1 << 20) + (64 << 10),
        address_space_limit: 16 << 20,
        lock_limit: 96 << 10,
        ..Layouts::process()
    };
    lives(200, 60, 4, |ops| live(&ops, &[CacheSize::Unbounded; 2], limits, Starved::No));
}

/// Every step of these lives first fails for want of a frame at each point where it takes one, and must leave everything as it was.
#[test]
fn lives_that_run_out_of_frames() {
    lives(150, 40, 5, |ops| live(&ops, &[CacheSize::Unbounded; 2], Layouts::process(), Starved::AtEachPoint));
}

#[test]
fn lives_among_files() {
    lives_of(ops::file_op(), 400, 60, 6, |ops| live(&ops, &[CacheSize::Unbounded; 3], Layouts::process(), Starved::No));
}

#[test]
fn lives_among_files_that_run_out_of_frames() {
    lives_of(ops::file_op(), 100, 40, 7, |ops| {
        live(&ops, &[CacheSize::Unbounded; 2], Layouts::process(), Starved::AtEachPoint);
    });
}
