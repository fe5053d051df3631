//! The translations of a processor: one place for each page number, modulo their number, which grows with what is used.

use foldspace::Frame;

/// Places at first: those of 1 MiB.
const FEWEST: usize = 1 << 8;
/// Places at most: those of 256 MiB, in 2 MiB of the host.
const MOST: usize = 1 << 16;
/// Each time it grows, by how much.
const GROWTH: usize = 4;

/// Where nothing is known. No tag is this.
const NOTHING: u64 = u64::MAX;

/// Page numbers have 52 bits. The rest of a tag says since when it counts.
const STAMP: u64 = 1 << 52;
/// The last stamp; with it comes [`NOTHING`].
const STAMPS: u64 = NOTHING & !(STAMP - 1);

/// A page's number, and the stamp of the time when it was put down. What has another stamp is forgotten.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(u64);

impl Tag {
    pub(super) const NOTHING: Tag = Tag(NOTHING);
}

/// What is known of one page: its tag, for each kind of access that is allowed without asking.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) read: Tag,
    pub(super) write: Tag,
    pub(super) fetch: Tag,
    pub(super) frame: Frame,
}

impl Known {
    const NOTHING: Known = Known { read: Tag::NOTHING, write: Tag::NOTHING, fetch: Tag::NOTHING, frame: Frame(0) };

    /// The page that it is of, if it is known now.
    fn page(&self, stamp: u64) -> Option<u64> {
        let tags = [self.read, self.write, self.fetch];
        tags.iter().find(|tag| tag.0 & STAMPS == stamp && **tag != Tag::NOTHING).map(|tag| tag.0 & (STAMP - 1))
    }
}

/// The row of places.
pub(super) struct Tlb {
    /// A power of two of them.
    places: Box<[Known]>,
    mask: usize,
    stamp: u64,
    /// How often, since all was forgotten, a page took the place of another.
    pushed_out: usize,
}

impl Tlb {
    pub(super) fn new() -> Tlb {
        Tlb::of(FEWEST)
    }

    fn of(places: usize) -> Tlb {
        Tlb { places: vec![Known::NOTHING; places].into(), mask: places - 1, stamp: 0, pushed_out: 0 }
    }

    /// What a page is known by now.
    #[inline(always)]
    pub(super) fn tag(&self, page: u64) -> Tag {
        Tag(page | self.stamp)
    }

    #[inline(always)]
    pub(super) fn at(&self, page: u64) -> &Known {
        &self.places[page as usize & self.mask]
    }

    pub(super) fn put(&mut self, page: u64, known: Known) {
        if self.at(page).page(self.stamp).is_some_and(|other| other != page) {
            self.pushed_out += 1;
            if self.pushed_out > self.places.len() && self.places.len() < MOST {
                self.grow();
            }
        }
        self.places[page as usize & self.mask] = known;
    }

    /// Pages were pushed out as often as there are places: with more of them they would have stayed.
    fn grow(&mut self) {
        let mut larger = Tlb { stamp: self.stamp, ..Tlb::of(self.places.len() * GROWTH) };
        for known in &self.places {
            if let Some(page) = known.page(self.stamp) {
                larger.places[page as usize & larger.mask] = *known;
            }
        }
        *self = larger;
    }

    pub(super) fn forget(&mut self, first: u64, end: u64) {
        if end - first >= self.places.len() as u64 {
            return self.forget_all();
        }
        for page in first..end {
            self.places[page as usize & self.mask] = Known::NOTHING;
        }
    }

    /// In no time, whatever is known: tags of before are no tags of now.
    pub(super) fn forget_all(&mut self) {
        self.pushed_out = 0;
        self.stamp += STAMP;
        if self.stamp >= STAMPS {
            // Stamps begin again, and nothing of the first time may be left.
            self.stamp = 0;
            self.places.fill(Known::NOTHING);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn know(tlb: &mut Tlb, page: u64) {
        let tag = tlb.tag(page);
        tlb.put(page, Known { read: tag, frame: Frame(page as u32), ..Known::NOTHING });
    }

    fn knows(tlb: &Tlb, page: u64) -> bool {
        let known = tlb.at(page);
        known.read == tlb.tag(page) && known.frame == Frame(page as u32)
    }

    #[test]
    fn what_is_forgotten_never_comes_back() {
        let mut tlb = Tlb::new();
        know(&mut tlb, 7);
        // More than there are stamps.
        for turn in 0..10_000 {
            assert!(turn > 0 || knows(&tlb, 7));
            tlb.forget_all();
            assert!(!knows(&tlb, 7), "{turn}");
            if turn == 5_000 {
                know(&mut tlb, 7);
            }
        }
        let highest = (1 << 52) - 1;
        for _ in 0..10_000 {
            assert!(tlb.at(highest).read != tlb.tag(highest), "no page is nothing");
            tlb.forget_all();
        }
    }

    #[test]
    fn it_grows_with_what_is_used_and_keeps_it() {
        let mut tlb = Tlb::new();
        for _ in 0..64 {
            (0..10_000).for_each(|page| know(&mut tlb, page));
        }
        assert_eq!(tlb.places.len(), 16_384);
        assert!((0..10_000).all(|page| knows(&tlb, page)));
        tlb.forget(5_000, 5_002);
        assert!(knows(&tlb, 4_999) && !knows(&tlb, 5_000) && !knows(&tlb, 5_001) && knows(&tlb, 5_002));
        tlb.forget(0, u64::MAX);
        assert!((0..10_000).all(|page| !knows(&tlb, page)));
        for _ in 0..64 {
            (0..200_000).for_each(|page| know(&mut tlb, page));
        }
        assert_eq!(tlb.places.len(), MOST);
    }

    #[test]
    fn a_few_pages_leave_it_small() {
        let mut tlb = Tlb::new();
        for _ in 0..10_000 {
            (0..200).for_each(|page| know(&mut tlb, page));
        }
        assert_eq!(tlb.places.len(), FEWEST);
    }
}
