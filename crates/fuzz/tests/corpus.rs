//! The corpus and bounded mutations of it: fuzzing without a fuzzer, the same each time, on any toolchain. `FOLDSPACE_ROUNDS` says how many mutations of each
//! target; `FOLDSPACE_SEED` which.

use std::path::{Path, PathBuf};
use std::{env, fs, panic};

use foldspace_fuzz::{TARGETS, run};

/// Bytes of an input at most.
const LONGEST: usize = 16 << 10;

fn inputs(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut found: Vec<_> =
        files.map(|file| file.unwrap().path()).map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    found.sort();
    assert!(found.len() > 1, "{} is empty", directory.display());
    found
}

/// A small generator, the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below.max(1)
    }

    /// What fuzzers do: bits, bytes, numbers at edges, pieces taken out, doubled, and taken from another input.
    fn mutate(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        let at = self.roll(input.len());
        let piece = 1 + self.roll(64);
        match self.roll(7) {
            _ if input.is_empty() => input.extend(other),
            0 => input[at] ^= 1 << self.roll(8),
            1 => input[at] = self.roll(256) as u8,
            2 => {
                let edge = [0, 1, u64::MAX, 1 << 63, 0x1000, 1 << 47, (1 << 47) - 0x1000, 0xfff][self.roll(8)];
                let width = 1 << self.roll(4);
                for (byte, value) in input[at..].iter_mut().zip(edge.to_le_bytes()).take(width) {
                    *byte = value;
                }
            }
            3 => drop(input.drain(at..(at + piece).min(input.len()))),
            4 => {
                let piece = input[at..(at + piece).min(input.len())].to_vec();
                input.splice(at..at, piece);
            }
            5 if !other.is_empty() => {
                let from = self.roll(other.len());
                let piece = &other[from..(from + piece).min(other.len())];
                let end = (at + piece.len()).min(input.len());
                input.splice(at..end, piece.iter().copied());
            }
            _ => input.truncate(at),
        }
        input.truncate(LONGEST);
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Runs a target on an input; where it panics, the input is kept, and its name is said.
fn try_input(name: &str, input: &[u8], from: &str) {
    if panic::catch_unwind(|| run(name, input)).is_err() {
        let path = env::temp_dir().join(format!("foldspace-fuzz-{name}-{:016x}", hash(input)));
        let kept = fs::write(&path, input).map_or_else(|error| error.to_string(), |()| path.display().to_string());
        panic!("{name}: {from}: {kept}");
    }
}

fn hash(input: &[u8]) -> u64 {
    input.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn corpus_and_mutations(name: &str, rounds: u64) {
    let inputs = inputs(name);
    for (path, input) in &inputs {
        try_input(name, input, &path.display().to_string());
    }
    let mut dice = Dice(number("FOLDSPACE_SEED", 1) | 1);
    for round in 0..number("FOLDSPACE_ROUNDS", rounds) {
        let mut input = inputs[dice.roll(inputs.len())].1.clone();
        for _ in 0..=dice.roll(4) {
            let other = dice.roll(inputs.len());
            dice.mutate(&mut input, &inputs[other].1);
        }
        try_input(name, &input, &format!("mutation {round}"));
    }
}

#[test]
fn operations() {
    corpus_and_mutations("operations", 150);
}

#[test]
fn import() {
    corpus_and_mutations("import", 2_000);
}

#[test]
fn strace() {
    corpus_and_mutations("strace", 500);
}

#[test]
fn elf() {
    corpus_and_mutations("elf", 1_000);
}

#[test]
fn cpio() {
    corpus_and_mutations("cpio", 20_000);
}

#[test]
fn every_target_has_a_test_and_a_program() {
    let mut names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(names, ["cpio", "elf", "import", "operations", "strace"]);
    for name in names {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets").join(format!("{name}.rs"));
        assert!(program.exists(), "{}", program.display());
    }
}
