//! Arguments: addresses and lengths that meet each other's ends, and now and then wrong ones.

use super::Generator;
use crate::window::{BASE, END, FILES, FIRST_FD, MIDDLE, PAGE};

/// How far the operations of a sequence are from each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// Some pages around the middle of the window: everything meets everything.
    Narrow(u64),
    /// All of it: whole tables.
    Wide,
}

/// Bytes that a table of level 1 maps.
pub const TABLE: u64 = 2 << 20;

impl Spread {
    pub fn random(random: &mut fastrand::Rng) -> Spread {
        match random.u32(..8) {
            0 => Spread::Wide,
            1..4 => Spread::Narrow(8),
            _ => Spread::Narrow(32),
        }
    }
}

impl Generator<'_> {
    /// True once in `n` times.
    pub fn once_in(&mut self, n: u32) -> bool {
        self.random.u32(..n) == 0
    }

    /// One of them.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.usize(..choices.len())]
    }

    /// The start of a page.
    pub fn page(&mut self) -> u64 {
        if !self.recent.is_empty() && !self.once_in(3) {
            let (start, len) = self.recent[self.random.usize(..self.recent.len())];
            let pages = len.div_ceil(PAGE).max(1);
            // Its ends more than what is between.
            let page = match self.random.u32(..4) {
                0 => 0,
                1 => pages - 1,
                _ => self.random.u64(..pages),
            };
            return start + page * PAGE;
        }
        self.any_page()
    }

    /// The start of a page, wherever the sequence happens.
    pub fn any_page(&mut self) -> u64 {
        match self.spread {
            Spread::Narrow(pages) => MIDDLE - pages / 2 * PAGE + self.random.u64(..pages) * PAGE,
            Spread::Wide => {
                let table = BASE + self.random.u64(..(END - BASE) / TABLE) * TABLE;
                match self.random.u32(..4) {
                    0 => table,
                    1 => table + self.random.u64(..TABLE / PAGE) * PAGE,
                    2 => table + self.random.u64(..4) * PAGE,
                    _ => table + TABLE - (1 + self.random.u64(..4)) * PAGE,
                }
            }
        }
    }

    fn pages(&mut self) -> u64 {
        match self.spread {
            Spread::Narrow(pages) => 1 + self.random.u64(..pages / 2).min(self.random.u64(..pages)),
            Spread::Wide => match self.random.u32(..4) {
                0 => TABLE / PAGE,
                1 => (TABLE / PAGE + self.random.u64(..5)) - 2,
                2 => 2 * TABLE / PAGE - self.random.u64(..3),
                _ => 1 + self.random.u64(..8),
            },
        }
    }

    /// An address, mostly of a page in the window.
    pub fn address(&mut self) -> u64 {
        let page = self.page();
        if !self.once_in(40) {
            return page;
        }
        match self.random.u32(..8) {
            0..5 => page + self.random.u64(1..PAGE),
            5 => 1 << 47,
            6 => u64::MAX - PAGE + 1,
            _ => 0xffff_8000_0000_0000,
        }
    }

    /// A length in bytes that mostly ends in the window if it starts at `addr`.
    pub fn length(&mut self, addr: u64) -> u64 {
        let room = END.saturating_sub(addr).max(PAGE);
        let whole = (self.pages() * PAGE).min(room);
        match self.random.u32(..60) {
            0 => 0,
            1 => [1 << 47, u64::MAX, u64::MAX - PAGE + 1, 1 << 63, 1 << 62][self.random.usize(..5)],
            2..6 => whole - self.random.u64(1..PAGE),
            _ => whole,
        }
    }

    /// An address and a length.
    pub fn range(&mut self) -> (u64, u64) {
        let addr = self.address();
        (addr, self.length(addr))
    }

    /// What a mapping allows.
    pub fn access(&mut self) -> u32 {
        match self.random.u32(..40) {
            0..22 => 3,
            22..29 => 1,
            29..33 => 0,
            33 => 7,
            34 => 5,
            35 => 2,
            36 => 4,
            37 => 6,
            38 => self.one_of(&[8, 0x10, 0x40, 0x1000]) | 3,
            _ => self.one_of(&[0x0100_0000, 0x0200_0000, 0x0300_0000]) | 3,
        }
    }

    /// A file of the sequence.
    pub fn file(&mut self) -> u8 {
        self.random.u8(..FILES as u8)
    }

    /// A descriptor: of a file, open or not.
    pub fn descriptor(&mut self) -> i32 {
        if self.once_in(40) { -1 } else { FIRST_FD + self.file() as i32 }
    }

    /// A position in a file, in bytes: of the kind that an end, or a hole, may have.
    pub fn position(&mut self) -> i64 {
        let far = self.spread == Spread::Wide && self.once_in(2);
        let pages = self.random.u64(..if far { 1100 } else { 20 });
        let bytes = pages * PAGE;
        match self.random.u32(..8) {
            0 => (bytes + self.random.u64(..PAGE)) as i64,
            1 if self.once_in(8) => -1,
            _ => bytes as i64,
        }
    }
}
