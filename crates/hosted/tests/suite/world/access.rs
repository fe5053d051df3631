//! Loads and stores on both sides, by processors and by the kernel, and what they say.

use foldspace::space::{Access, Fault};
use foldspace::{Error, VirtAddr};
use foldspace_hosted::{AccessError, Processor, Refusal};

use super::{Attempt, MOST_TOUCHED, World};
use crate::model::{Force, PAGE, Page};
use crate::ops::{By, Pick, Place, Span};

impl World {
    pub(super) fn address(&self, space: usize, place: Place, span: Span) -> VirtAddr {
        VirtAddr(self.page(space, place) * PAGE + u64::from(span.offset % PAGE as u16))
    }

    pub(super) fn touch(&mut self, addr: VirtAddr, len: usize) {
        for page in addr.get() / PAGE..=(addr.get() + len as u64 - 1) / PAGE {
            if self.touched.len() < MOST_TOUCHED {
                self.touched.insert(page);
            }
        }
    }

    pub(super) fn load(&mut self, space: usize, by: By, addr: VirtAddr, len: usize, access: Access) {
        let areas = self.model.spaces[space].areas.clone();
        let (expected, fault) = self.model.load(space, addr, len, access);
        let grew = areas != self.model.spaces[space].areas;
        let mut seen = vec![0xa5; len];
        let done = match by {
            By::Processor(processor) => {
                let (done, outcome) = self.on_processor(space, processor, grew, |processor| {
                    let outcome = match access {
                        Access::Execute => processor.fetch(addr, &mut seen),
                        Access::Read | Access::Write => processor.load(addr, &mut seen),
                    };
                    split(outcome, len)
                });
                assert_eq!(outcome, fault, "fault of a load at {addr} of space {space}");
                done
            }
            By::Kernel => self.attempt(|world| match world.spaces[space].read(addr, &mut seen) {
                done if done >= expected.len() => Attempt::Over(done),
                0 if !grew => Attempt::NoMemoryForPage,
                _ => Attempt::NoMemoryAfterPart,
            }),
        };
        assert_eq!(done, expected.len(), "bytes read at {addr} of space {space}");
        assert!(
            seen[..done] == expected,
            "content at {addr} in space {space}: {}",
            difference(&seen[..done], &expected)
        );
        self.touch(addr, len);
    }

    pub(super) fn store(&mut self, space: usize, by: By, addr: VirtAddr, bytes: &[u8]) {
        let mut after = self.model.clone();
        let (expected, fault) = after.store(space, addr, bytes, Force::No);
        let grew = after.spaces[space].areas != self.model.spaces[space].areas;
        let outcome = match by {
            By::Processor(processor) => {
                self.on_processor(space, processor, grew, |processor| split(processor.store(addr, bytes), bytes.len()))
            }
            By::Kernel => {
                let done = self.attempt(|world| match world.spaces[space].write(addr, bytes) {
                    done if done >= expected => Attempt::Over(done),
                    0 if !grew => Attempt::NoMemoryForPage,
                    _ => Attempt::NoMemoryAfterPart,
                });
                (done, fault)
            }
        };
        assert_eq!(outcome, (expected, fault), "store at {addr} of space {space}");
        self.model = after;
        self.touch(addr, bytes.len());
    }

    /// An access on a processor that runs `space`. Where the area grows by it, it may have grown although there was no memory for the page.
    fn on_processor(
        &mut self,
        space: usize,
        processor: Pick,
        grew: bool,
        mut act: impl FnMut(&mut Processor) -> (usize, Option<Fault>),
    ) -> (usize, Option<Fault>) {
        let number = processor as usize % self.processors.len();
        let mut processor = self.processors.swap_remove(number);
        processor.activate(&self.spaces[space]);
        let outcome = self.attempt(|_| match act(&mut processor) {
            (0, Some(Fault::OutOfMemory)) if !grew => Attempt::NoMemoryForPage,
            (_, Some(Fault::OutOfMemory)) => Attempt::NoMemoryAfterPart,
            outcome => Attempt::Over(outcome),
        });
        self.processors.push(processor);
        let last = self.processors.len() - 1;
        self.processors.swap(number, last);
        outcome
    }

    /// Loads every touched page of every space.
    pub fn audit(&mut self, by: By) {
        let pages: Vec<Page> = self.touched.iter().copied().collect();
        for space in 0..self.spaces.len() {
            for &page in &pages {
                // Loads next to a stack would make it grow.
                if self.model.spaces[space].area(page).is_some() {
                    self.load(space, by, VirtAddr(page * PAGE), PAGE as usize, Access::Read);
                }
            }
        }
        for (object, model) in self.objects.iter().zip(&self.model.objects) {
            let len = (model.len as usize).min(20 * PAGE as usize);
            let mut seen = vec![0; len];
            let there = model.before_lost(0, len);
            let expected = if there == 0 && len > 0 { Err(Error::Poisoned) } else { Ok(there) };
            assert_eq!(object.read_at(0, &mut seen), expected, "read of an object");
            assert!(seen[..there] == model.read_at(0, there), "content of an object");
        }
    }
}

/// Bytes that differ from one seed to the next, and along the way.
pub fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_mul(31).wrapping_add((at * 7 + (at >> 8)) as u8) | 1).collect()
}

/// An outcome as the model puts it.
fn split(outcome: Result<(), AccessError>, len: usize) -> (usize, Option<Fault>) {
    match outcome {
        Ok(()) => (len, None),
        Err(AccessError { done, refusal: Refusal::Fault(fault), .. }) => (done, Some(fault)),
        // The page above the user half, up to the hole, is never mapped; the hole is another kind of fault, and no mapping either.
        Err(AccessError { done, refusal: Refusal::NotCanonical, .. }) => (done, Some(Fault::NotMapped)),
        Err(error) => panic!("{error}"),
    }
}

/// Where two pages differ first.
pub(super) fn difference(seen: &[u8], expected: &[u8]) -> String {
    match seen.iter().zip(expected).position(|(seen, expected)| seen != expected) {
        Some(at) => format!("byte {at} is {:#x}, not {:#x}", seen[at], expected[at]),
        None => format!("{} bytes, not {}", seen.len(), expected.len()),
    }
}
