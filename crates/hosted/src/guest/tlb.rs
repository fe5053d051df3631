//! The translations of a processor: one place for each page number, modulo their number.

use foldspace::Frame;

/// Places: those of 1 MiB.
const PLACES: usize = 256;

/// Where nothing is known. No page has this number.
const NOTHING: u64 = u64::MAX;

/// What is known of one page: its number, for each kind of access that is allowed without asking.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) read: u64,
    pub(super) write: u64,
    pub(super) fetch: u64,
    pub(super) frame: Frame,
}

impl Known {
    pub(super) const NOTHING: Known = Known { read: NOTHING, write: NOTHING, fetch: NOTHING, frame: Frame(0) };
}

/// The row of places.
pub(super) struct Tlb(Box<[Known; PLACES]>);

impl Tlb {
    pub(super) fn new() -> Tlb {
        Tlb(Box::new([Known::NOTHING; PLACES]))
    }

    #[inline(always)]
    pub(super) fn at(&self, page: u64) -> &Known {
        &self.0[page as usize % PLACES]
    }

    pub(super) fn put(&mut self, page: u64, known: Known) {
        self.0[page as usize % PLACES] = known;
    }

    pub(super) fn forget(&mut self, first: u64, end: u64) {
        if end - first >= PLACES as u64 {
            self.0.fill(Known::NOTHING);
            return;
        }
        for page in first..end {
            self.put(page, Known::NOTHING);
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.0.fill(Known::NOTHING);
    }
}
