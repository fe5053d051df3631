//! Random lives of a few address spaces, step by step beside the model.

use std::env;

use foldspace_hosted::CacheSize;
use proptest::collection::vec;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::ops::{self, By, Op};
use crate::world::World;

const MEMORY: u64 = 32 << 20;

/// Runs lives: `cases` of them, or as many as `FOLDSPACE_CASES` says.
fn lives(cases: u32, steps: usize, seed: u64, live: impl Fn(Vec<Op>)) {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let config = Config {
        cases: number("FOLDSPACE_CASES").map_or(cases, |cases| cases as u32),
        rng_seed: RngSeed::Fixed(number("FOLDSPACE_SEED").unwrap_or(seed)),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&vec(ops::op(), 1..steps), |ops| {
        live(ops);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// A life, and the end of it: nothing is left.
pub fn live(ops: &[Op], caches: &[CacheSize]) {
    let mut world = World::new(MEMORY, caches);
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
    let host = world.end();
    host.memory().reclaim();
    let end = host.memory().stats();
    host.memory().check(&[], &[]).expect("an empty memory is in order");
    let start = foldspace_hosted::Host::new(MEMORY).expect("a second arena").memory().stats();
    assert_eq!((end.free, end.tables, end.data), (start.free, start.tables, start.data), "frames were left behind");
}

#[test]
fn short_lives_with_the_stalest_caches() {
    lives(120, 40, 1, |ops| live(&ops, &[CacheSize::Unbounded; 3]));
}

#[test]
fn long_lives_with_the_stalest_caches() {
    lives(16, 300, 2, |ops| live(&ops, &[CacheSize::Unbounded; 2]));
}

#[test]
fn lives_with_small_caches() {
    lives(60, 60, 3, |ops| live(&ops, &[CacheSize::Bounded(16), CacheSize::Bounded(4), CacheSize::Unbounded]));
}
