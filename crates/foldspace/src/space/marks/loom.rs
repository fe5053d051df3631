//! The sequence count beside the versions, explored by loom.

use std::boxed::Box;

use ::loom::sync::Arc;

use super::*;
use crate::sync::loom::explore_within;
use crate::sync::watched::AtomicPtr;

/// A heap: how many pages of it the published version has, and where it ends.
struct Place {
    /// As the cell of a tree: stored with release, loaded with acquire.
    version: AtomicPtr<()>,
    marks: MarksCell,
}

const START: u64 = 0x1000;

/// A reader who is in the middle of it is overtaken once, and the writer once.
const PREEMPTIONS: usize = 2;

impl Place {
    fn new(pages: u64) -> Arc<Place> {
        let addresses = [START, START + pages, START + pages].map(AtomicU64::new);
        let version = AtomicPtr::new(std::ptr::without_provenance_mut(pages as usize));
        Arc::new(Place { version, marks: MarksCell { turn: AtomicU64::new(0), addresses } })
    }

    fn set(&self, pages: u64) {
        // The stack moves with the heap, so that a reader can tell whether its marks are of one instant.
        let brk = VirtAddr(START + pages);
        self.marks.set(Marks { start_brk: VirtAddr(START), brk, start_stack: brk });
    }

    fn publish(&self, pages: u64) {
        self.version.store(std::ptr::without_provenance_mut(pages as usize), Ordering::Release);
    }

    /// Pages that are mapped, and those that are said to be the heap's.
    fn read(&self) -> (u64, u64) {
        let (marks, mapped) = self.marks.read(|| self.version.load(Ordering::Acquire).addr() as u64);
        assert_eq!(marks.start_brk, VirtAddr(START));
        assert_eq!(marks.brk, marks.start_stack, "marks of one instant");
        (mapped, marks.brk.get() - START)
    }
}

fn reader(place: &Arc<Place>) -> Box<dyn FnOnce() -> &'static str + Send> {
    let place = place.clone();
    Box::new(move || {
        let (mapped, named) = place.read();
        assert!(mapped <= named, "{mapped} pages are mapped, and {named} of them named");
        match (mapped, named) {
            (1, 1) => "small",
            (1, 2) => "between",
            (2, 2) => "large",
            _ => "neither",
        }
    })
}

#[test]
fn what_is_mapped_of_a_heap_that_grows_is_named() {
    let threads = || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let place = Place::new(1);
        let read = reader(&place);
        [
            Box::new(move || {
                place.set(2);
                place.publish(2);
                "grown"
            }),
            read,
        ]
    };
    explore_within(PREEMPTIONS, threads, &[["grown", "small"], ["grown", "between"], ["grown", "large"]]);
}

#[test]
fn what_is_mapped_of_a_heap_that_shrinks_is_named() {
    let threads = || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let place = Place::new(2);
        let read = reader(&place);
        [
            Box::new(move || {
                place.publish(1);
                place.set(1);
                "shrunk"
            }),
            read,
        ]
    };
    explore_within(PREEMPTIONS, threads, &[["shrunk", "small"], ["shrunk", "between"], ["shrunk", "large"]]);
}

/// The one change is followed by the other: a reader that takes long sees one of them, or goes round again.
#[test]
fn a_reader_of_two_changes_sees_marks_of_one_instant() {
    let threads = || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let place = Place::new(1);
        let read = reader(&place);
        [
            Box::new(move || {
                place.set(2);
                place.publish(2);
                place.publish(1);
                place.set(1);
                "both"
            }),
            read,
        ]
    };
    explore_within(PREEMPTIONS, threads, &[["both", "small"], ["both", "between"], ["both", "large"]]);
}
