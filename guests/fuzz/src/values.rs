//! Arguments: nearly right ones, and ones from the edges.

use foldspace_guest_measure::PAGE;
use foldspace_guest_measure::statistics::XorShift;

/// Where the children have memory of all kinds.
pub const WINDOW: u64 = 0x3000_0000_0000;
/// How many pages that is.
pub const WINDOW_PAGES: u64 = 1200;

/// What an argument is meant to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: now and then anything.
    Zero,
    /// Anything.
    Any,
    /// A small number: flags, counts, commands.
    Small,
    /// An address, anywhere.
    Address,
    /// The address of a page in the window.
    Window,
    /// A length in bytes.
    Length,
    /// Some pages, in bytes.
    Pages,
    /// A place to read from or to write to, good or bad.
    Pointer,
    /// An array of `iovec`.
    Vectors,
    Protection,
    MapFlags,
    RemapFlags,
    Advice,
    Descriptor,
    Offset,
    /// The process itself.
    Own,
    NameOption,
    MmOption,
    Ioctl,
    Seals,
}

/// Memory of the child that arguments can point to.
pub struct Places {
    /// A buffer of some pages, readable and writable, whose end is not mapped.
    pub buffer: u64,
    pub buffer_end: u64,
    /// An array of `iovec` that [`Values::fill_vectors`] writes.
    pub vectors: *mut [libc::iovec; VECTORS],
    pub own: i32,
}

/// Elements of the array.
pub const VECTORS: usize = 8;

/// Random arguments.
pub struct Values {
    random: XorShift,
    places: Places,
}

/// The ends of everything that is an address.
const EDGES: [u64; 18] = [
    0,
    1,
    0xfff,
    0x1000,
    0xffff,
    0x1_0000,
    0x7fff_ffff_e000,
    0x7fff_ffff_f000,
    0x7fff_ffff_ffff,
    0x8000_0000_0000,
    0x00ff_ffff_ffff_f000,
    0x8000_0000_0000_0000,
    0xffff_7fff_ffff_f000,
    0xffff_8000_0000_0000,
    0xffff_ffff_8000_0000,
    0xffff_ffff_ffff_e000,
    0xffff_ffff_ffff_f000,
    u64::MAX,
];

