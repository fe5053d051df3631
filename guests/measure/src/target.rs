//! What fuzz loops execute: a parser of JSON, with a bug of our own behind it, and inputs from a number.

use std::sync::atomic::{AtomicU32, Ordering};

/// What is mutated.
const SEED: &[u8] =
    br#"[{"name":"fold","sizes":[1,22,333,4444],"nested":{"a":[true,false,null],"b":"\u00e4\n"}},12.5e-3,"text"]"#;

/// Executions that this process has seen. Whoever starts each from the same state sees one.
static EXECUTIONS: AtomicU32 = AtomicU32::new(0);

/// How an execution ended that did end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The input was accepted.
    Accepted,
    /// The parser refused it.
    Rejected,
    /// There was an execution before in the same state: it was not brought back.
    Contaminated,
}

/// The input of this number: the seed with a few bytes changed, the same for the same number.
pub fn input(number: u32) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(number).wrapping_mul(0x2545_f491_4f6c_dd1d);
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let mut bytes = match next(8) {
        0 => br#"[1,null,3]"#.to_vec(),
        _ => SEED.to_vec(),
    };
    for _ in 0..next(4) {
        let at = next(bytes.len());
        match next(3) {
            0 => bytes[at] = next(256) as u8,
            1 => bytes.insert(at, br#"[]{}",:0"#[next(8)]),
            _ => drop(bytes.remove(at)),
        }
    }
    bytes
}

/// As [`input`], but never one that meets the bug.
pub fn harmless(number: u32) -> Vec<u8> {
    let mut bytes = input(number);
    bytes.insert(0, b' ');
    if bytes.len() < 20 {
        bytes.insert(0, b'x');
    }
    bytes
}

/// Executes the target once. The bug: an array of three whose second is null is the end (SIGABRT).
pub fn execute(input: &[u8]) -> Verdict {
    if EXECUTIONS.fetch_add(1, Ordering::Relaxed) != 0 {
        return Verdict::Contaminated;
    }
    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(input);
    match std::hint::black_box(parsed) {
        Ok(serde_json::Value::Array(items)) if items.len() == 3 && items[1].is_null() => std::process::abort(),
        Ok(_) => Verdict::Accepted,
        Err(_) => Verdict::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_same_for_the_same_number_and_differ_otherwise() {
        assert_eq!(input(7), input(7));
        let all: std::collections::HashSet<_> = (0..200).map(input).collect();
        assert!(all.len() > 100, "{}", all.len());
    }
}
