//! What can be seen of a life without changing it.

use std::collections::{BTreeMap, BTreeSet};

use foldspace::platform::SpaceId;
use foldspace::vma::VmaFlags;
use foldspace::{AddressSpace, Frame, Object, VirtAddr};
use foldspace_hosted::Cause;

use super::World;
use super::access::difference;
use crate::model::{Content, Dirty, ModelSpace, ObjectKind, PAGE, Page};
use crate::sizes::{self, Shown};

/// Frames that are looked up after each step, at most.
const MOST_FRAMES: usize = 100;

impl World {
    /// Compares all that can be seen without changing anything, and verifies the invariants.
    pub fn verify(&self) {
        let spaces: Vec<&AddressSpace> = self.spaces.iter().map(|space| &**space).collect();
        let objects: Vec<&Object> = self.objects.iter().map(|object| &**object).collect();
        for (number, space) in spaces.iter().enumerate() {
            let text = String::from_utf8(space.maps().text()).expect("maps are text");
            similar(&text, &self.model.maps(number));
            let usage = space.usage();
            assert_eq!(usage, self.model.usage(number, usage), "usage of space {number}");
            if let Some((file, shared)) = self.present_pages_of_objects(number) {
                assert_eq!((usage.resident_file, usage.resident_shared), (file, shared), "resident in space {number}");
            }
            assert!(usage.mapped_peak >= usage.mapped && usage.tables >= usage.tables_exclusive.max(1), "{usage:?}");
            for &page in &self.touched {
                self.verify_page(number, page);
            }
        }
        let models: Vec<&ModelSpace> = self.model.all().collect();
        let is_lost = |number: usize, addr: VirtAddr| models[number].lost.contains(&(addr.get() / PAGE));
        let shown = sizes::verify(&self.host, &self.everything(), is_lost);
        self.verify_marks(&shown);
        self.verify_dirty(&shown);
        self.verify_paths(&shown);
        for (number, object) in objects.iter().enumerate() {
            let shared = VmaFlags::SHARED;
            assert_eq!(
                object.mapped_shared(),
                self.model.is_mapped(number, shared),
                "object {number} is mapped shared"
            );
            let writable = shared | VmaFlags::MAY_WRITE;
            assert_eq!(
                object.mapped_writable(),
                self.model.is_mapped(number, writable),
                "object {number} can be written"
            );
        }
        let committed: u64 = self.model.all().map(ModelSpace::committed).sum();
        let of_objects: u64 = self.model.objects.iter().map(|object| object.committed).sum();
        assert_eq!(self.host.memory().committed_pages(), committed + of_objects, "committed pages");
        if let Err(violation) = self.host.memory().check(&spaces, &objects) {
            panic!("invariant violated: {violation:?}");
        }
        let stale = self.host.stale(&spaces);
        assert!(stale.is_empty(), "a shootdown was forgotten: {stale:x?}");
    }

    /// A private page is dirty unless it was freed lazily: by that it is known.
    fn verify_marks(&self, shown: &Shown) {
        for (number, (leaves, model)) in shown.leaves.iter().zip(self.model.all()).enumerate() {
            for leaf in leaves.iter().filter(|leaf| !leaf.object) {
                let lazy = model.lazy.contains(&(leaf.addr.get() / PAGE));
                assert_eq!(!leaf.dirty, lazy, "whether {} of space {number} was freed lazily", leaf.addr);
            }
        }
    }

    /// From each frame its address spaces are found, and where it is in each.
    fn verify_paths(&self, shown: &Shown) {
        let mut mapped: BTreeMap<Frame, BTreeSet<(SpaceId, VirtAddr)>> = BTreeMap::new();
        for (space, leaves) in self.everything().iter().zip(&shown.leaves) {
            for leaf in leaves {
                mapped.entry(leaf.frame).or_default().insert((space.id(), leaf.addr));
            }
        }
        for (frame, places) in mapped.iter().take(MOST_FRAMES) {
            let mut found = Vec::new();
            let climbed = self.host.memory().mappings(*frame, |space, addr| found.push((space.id(), addr)));
            climbed.expect("heap");
            found.sort();
            assert!(found.iter().eq(places), "{frame:?} is found at {found:?}, and is at {places:?}");
        }
    }

