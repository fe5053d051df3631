//! The objects: one anon_vma for the pages of a VMA and of what it was split into, in a tree by fork.

use std::collections::BTreeSet;

use slab::Slab;

use crate::vma::VmaId;

/// Where an [`AnonVma`] is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct AnonVmaId(pub usize);

/// What a page points to, and what finds the VMAs that may map it.
pub(crate) struct AnonVma {
    /// The first of its tree; itself at the top. Alive as long as any of the tree is.
    pub root: AnonVmaId,
    /// The parent process'; itself at the top.
    pub parent: AnonVmaId,
    /// How many have it as parent, itself included at the top.
    pub children: u32,
    /// How many VMAs have it as their own.
    pub users: u32,
    /// VMAs that may hold pages which point here: one chain link each.
    pub linked: BTreeSet<VmaId>,
    /// Others of its tree that are alive; only counted at the top.
    pub kin: u32,
}

impl AnonVma {
    /// Linux's one counter for both before 6.0.
    pub fn degree(&self) -> u32 {
        self.children + self.users
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct AnonVmas {
    all: Slab<AnonVma>,
    /// Since the beginning.
    pub made: u64,
    /// Links that were made since the beginning.
    pub links_made: u64,
    /// Links now.
    pub links: u64,
}

impl AnonVmas {
    pub fn get(&self, id: AnonVmaId) -> &AnonVma {
        &self.all[id.0]
    }

    pub fn get_mut(&mut self, id: AnonVmaId) -> &mut AnonVma {
        &mut self.all[id.0]
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn contains(&self, id: AnonVmaId) -> bool {
        self.all.contains(id.0)
    }

    pub fn iter(&self) -> impl Iterator<Item = (AnonVmaId, &AnonVma)> {
        self.all.iter().map(|(at, anon_vma)| (AnonVmaId(at), anon_vma))
    }

    /// The first of a tree.
    pub fn new_root(&mut self) -> AnonVmaId {
        let id = AnonVmaId(self.all.vacant_key());
        self.made += 1;
        self.all.insert(AnonVma { root: id, parent: id, children: 1, users: 0, linked: BTreeSet::new(), kin: 0 });
        id
    }

    /// One below `parent`.
    pub fn new_child(&mut self, parent: AnonVmaId) -> AnonVmaId {
        let root = self.get(parent).root;
        self.made += 1;
        let child = AnonVma { root, parent, children: 0, users: 0, linked: BTreeSet::new(), kin: 0 };
        let id = AnonVmaId(self.all.insert(child));
        self.get_mut(parent).children += 1;
        self.get_mut(root).kin += 1;
        id
    }

    pub fn link(&mut self, id: AnonVmaId, vma: VmaId) {
        let new = self.get_mut(id).linked.insert(vma);
        debug_assert!(new, "a VMA is linked once to each");
        self.links_made += 1;
        self.links += 1;
    }

    /// Undoes [`AnonVmas::link`]. One that nobody is linked to counts no more for its parent, and goes; the top of a tree goes with the last.
    pub fn unlink(&mut self, id: AnonVmaId, vma: VmaId) {
        let anon_vma = self.get_mut(id);
        let was_there = anon_vma.linked.remove(&vma);
        debug_assert!(was_there);
        let (empty, parent) = (anon_vma.linked.is_empty(), anon_vma.parent);
        self.links -= 1;
        // A rule that miscounts may have let the parent go first; what Linux writes to then is freed memory.
        if empty && let Some(parent) = self.all.get_mut(parent.0) {
            parent.children = parent.children.saturating_sub(1);
        }
    }

    /// A VMA has it as its own no more.
    pub fn leave(&mut self, id: AnonVmaId) {
        if let Some(anon_vma) = self.all.get_mut(id.0) {
            anon_vma.users = anon_vma.users.saturating_sub(1);
        }
    }

    /// Frees `id` if nothing holds it, and the top of its tree if nothing holds that any more. After all of a VMA's links were undone.
    pub fn free_if_unused(&mut self, id: AnonVmaId) {
        let Some(anon_vma) = self.all.get(id.0) else { return };
        if !anon_vma.linked.is_empty() || anon_vma.kin > 0 {
            return;
        }
        let root = anon_vma.root;
        self.all.remove(id.0);
        if root != id {
            self.get_mut(root).kin -= 1;
            self.free_if_unused(root);
        }
    }
}
