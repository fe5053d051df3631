//! New inputs from kept ones.

use fastrand::Rng;

/// What parsers of JSON look for.
const TOKENS: [&[u8]; 14] =
    [b"true", b"false", b"null", b"[", b"]", b"{", b"}", b"\"", b"\\u", b"\\", b"0", b"-1e9", b": ", b", "];

/// A kept input with some changes, of at most so many bytes.
pub fn mutate(corpus: &[Vec<u8>], most: usize, random: &mut Rng) -> Vec<u8> {
    let pick = |random: &mut Rng| random.choice(corpus).cloned().unwrap_or_default();
    let mut input = pick(random);
    for _ in 0..1 << random.u32(0..4) {
        let at = random.usize(0..=input.len());
        let end = random.usize(at..=input.len());
        match random.u32(0..7) {
            0 => input.insert(at, random.u8(..)),
            1 => drop(input.drain(at..end.min(at + 16))),
            2 if at < input.len() => input[at] ^= 1 << random.u32(0..8),
            3 => drop(input.splice(at..at, TOKENS[random.usize(0..TOKENS.len())].iter().copied())),
            4 => drop(input.splice(at..end.min(at + 4), TOKENS[random.usize(0..TOKENS.len())].iter().copied())),
            // A piece of it again, some times over.
            5 => {
                let piece = input[at..end.min(at + 32)].repeat(1 << random.u32(0..6));
                input.splice(at..at, piece);
            }
            // The rest from another.
            _ => {
                let other = pick(random);
                input.truncate(at);
                input.extend_from_slice(&other[random.usize(0..=other.len())..]);
            }
        }
    }
    input.truncate(most);
    input
}
