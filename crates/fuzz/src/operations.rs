//! Lives of address spaces, beside the model of the manager's tests.

use foldspace_hosted::{CacheSize, Layouts};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::life;
use crate::ops::{Op, file_op, op};
use crate::world::Starved;

/// Bytes of each operation, which it is drawn from: so a change of some bytes changes one operation, and operations can be taken out, doubled and moved.
const EACH: usize = 16;
/// Operations of one life at most.
const MOST: usize = 100;

pub(crate) fn operations(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let starved = if first & 2 == 0 { Starved::No } else { Starved::AtEachPoint };
    // With frames that run out each step is done many times.
    let most = if first & 2 == 0 { MOST } else { MOST / 4 };
    let ops: Vec<Op> = match first & 1 {
        0 => chosen(op(), rest, most),
        _ => chosen(file_op(), rest, most),
    };
    life::live(&ops, &[CacheSize::Unbounded; 2], Layouts::process(), starved);
}

/// The operations that bytes choose.
fn chosen(strategy: impl Strategy<Value = Op>, bytes: &[u8], most: usize) -> Vec<Op> {
    let choose = |bytes: &[u8]| {
        // Not all zeros, which that generator could not be seeded with.
        let mut seed = [1; EACH];
        seed[..bytes.len()].copy_from_slice(bytes);
        seed[EACH - 1] |= 1;
        let rng = TestRng::from_seed(RngAlgorithm::XorShift, &seed);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        strategy.new_tree(&mut runner).ok().map(|tree| tree.current())
    };
    bytes.chunks(EACH).take(most).filter_map(choose).collect()
}
