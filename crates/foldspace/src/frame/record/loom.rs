//! The lock of a table, its count, and slots, explored by loom.

use std::boxed::Box;

use ::loom::sync::Arc;

use super::*;
use crate::frame::Frame;
use crate::sync::Content;
use crate::sync::loom::explore;
use crate::table::Entry;

/// A record, what its frame holds, and a slot.
struct Node {
    record: Record,
    content: Content,
    slot: AtomicU64,
}

impl Node {
    fn new(refs: u32) -> Arc<Node> {
        let record = Record {
            state: AtomicU32::new(Kind::Table1 as u32),
            refs: AtomicU32::new(refs),
            home: AtomicU64::new(0),
            next: AtomicU32::new(NONE),
            prev: AtomicU32::new(NONE),
            lineage: AtomicU32::new(NONE),
            counts: AtomicU32::new(0),
        };
        Arc::new(Node { record, content: Content::new(), slot: AtomicU64::new(0) })
    }
}

#[test]
fn a_lock_excludes_and_shows_what_its_last_holder_did() {
    let threads = || {
        let node = Node::new(1);
        [(); 2].map(|()| {
            let node = node.clone();
            let thread: Box<dyn FnOnce() -> &'static str + Send> = Box::new(move || {
                node.record.lock();
                node.content.write();
                node.record.unlock();
                "done"
            });
            thread
        })
    };
    explore(threads, &[["done", "done"]]);
}

/// What a fault does with a page that two have: copies it and lets go, or stores to it in place if it is alone by now.
#[test]
fn a_page_is_stored_to_by_who_is_alone_and_sees_that_all_others_have_read_it() {
    let threads = || {
        let page = Node::new(2);
        [(); 2].map(|()| {
            let page = page.clone();
            let thread: Box<dyn FnOnce() -> &'static str + Send> = Box::new(move || {
                if page.record.is_alone() {
                    page.content.write();
                    return "in place";
                }
                page.content.read();
                if page.record.drop_ref().is_none() {
                    // Freed, for the next to write to.
                    page.content.write();
                }
                "copied"
            });
            thread
        })
    };
    explore(threads, &[["copied", "copied"], ["copied", "in place"], ["in place", "copied"]]);
}

/// Two sharers unshare a table at once: each copies it under its lock, or finds itself alone. The last one drops what is in it.
#[test]
fn a_table_is_copied_under_its_lock_or_taken_by_who_is_alone() {
    let threads = || {
        let table = Node::new(2);
        [(); 2].map(|()| {
            let table = table.clone();
            let thread: Box<dyn FnOnce() -> &'static str + Send> = Box::new(move || {
                if table.record.is_alone() {
                    table.record.lock();
                    table.content.write();
                    table.record.unlock();
                    return "taken";
                }
                table.record.lock();
                // The write bits go in the original, too.
                table.content.write();
                table.record.unlock();
                if table.record.drop_ref().is_none() {
                    table.record.lock();
                    table.content.write();
                }
                "copied"
            });
            thread
        })
    };
    explore(threads, &[["copied", "copied"], ["copied", "taken"], ["taken", "copied"]]);
}

/// Under the lock of the table that has a slot to it, a child with one reference stays so: fork adds one and clears the write bit there, a store
/// sets the bit if it finds one.
#[test]
fn a_write_bit_and_a_second_reference_exclude_each_other() {
    let threads = || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let (parent, child) = (Node::new(1), Node::new(1));
        let (fork, forked) = (parent.clone(), child.clone());
        [
            Box::new(move || {
                parent.record.lock();
                let alone = child.record.is_alone();
                if alone {
                    parent.slot.fetch_or(Entry::WRITE, Ordering::AcqRel);
                }
                parent.record.unlock();
                if alone { "set" } else { "left" }
            }),
            Box::new(move || {
                fork.record.lock();
                let before = fork.slot.fetch_and(!Entry::WRITE, Ordering::AcqRel);
                forked.record.add_ref();
                assert!(fork.slot.load(Ordering::Acquire) & Entry::WRITE == 0);
                fork.record.unlock();
                if before & Entry::WRITE != 0 { "cleared" } else { "was clear" }
            }),
        ]
    };
    explore(threads, &[["set", "cleared"], ["left", "was clear"]]);
}

#[test]
fn who_finds_an_entry_finds_what_it_leads_to() {
    let threads = || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let node = Node::new(1);
        let reader = node.clone();
        [
            Box::new(move || {
                node.content.write();
                let before = Entry::new(Frame(1), Entry::WRITE).swap_into(&node.slot);
                assert!(before.is_empty());
                "linked"
            }),
            Box::new(move || {
                if !Entry::load(&reader.slot).is_present() {
                    return "nothing";
                }
                reader.content.read();
                "found"
            }),
        ]
    };
    explore(threads, &[["linked", "nothing"], ["linked", "found"]]);
}