    /// Pages of objects that were written to are dirty, in the cache or in an entry that shows them, and no others.
    fn verify_dirty(&self, shown: &Shown) {
        let mut stored_to = BTreeSet::new();
        for (space, leaves) in self.model.all().zip(&shown.leaves) {
            for leaf in leaves.iter().filter(|leaf| leaf.object && leaf.dirty) {
                let page = leaf.addr.get() / PAGE;
                let (start, area) = space.area(page).expect("what is present is mapped");
                let Content::Object(object) = area.content else { panic!("{} shows an object", leaf.addr) };
                stored_to.insert((object, area.offset + (page - start)));
            }
        }
        for (number, (object, model)) in self.objects.iter().zip(&self.model.objects).enumerate() {
            for index in 0..20 {
                let dirty = object.is_dirty(index) || stored_to.contains(&(number, index));
                match model.dirty.get(&index) {
                    Some(Dirty::Perhaps) => {}
                    known => assert_eq!(dirty, known.is_some(), "whether page {index} of object {number} is dirty"),
                }
            }
        }
    }

    /// Pages of files, and of shared anonymous memory, that the tables of a space show. `None` if there are too many to look at each.
    fn present_pages_of_objects(&self, number: usize) -> Option<(u64, u64)> {
        let model = &self.model.spaces[number];
        let (mut file, mut shared) = (0, 0);
        for (start, area) in &model.areas {
            let Content::Object(object) = area.content else { continue };
            if area.end - start > 2_000 {
                return None;
            }
            let present = (*start..area.end).filter(|page| {
                let shown = self.host.translate(&self.spaces[number], VirtAddr(page * PAGE));
                !model.private.contains_key(page) && matches!(shown, Ok(_) | Err(Cause::Supervisor))
            });
            match self.model.objects[object].kind {
                ObjectKind::File { .. } => file += present.count() as u64,
                ObjectKind::Anonymous => shared += present.count() as u64,
            }
        }
        Some((file, shared))
    }

    /// What the tables say of a page must be what the model says, or nothing if the page has nothing of its own.
    fn verify_page(&self, number: usize, page: Page) {
        let model = &self.model.spaces[number];
        let addr = VirtAddr(page * PAGE);
        assert_eq!(
            self.spaces[number].is_guarded(addr),
            model.guards.contains(&page),
            "guard at {addr} of space {number}"
        );
        let key = self.spaces[number].vmas().view().find(addr).map(|vma| vma.tag.key().number());
        assert_eq!(key, model.area(page).map(|(_, area)| area.key), "the key at {addr} of space {number}");
        let translation = match self.host.translate(&self.spaces[number], addr) {
            Ok(translation) => translation,
            Err(Cause::NotPresent(_) | Cause::NotCanonical) => {
                assert!(!model.private.contains_key(&page), "the page at {addr} of space {number} is lost");
                return;
            }
            Err(Cause::Supervisor) => {
                assert_no_access(model, page);
                return;
            }
            Err(cause) => panic!("the tables of space {number} at {addr}: {cause:?}"),
        };
        let Some((_, area)) = model.area(page) else {
            panic!("space {number} still translates {addr}, which is not mapped");
        };
        assert!(
            !translation.rights.user || area.flags.intersects(VmaFlags::READ | VmaFlags::WRITE | VmaFlags::EXEC),
            "{addr} of space {number} can be accessed, and must not"
        );
        let rights = translation.rights;
        assert!(!rights.writable || area.flags.contains(VmaFlags::WRITE), "{addr} of space {number} is writable");
        assert!(!rights.executable || area.flags.contains(VmaFlags::EXEC), "{addr} of space {number} is executable");
        let mut seen = vec![0; PAGE as usize];
        self.host.peek(translation, 0, &mut seen).expect("the frame is in the arena");
        let expected = self.model.page(number, page).expect("the area is there");
        assert!(seen == expected, "content of {addr} in space {number}: {}", difference(&seen, &expected));
    }
}

fn assert_no_access(model: &ModelSpace, page: Page) {
    let (_, area) = model.area(page).expect("what is present is mapped");
    assert!(!area.flags.intersects(VmaFlags::READ | VmaFlags::WRITE | VmaFlags::EXEC));
}

/// Compares maps, with the inode of shared anonymous memory, which the manager chooses, left out.
fn similar(seen: &str, expected: &str) {
    let without_inode = |text: &str| -> String {
        let line = |line: &str| match line.split_once(" 00:01 ") {
            Some((head, tail)) => {
                let name = tail.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
                format!("{head} 00:01 {name}\n")
            }
            None => format!("{line}\n"),
        };
        text.lines().map(line).collect()
    };
    let (seen, expected) = (without_inode(seen), without_inode(expected));
    assert!(seen == expected, "maps differ, seen:\n{seen}expected:\n{expected}");
}
