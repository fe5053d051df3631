//! Which jumps were seen, and how often: a map of counts by a hash of both ends, as AFL has it, whose classes of counts are what is new or not.

const PLACES: usize = 1 << 16;

/// What all executions so far have seen, and what this one has.
pub struct Coverage {
    /// Classes of counts seen, a bit for each.
    seen: Vec<u8>,
    counts: Vec<u8>,
    /// Places of `counts` that are not zero.
    touched: Vec<u16>,
}

impl Coverage {
    pub fn new() -> Coverage {
        Coverage { seen: vec![0; PLACES], counts: vec![0; PLACES], touched: Vec::new() }
    }

    pub fn jumped(&mut self, from: u64, to: u64) {
        // Fibonacci hashing: neighbours do not meet.
        let place = ((from << 1 ^ to).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16;
        let count = &mut self.counts[usize::from(place)];
        if *count == 0 {
            self.touched.push(place);
        }
        *count = count.saturating_add(1);
    }

    /// Whether the execution saw a jump, or a class of its count, that none before it saw. The next begins.
    pub fn is_new(&mut self) -> bool {
        let mut new = false;
        for place in self.touched.drain(..).map(usize::from) {
            let class = match std::mem::take(&mut self.counts[place]) {
                count @ 0..=3 => 1 << count.saturating_sub(1),
                4..=7 => 1 << 3,
                8..=15 => 1 << 4,
                16..=31 => 1 << 5,
                32..=127 => 1 << 6,
                _ => 1 << 7,
            };
            new |= self.seen[place] & class == 0;
            self.seen[place] |= class;
        }
        new
    }

    /// Jumps seen so far.
    pub fn edges(&self) -> usize {
        self.seen.iter().filter(|classes| **classes != 0).count()
    }
}
