//! Names in the tree.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::sync::Mutex;

use super::inode::{Inode, Kind};
use super::tree;
use super::view::View;
use crate::errno::Errno;

/// Longest name of one component, bytes (`NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// Longest path that a call takes, its NUL included (`PATH_MAX`).
pub const PATH_MAX: usize = 4096;

/// Where a dentry is.
pub enum Place {
    /// In a directory, or it was until it was removed.
    In {
        /// The directory.
        parent: Arc<Dentry>,
        /// The name there.
        name: Arc<[u8]>,
        /// Whether it was removed.
        removed: bool,
    },
    /// The root of the whole tree, or of a file system that was unmounted.
    Root,
    /// In no directory: shown as it is (`pipe:[12]`).
    Nowhere(Arc<[u8]>),
}

/// A name and what it refers to.
pub struct Dentry {
    /// What it refers to.
    pub inode: Arc<Inode>,
    place: Mutex<Place>,
    children: Mutex<Children>,
    mounted: Mutex<Option<Arc<Dentry>>>,
    /// Set in what is seen through a further mount: it has no entries of its own then.
    view: Option<View>,
}

/// Entries of a directory in memory: by name, and by a number that only grows, which orders a listing (newest first, as Linux's
/// `dcache_readdir` does) and serves as the position in it.
#[derive(Default)]
struct Children {
    by_name: BTreeMap<Arc<[u8]>, (u64, Arc<Dentry>)>,
    by_age: BTreeMap<u64, Arc<[u8]>>,
    next_age: u64,
}

impl Dentry {
    /// `name` in `parent`; not yet entered there.
    pub fn new(parent: &Arc<Dentry>, name: &[u8], inode: Arc<Inode>) -> Arc<Dentry> {
        Dentry::at(Place::In { parent: parent.clone(), name: name.into(), removed: false }, inode)
    }

    /// At any place.
    pub fn at(place: Place, inode: Arc<Inode>) -> Arc<Dentry> {
        Arc::new(Dentry::with_view(place, inode, None))
    }

    pub(super) fn with_view(place: Place, inode: Arc<Inode>, view: Option<View>) -> Dentry {
        Dentry { inode, place: Mutex::new(place), children: Mutex::default(), mounted: Mutex::new(None), view }
    }

    pub(super) fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// What it is a view of, if its place is that one's.
    fn followed(&self) -> Option<&Arc<Dentry>> {
        self.view.as_ref().filter(|view| view.follows()).map(View::of)
    }

    /// A dentry for an open file without a name.
    pub fn nowhere(shown: Vec<u8>, inode: Arc<Inode>) -> Arc<Dentry> {
        Dentry::at(Place::Nowhere(shown.into()), inode)
    }

    /// The directory that it is in; itself at the root.
    pub fn parent(self: &Arc<Dentry>) -> Arc<Dentry> {
        let parent = match &*self.place.lock() {
            Place::In { parent, .. } => parent.clone(),
            Place::Root | Place::Nowhere(_) => return self.clone(),
        };
        if self.followed().is_none() {
            return parent;
        }
        match self.parent_view(parent.clone()) {
            Some(found) if Arc::ptr_eq(&found, &parent) => parent,
            Some(found) => {
                self.set_place(Place::In { parent: found.clone(), name: self.name(), removed: false });
                found
            }
            // Moved out of what is bound here: there is no way up.
            None => self.clone(),
        }
    }

    /// Its name in its directory; empty at the root.
    pub fn name(&self) -> Arc<[u8]> {
        if let Some(of) = self.followed() {
            return of.name();
        }
        match &*self.place.lock() {
            Place::In { name, .. } => name.clone(),
            Place::Root => Arc::from(&b""[..]),
            Place::Nowhere(shown) => shown.clone(),
        }
    }

    /// Whether it was removed from its directory.
    pub fn is_removed(&self) -> bool {
        if let Some(of) = self.followed() {
            return of.is_removed();
        }
        matches!(&*self.place.lock(), Place::In { removed: true, .. })
    }

    /// Notes that it was removed from its directory.
    pub fn set_removed(&self) {
        if let Place::In { removed, .. } = &mut *self.place.lock() {
            *removed = true;
        }
    }

    /// Puts it elsewhere.
    pub fn set_place(&self, place: Place) {
        // The old parent may be freed with its last reference: not under the lock.
        let old = core::mem::replace(&mut *self.place.lock(), place);
        drop(old);
    }

    /// What covers it, if a file system is mounted here.
    pub fn mounted(&self) -> Option<Arc<Dentry>> {
        self.mounted.lock().clone()
    }

    /// Covers it, or uncovers it.
    pub fn set_mounted(&self, root: Option<Arc<Dentry>>) {
        let old = core::mem::replace(&mut *self.mounted.lock(), root);
        drop(old);
    }

    /// The topmost of what is mounted here, or itself.
    pub fn uncovered(self: &Arc<Dentry>) -> Arc<Dentry> {
        let mut top = self.clone();
        while let Some(root) = top.mounted() {
            top = root;
        }
        top
    }