impl Values {
    pub fn new(seed: u64, places: Places) -> Self {
        // A seed and its neighbours shall have nothing in common; zero is not allowed.
        let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = XorShift::new(mixed);
        (0..8).for_each(|_| _ = random.next_number());
        Self { random, places }
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.random.next_number()) * u128::from(limit)) >> 64) as u64
    }

    fn one_of(&mut self, values: &[u64]) -> u64 {
        values[self.below(values.len() as u64) as usize]
    }

    /// One bit, some bits, or none, of a mask.
    fn bits(&mut self, mask: u64) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => mask & (1 << self.below(32)),
            _ => mask & self.random.next_number() & self.random.next_number(),
        }
    }

    pub fn of(&mut self, kind: Kind) -> u64 {
        // Now and then, something else altogether.
        if self.below(40) == 0 {
            return self.anything();
        }
        match kind {
            Kind::Zero => 0,
            Kind::Any => self.anything(),
            Kind::Small => self.small(),
            Kind::Address => self.address(),
            Kind::Window => WINDOW + self.below(WINDOW_PAGES) * PAGE as u64,
            Kind::Length => self.length(),
            Kind::Pages => (1 + self.some_pages()) * PAGE as u64,
            Kind::Pointer => self.pointer(),
            Kind::Vectors => self.fill_vectors(),
            Kind::Protection => self.one_of(&[0, 1, 2, 3, 3, 3, 4, 5, 7, 1 << 24, 1 << 24 | 3, 1 << 25, 8, 0x70]),
            Kind::MapFlags => self.map_flags(),
            Kind::RemapFlags => self.one_of(&[0, 1, 1, 1, 3, 3, 3, 5, 7, 2, 4, 8]),
            Kind::Advice => self.advice(),
            Kind::Descriptor => self.one_of(&[3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 1000, u64::MAX, 0x7fff_ffff, 64]),
            Kind::Offset => self.offset(),
            Kind::Own => self.places.own as u64,
            Kind::NameOption => self.one_of(&[0x5356_4d41, 0x5356_4d41, 0, 0, 1]),
            Kind::MmOption => self.one_of(&[35, 35, 35, 0x464f_4c44, 38, 39, 41, 42]),
            Kind::Ioctl => self.one_of(&[0xc068_6611, 0x5401, 0x5413, 0x541b, 0, u64::MAX]),
            Kind::Seals => self.one_of(&[1033, 1034, 1031, 1032, 0, 1, 2, 3, 4]),
        }
    }

    fn anything(&mut self) -> u64 {
        match self.below(6) {
            0 => self.random.next_number(),
            1 => self.random.next_number() >> self.below(64),
            2 => self.one_of(&EDGES),
            3 => self.pointer(),
            4 => self.address(),
            _ => self.small(),
        }
    }

    fn small(&mut self) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => 1 << self.below(32),
            2 => self.below(1100),
            _ => self.below(8),
        }
    }

    fn address(&mut self) -> u64 {
        match self.below(8) {
            0 => self.one_of(&EDGES),
            1 => self.one_of(&EDGES).wrapping_sub(self.length()),
            2 => WINDOW + self.below(WINDOW_PAGES * PAGE as u64),
            3 => self.random.next_number() & 0x7fff_ffff_f000,
            4 => 0x7fff_ffff_f000 - self.below(64) * PAGE as u64,
            _ => WINDOW + self.below(WINDOW_PAGES) * PAGE as u64,
        }
    }

    fn some_pages(&mut self) -> u64 {
        match self.below(8) {
            0 => self.below(WINDOW_PAGES),
            1 => 511 + self.below(3),
            _ => self.below(12),
        }
    }

    fn length(&mut self) -> u64 {
        let page = PAGE as u64;
        match self.below(12) {
            0 => 0,
            1 => 1,
            2 => page - 1 + self.below(3),
            3 => (1 << 30) - page + self.below(3) * page,
            4 => 1 << (30 + self.below(34)),
            5 => 0u64.wrapping_sub(1 + self.below(3 * page)),
            6 => 0u64.wrapping_sub(WINDOW + self.below(WINDOW_PAGES) * page),
            7 => 0x7fff_ffff_f000 - WINDOW + self.below(3) * page,
            _ => (1 + self.some_pages()) * page,
        }
    }

    fn pointer(&mut self) -> u64 {
        let (start, end) = (self.places.buffer, self.places.buffer_end);
        match self.below(8) {
            0 => self.one_of(&EDGES),
            1 => WINDOW + self.below(WINDOW_PAGES * PAGE as u64),
            // The end of what is mapped lies in the middle of what is meant.
            2 => end - 1 - self.below(200),
            3 => end - 8 * self.below(16),
            _ => start + 8 * self.below((end - start) / 16),
        }
    }

    fn offset(&mut self) -> u64 {
        match self.below(8) {
            0 => self.one_of(&EDGES),
            1 => self.length(),
            2 => 1 + self.below(PAGE as u64),
            _ => self.below(20) * PAGE as u64,
        }
    }

    fn advice(&mut self) -> u64 {
        match self.below(8) {
            0 => self.small(),
            1 => 102 + self.below(2),
            _ => self.below(26),
        }
    }

    /// A type and flags. What would fill the memory is rare.
    fn map_flags(&mut self) -> u64 {
        const OTHERS: u64 = 0x10 | 0x40 | 0x100 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x2_0000 | 0x10_0000 | 0x20_0000;
        let kind = self.one_of(&[1, 2, 2, 2, 3, 0, 8, 15]);
        let anonymous = self.one_of(&[0, 0x20, 0x20]);
        let populate = if self.below(10) == 0 { 0x8000 } else { 0 };
        kind | anonymous | populate | self.bits(OTHERS | 0x4_0000 | 0x8_0000)
    }

    fn fill_vectors(&mut self) -> u64 {
        for index in 0..VECTORS {
            let base = self.pointer();
            let length = if self.below(6) == 0 { self.length() } else { self.below(2 * PAGE as u64) };
            let vector = libc::iovec { iov_base: base as *mut _, iov_len: length as usize };
            // SAFETY: the array is this process' own and nothing refers to it; a call that changed or unmapped it can
            // make this store fault, which ends the process as intended.
            unsafe { (&raw mut (*self.places.vectors)[index]).write_volatile(vector) };
        }
        if self.below(8) == 0 { self.pointer() } else { self.places.vectors as u64 }
    }
}
