//! Summaries of several runs.

/// The median; of an even number of runs the lower of the two in the middle, so that it is always a value that was
/// seen. Not a number if there are no runs.
pub fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// Random numbers that are the same in each run (Marsaglia's xorshift64, shifts 13, 7, 17).
#[derive(Clone, Debug)]
pub struct XorShift(u64);

impl XorShift {
    /// A generator that starts at `seed`, which must not be zero.
    ///
    /// # Panics
    /// If `seed` is zero, from which the generator would never move.
    pub fn new(seed: u64) -> Self {
        assert_ne!(seed, 0, "xorshift stays at zero for ever");
        XorShift(seed)
    }

    /// The next number.
    #[inline(always)]
    pub fn next_number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_a_value_that_was_seen() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.0);
        assert_eq!(median(&[7.0]), 7.0);
        assert!(median(&[]).is_nan());
    }
}
