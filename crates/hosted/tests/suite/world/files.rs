//! Files and shared memory: they are made, and read, written and cut not through mappings.

use std::ops::Range;

use foldspace::backing::{Identity, Source};
use foldspace::{Error, Object};

use super::access::difference;
use super::{Attempt, Starved, World};
use crate::model::{ModelObject, ObjectKind, PAGE, Policy, pattern, render};
use crate::ops::Pick;

/// A file whose pages are [`pattern`]s up to its first length.
struct Pattern {
    inode: u64,
    len: u64,
}

impl Source for Pattern {
    fn fill(&self, index: u64, page: &mut [u8]) -> foldspace::Result<()> {
        let bytes = self.len.saturating_sub(index * PAGE).min(PAGE) as usize;
        pattern(self.inode, index, &mut page[..bytes]);
        Ok(())
    }
    fn identity(&self) -> Identity {
        Identity { major: render::DEVICE.0, minor: render::DEVICE.1, inode: self.inode }
    }
    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(render::path(self.inode).as_bytes());
    }
}

impl World {
    pub(super) fn new_file(&mut self, pages: u64) {
        let inode = self.objects.len() as u64 + 1;
        let len = pages * PAGE;
        let object =
            self.attempt_result(|world| Object::new(world.host.memory(), Box::new(Pattern { inode, len }), len));
        let object = object.expect("enough");
        self.objects.push(object);
        self.model.objects.push(ModelObject {
            kind: ObjectKind::File { inode, source_len: len },
            len,
            pages: Default::default(),
            dirty: Default::default(),
            lost: Default::default(),
            committed: 0,
        });
    }

    /// `None`: more than may be committed.
    pub(super) fn new_shared(&mut self, len: u64) -> Option<usize> {
        let object = self.attempt_result(|world| Object::anonymous(world.host.memory(), len));
        let everybody = self.model.spaces[0].policy.elsewhere + self.model.spaces[0].committed();
        let allowed = Policy { elsewhere: everybody, ..self.policy }.may_commit(0, 0, (len / PAGE) as i64);
        assert_eq!(object.as_ref().map(drop), allowed.as_ref().map(drop), "{len:#x} bytes of shared memory");
        self.objects.push(object.ok()?);
        self.model.objects.push(ModelObject {
            kind: ObjectKind::Anonymous,
            len,
            pages: Default::default(),
            dirty: Default::default(),
            lost: Default::default(),
            committed: len / PAGE,
        });
        self.model.settle(self.policy);
        Some(self.objects.len() - 1)
    }

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
