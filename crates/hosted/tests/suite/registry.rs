//! A memory knows the address spaces that live on it.

use std::sync::Arc;
use std::thread;

use foldspace::AddressSpace;
use foldspace::platform::SpaceId;
use foldspace_hosted::{Host, Layouts};

use crate::threads::{Dice, rounds};

fn ids(host: &Host) -> Vec<SpaceId> {
    host.memory().spaces().map(|space| space.id()).collect()
}

#[test]
fn spaces_are_known_oldest_first_until_they_are_dropped() {
    let host = Host::new(8 << 20).unwrap();
    assert_eq!(ids(&host), []);
    let first = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let second = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let child = first.fork().unwrap();
    assert_eq!(ids(&host), [first.id(), second.id(), child.id()]);
    let root = second.root();
    for space in [&first, &second, &child] {
        assert!(host.memory().space(space.id()).is_some_and(|found| Arc::ptr_eq(&found, space)));
        assert!(host.memory().space_of_root(space.root()).is_some_and(|found| Arc::ptr_eq(&found, space)));
    }
    let gone = second.id();
    drop(second);
    assert_eq!(ids(&host), [first.id(), child.id()]);
    assert!(host.memory().space(gone).is_none() && host.memory().space_of_root(root).is_none());
    // The seat is taken again, at the end of the row all the same.
    let grandchild = child.fork().unwrap();
    assert_eq!(ids(&host), [first.id(), child.id(), grandchild.id()]);
    drop(first);
    drop(grandchild);
    assert_eq!(ids(&host), [child.id()]);
}

#[test]
fn what_is_forked_while_somebody_looks_comes_later() {
    let host = Host::new(8 << 20).unwrap();
    let mut eldest = Some(AddressSpace::new(host.memory(), Layouts::process()).unwrap());
    let younger = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let mut children = Vec::new();
    let mut seen = Vec::new();
    for space in host.memory().spaces() {
        seen.push(space.id());
        if seen.len() < 4 {
            children.push(space.fork().unwrap());
        }
        // Whoever looks at a space keeps it where it is in the row.
        eldest = None;
    }
    assert!(eldest.is_none());
    let expected: Vec<SpaceId> = [younger.id()].into_iter().chain(children.iter().map(|child| child.id())).collect();
    assert_eq!(seen[1..], expected);
    assert_eq!(ids(&host), expected, "the eldest is gone now");
}

#[test]
fn threads_come_and_go() {
    let host = Host::new(32 << 20).unwrap();
    let eldest = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    thread::scope(|scope| {
        for number in 0..3 {
            let (host, eldest) = (&host, &eldest);
            scope.spawn(move || {
                let mut dice = Dice::new(number + 1);
                let mut mine = Vec::new();
                for _ in 0..rounds(2_000) {
                    match dice.roll(3) {
                        0 if mine.len() < 20 => mine.push(eldest.fork().unwrap()),
                        1 if !mine.is_empty() => drop(mine.swap_remove(dice.roll(mine.len() as u64) as usize)),
                        _ => {
                            let seen = ids(host);
                            assert!(seen.is_sorted() && seen[0] == eldest.id(), "{seen:?}");
                            for space in &mine {
                                assert!(seen.contains(&space.id()), "a living space is left out");
                            }
                        }
                    }
                }
            });
        }
    });
    assert_eq!(ids(&host), [eldest.id()]);
}
