//! Reads, writes and cuts of files that do not go through mappings.

use std::ops::Range;

use foldspace::Error;

use super::{Attempt, Starved, World, difference};
use crate::model::PAGE;
use crate::ops::Pick;

impl World {
    fn object(&self, pick: Pick) -> usize {
        pick as usize % self.objects.len()
    }

    pub(super) fn read_file(&mut self, object: Pick, offset: u64, len: usize) {
        let object = self.object(object);
        let model = &self.model.objects[object];
        let there = (model.len.saturating_sub(offset) as usize).min(len);
        let there_before_lost = model.before_lost(offset, there);
        let expected = model.read_at(offset, there_before_lost);
        let refused = there > 0 && there_before_lost == 0;
        let mut seen = vec![0xa5; len];
        let read = self.attempt(|world| match world.objects[object].read_at(offset, &mut seen) {
            Err(Error::OutOfMemory) => Attempt::NoMemoryAfterPart,
            Ok(read) if read < expected.len() && world.starved != Starved::No => Attempt::NoMemoryAfterPart,
            read => Attempt::Over(read),
        });
        assert_eq!(read, if refused { Err(Error::Poisoned) } else { Ok(expected.len()) }, "bytes read from a file");
        let seen = &seen[..read.unwrap_or(0)];
        assert!(seen == expected, "read of a file: {}", difference(seen, &expected));
    }

    pub(super) fn write_file(&mut self, object: Pick, offset: u64, bytes: &[u8]) {
        let object = self.object(object);
        let there = self.model.objects[object].before_lost(offset, bytes.len());
        let written = self.attempt(|world| match world.objects[object].write_at(offset, bytes) {
            Err(Error::OutOfMemory) => Attempt::NoMemory,
            Ok(written) if written < there => Attempt::NoMemoryAfterPart,
            written => Attempt::Over(written),
        });
        assert_eq!(written, if there == 0 { Err(Error::Poisoned) } else { Ok(there) }, "bytes written to a file");
        self.model.objects[object].write_at(offset, &bytes[..there]);
        assert_eq!(self.objects[object].len(), self.model.objects[object].len, "length of a file");
    }

    pub(super) fn resize_file(&mut self, object: Pick, len: u64) {
        let object = self.object(object);
        // Not even where there is no frame left.
        if self.starved == Starved::AtEachPoint {
            self.host.memory().fail_after(Some(0));
        }
        let cut = self.objects[object].set_len(len);
        self.host.memory().fail_after(None);
        cut.expect("it cannot fail");
        self.model.set_len(object, len);
    }

    pub(super) fn punch_file(&mut self, object: Pick, bytes: Range<u64>) {
        let object = self.object(object);
        let punched = self.attempt_file(|world| world.objects[object].punch_hole(bytes.clone()));
        assert_eq!(punched, Ok(()), "a hole in a file");
        self.model.punch_hole(object, bytes);
    }

    pub(super) fn ensure_file(&mut self, object: Pick, bytes: Range<u64>) {
        let object = self.object(object);
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        let is_lost = self.model.objects[object].lost.range(pages.clone()).next().is_some();
        let ensured = self.attempt_file(|world| world.objects[object].ensure(bytes.clone()));
        assert_eq!(ensured, if is_lost { Err(Error::Poisoned) } else { Ok(()) }, "pages for a file");
        if ensured.is_ok() {
            self.model.objects[object].ensure(bytes);
            assert!(self.objects[object].resident_pages() >= pages.end - pages.start);
        }
    }

    /// As [`World::attempt_result`], of what may leave pages in the cache of a file that have not been there before.
    fn attempt_file(&self, mut act: impl FnMut(&World) -> Result<(), Error>) -> Result<(), Error> {
        self.attempt(|world| match act(world) {
            Err(Error::OutOfMemory) => Attempt::NoMemoryForPage,
            outcome => Attempt::Over(outcome),
        })
    }
}
