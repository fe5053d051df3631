//! Snapshots: taken, gone back to, compared, dropped in any order.

use std::collections::BTreeMap;

use foldspace::space::{Difference, PageState};
use foldspace::vma::Vma;
use foldspace::{AddressSpace, Error};

use super::World;
use crate::model::{ModelSpace, PAGE, Page};
use crate::ops::Pick;

/// Snapshots at most: one too many replaces one.
const MOST: usize = 4;

impl World {
    /// All address spaces, those of snapshots last.
    pub(super) fn everything(&self) -> Vec<&AddressSpace> {
        let live = self.spaces.iter().map(|space| &**space);
        live.chain(self.snapshots.iter().map(|snapshot| snapshot.space())).collect()
    }

    pub(super) fn take_snapshot(&mut self, space: Pick) {
        let space = self.space(space);
        let real = self.attempt_result(|world| world.spaces[space].snapshot());
        let model = self.model.spaces[space].may_fork();
        assert_eq!(real.as_ref().map(drop), model.as_ref().map(drop), "snapshot of space {space}");
        let Ok(real) = real else { return };
        assert_eq!(real.space().usage().tables_exclusive, 1, "a snapshot has a root");
        if self.snapshots.len() == MOST {
            self.snapshots.remove(1);
            self.model.snapshots.remove(1);
        }
        self.snapshots.push(real);
        self.model.snapshots.push(self.model.spaces[space].clone());
        self.compare(self.snapshots.len() - 1, space);
    }

    pub(super) fn restore(&mut self, space: Pick, snapshot: Pick) {
        let space = self.space(space);
        let Some(number) = self.snapshot(snapshot) else { return };
        let (now, then) = (&self.model.spaces[space], &self.model.snapshots[number]);
        let expected = if now.family == then.family {
            now.may_commit(then.committed() as i64 - now.committed() as i64)
        } else {
            Err(Error::WrongKind)
        };
        let before = self.host.memory().stats();
        if self.starved == super::Starved::AtEachPoint {
            self.host.memory().fail_after(Some(0));
        }
        let seen = self.spaces[space].restore(&self.snapshots[number]);
        self.host.memory().fail_after(None);
        assert_eq!(seen, expected, "restore of space {space}");
        if seen.is_err() {
            assert_eq!(self.host.memory().stats(), before, "a restore that is refused");
            return;
        }
        let layout = self.model.spaces[space].layout;
        let mut back = self.model.snapshots[number].clone();
        back.layout.lock_limit = layout.lock_limit;
        self.model.spaces[space] = back;
        self.compare(number, space);
        let mut differs = 0;
        self.snapshots[number].space().diff(&self.spaces[space], |_| differs += 1);
        assert_eq!(differs, 0, "space {space} differs from what it was restored to");
    }

    pub(super) fn spawn(&mut self, snapshot: Pick) {
        let Some(number) = self.snapshot(snapshot) else { return };
        let real = self.attempt_result(|world| world.snapshots[number].spawn());
        let model = self.model.snapshots[number].may_fork();
        assert_eq!(real.as_ref().map(drop), model.as_ref().map(drop), "spawn from a snapshot");
        if let Ok(real) = real {
            self.add_space(real, self.model.snapshots[number].clone());
        }
    }

    pub(super) fn drop_snapshot(&mut self, snapshot: Pick) {
        if let Some(number) = self.snapshot(snapshot) {
            self.snapshots.remove(number);
            self.model.snapshots.remove(number);
        }
    }

    pub(super) fn compare_picked(&mut self, snapshot: Pick, space: Pick) {
        let space = self.space(space);
        if let Some(number) = self.snapshot(snapshot) {
            self.compare(number, space);
        }
    }

    fn snapshot(&self, pick: Pick) -> Option<usize> {
        (!self.snapshots.is_empty()).then(|| pick as usize % self.snapshots.len())
    }

    /// The difference of a snapshot and a space is what the models differ in, no more and no less.
    fn compare(&self, snapshot: usize, space: usize) {
        let (before, after) = (self.snapshots[snapshot].space(), &*self.spaces[space]);
        let (mut gone, mut new, mut pages) = (Vec::new(), Vec::new(), BTreeMap::new());
        before.diff(after, |difference| match difference {
            Difference::Gone(vma) => gone.push(vma.clone()),
            Difference::New(vma) => new.push(vma.clone()),
            Difference::Pages { range, before, after } => {
                for page in range.start().get() / PAGE..range.end().get() / PAGE {
                    assert!(pages.insert(page, (before, after)).is_none(), "page {page:#x} is told twice");
                }
            }
        });
        let (vmas_before, vmas_after) = (before.vmas(), after.vmas());
        let all = |vmas: &foldspace::vma::Version| vmas.view().iter().cloned().collect::<Vec<Vma>>();
        let (all_before, all_after) = (all(&vmas_before), all(&vmas_after));
        let beside = |of: &[Vma], other: &[Vma]| -> Vec<_> {
            of.iter().filter(|vma| !other.iter().any(|known| known.is_same(vma))).map(|vma| vma.range).collect()
        };
        let ranges = |vmas: &[Vma]| vmas.iter().map(|vma| vma.range).collect::<Vec<_>>();
        assert_eq!(ranges(&gone), beside(&all_before, &all_after), "areas that are gone");
        assert_eq!(ranges(&new), beside(&all_after, &all_before), "areas that are new");
        let (before, after) = (&self.model.snapshots[snapshot], &self.model.spaces[space]);
        for page in
            [before, after].into_iter().flat_map(|space| space.private.keys().chain(&space.guards).chain(&space.lost))
        {
            let states = (state(before, *page), state(after, *page));
            match pages.get(page) {
                Some(told) => assert_eq!(*told, states, "what page {page:#x} is"),
                None => {
                    assert_eq!(states.0, states.1, "page {page:#x} differs and is not told");
                    assert!(
                        before.private.get(page) == after.private.get(page),
                        "page {page:#x} differs and is not told"
                    );
                }
            }
        }
        let known = |page: &Page| [before, after].iter().any(|space| state(space, *page) != PageState::Untouched);
        assert!(pages.keys().all(known), "pages are told that nobody has stored to");
    }
}

fn state(space: &ModelSpace, page: Page) -> PageState {
    if space.guards.contains(&page) {
        PageState::Guard
    } else if space.lost.contains(&page) {
        PageState::Lost
    } else if space.private.contains_key(&page) {
        PageState::Private
    } else {
        PageState::Untouched
    }
}