    /// The entry of that name, without looking at mounts. Directories in memory: O(log n).
    pub fn child(self: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>, Errno> {
        match &self.inode.kind {
            Kind::Directory if self.view.is_some() => self.origin().child(name).map(|child| self.see(child)),
            Kind::Directory => {
                self.children.lock().by_name.get(name).map(|(_, child)| child.clone()).ok_or(Errno::ENOENT)
            }
            Kind::Proc(node) => node.lookup(self, name),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The same for who does not hold [`tree::CHANGE`]: a name that is just being replaced by a rename is there.
    pub fn lookup(self: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>, Errno> {
        match self.child(name) {
            Err(Errno::ENOENT) if matches!(self.inode.kind, Kind::Directory) => {
                let _change = tree::CHANGE.lock();
                self.child(name)
            }
            found => found,
        }
    }

    /// Enters a child, which must have this as its parent.
    pub fn insert(&self, child: Arc<Dentry>) {
        let name = child.name();
        let mut children = self.children.lock();
        let age = children.next_age;
        children.next_age += 1;
        children.by_age.insert(age, name.clone());
        let replaced = children.by_name.insert(name, (age, child));
        debug_assert!(replaced.is_none(), "two entries of one name");
    }

    /// Takes a child out. Returns it.
    pub fn remove(&self, name: &[u8]) -> Option<Arc<Dentry>> {
        let mut children = self.children.lock();
        let (age, child) = children.by_name.remove(name)?;
        children.by_age.remove(&age);
        Some(child)
    }

    /// Entries of a directory in memory.
    pub fn child_count(&self) -> usize {
        if let Some(view) = &self.view {
            return view.of().child_count();
        }
        self.children.lock().by_name.len()
    }

    /// The newest entry older than `before`, and its age.
    pub fn newest_before(self: &Arc<Dentry>, before: u64) -> Option<(u64, Arc<Dentry>)> {
        if self.view.is_some() {
            return self.origin().newest_before(before).map(|(age, child)| (age, self.see(child)));
        }
        let children = self.children.lock();
        let (age, name) = children.by_age.range(..before).next_back()?;
        children.by_name.get(name).map(|(_, child)| (*age, child.clone()))
    }

    /// Forgets all entries below (a file system that goes away): parents and children refer to each other.
    pub fn clear(&self) {
        let mut below: Vec<Arc<Dentry>> = self.take_children();
        while let Some(child) = below.pop() {
            below.append(&mut child.take_children());
            child.set_place(Place::Root);
        }
    }

    fn take_children(&self) -> Vec<Arc<Dentry>> {
        let children = core::mem::take(&mut *self.children.lock());
        children.by_name.into_values().map(|(_, child)| child).collect()
    }

    /// Appends the path from `root` (or from the root of everything, if this is not below `root`), as `/proc` shows it: with
    /// ` (deleted)` if the name was removed. Not an inverse of lookup.
    pub fn path(self: &Arc<Dentry>, root: Option<&Arc<Dentry>>, out: &mut Vec<u8>) {
        if let Place::Nowhere(shown) = &*self.place.lock() {
            out.extend_from_slice(shown);
            return;
        }
        let mut names: Vec<Arc<[u8]>> = Vec::new();
        let mut at = self.clone();
        while !root.is_some_and(|root| Arc::ptr_eq(root, &at)) {
            if at.followed().is_some() {
                let up = at.parent();
                if Arc::ptr_eq(&up, &at) {
                    break;
                }
                names.push(core::mem::replace(&mut at, up).name());
                continue;
            }
            let up = match &*at.place.lock() {
                Place::In { parent, name, .. } => {
                    names.push(name.clone());
                    parent.clone()
                }
                Place::Root | Place::Nowhere(_) => break,
            };
            at = up;
        }
        if names.is_empty() {
            out.push(b'/');
        }
        for name in names.iter().rev() {
            out.push(b'/');
            out.extend_from_slice(name);
        }
        if self.is_removed() {
            out.extend_from_slice(b" (deleted)");
        }
    }

    /// Whether `self` is `other` or lies below it.
    pub fn is_below(self: &Arc<Dentry>, other: &Arc<Dentry>) -> bool {
        let mut at = self.clone();
        loop {
            if Arc::ptr_eq(&at, other) {
                return true;
            }
            let up = at.parent();
            if Arc::ptr_eq(&up, &at) {
                return false;
            }
            at = up;
        }
    }
}

impl Drop for Dentry {
    /// Removed directories may hold a long chain of removed parents: it is taken apart link by link, since the kernel's stack is short.
    fn drop(&mut self) {
        let mut next = take_parent(&mut self.place);
        while let Some(mut last) = next.and_then(Arc::into_inner) {
            next = take_parent(&mut last.place);
        }
    }
}

fn take_parent(place: &mut Mutex<Place>) -> Option<Arc<Dentry>> {
    match core::mem::replace(place.get_mut(), Place::Root) {
        Place::In { parent, .. } => Some(parent),
        Place::Root | Place::Nowhere(_) => None,
    }
}
