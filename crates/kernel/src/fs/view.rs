//! Names seen through a further mount: the same directories and files, at another place. What is bound elsewhere, and each mount namespace but the
//! first, consists of such views; names are made and removed in what they are views of.
//!
//! ```text
//!   /a          dentry  ◄── of ──  view, root of the mount on /b
//!   /a/x        dentry  ◄── of ──  view, made when /b/x is looked up, forgotten when nobody has it any more
//! ```
//!
//! A view is one object as long as somebody has it, so that it says by itself what is mounted there, and two lookups find the same.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::dentry::{Dentry, Place};
use super::inode::Kind;
use crate::sync::Mutex;

/// Names that are no one's any more are thrown out when there are more than so many.
const MANY: usize = 64;

/// What makes a dentry a view.
pub struct View {
    /// What it is a view of, which is none itself.
    of: Arc<Dentry>,
    /// The root of its mount; itself, if it is that.
    root: Weak<Dentry>,
    /// Whether it is that.
    is_root: bool,
    /// Its children, as far as somebody has them.
    seen: Mutex<BTreeMap<Arc<[u8]>, Weak<Dentry>>>,
}

impl View {
    fn new(of: Arc<Dentry>, root: Weak<Dentry>, is_root: bool) -> View {
        View { of, root, is_root, seen: Mutex::new(BTreeMap::new()) }
    }

    /// Whether its place is that of what it is a view of.
    pub(super) fn follows(&self) -> bool {
        !self.is_root
    }

    pub(super) fn of(&self) -> &Arc<Dentry> {
        &self.of
    }
}

impl Dentry {
    /// A further mount's root, at `place`: a view of this, or of what this is a view of.
    pub fn bound_at(self: &Arc<Dentry>, place: Place) -> Arc<Dentry> {
        let of = self.origin().clone();
        Arc::new_cyclic(|root| {
            let inode = of.inode.clone();
            Dentry::with_view(place, inode, Some(View::new(of, root.clone(), true)))
        })
    }

    /// Where names are made and removed: what it is a view of, or itself.
    pub fn origin(self: &Arc<Dentry>) -> &Arc<Dentry> {
        self.view().map_or(self, View::of)
    }

    /// `origin`, which is below what this is a view of, as it is seen from here: an entry of this directory.
    pub fn see(self: &Arc<Dentry>, origin: Arc<Dentry>) -> Arc<Dentry> {
        let Some(view) = self.view() else { return origin };
        let name = origin.name();
        let mut seen = view.seen.lock();
        let known = seen.get(&name).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| Arc::ptr_eq(known.origin(), &origin)) {
            return known;
        }
        let place = Place::In { parent: self.clone(), name: name.clone(), removed: false };
        let inode = origin.inode.clone();
        let child = Arc::new(Dentry::with_view(place, inode, Some(View::new(origin, view.root.clone(), false))));
        if seen.len() >= MANY {
            seen.retain(|_, view| view.strong_count() > 0);
        }
        seen.insert(name, Arc::downgrade(&child));
        child
    }

    /// `origin` as it is seen from this root of a mount; `None` if it is not below what this is a view of.
    pub fn view_of(self: &Arc<Dentry>, origin: &Arc<Dentry>) -> Option<Arc<Dentry>> {
        let mut way = Vec::new();
        let mut at = origin.clone();
        while !Arc::ptr_eq(&at, self.origin()) {
            let up = at.parent();
            if Arc::ptr_eq(&up, &at) {
                return None;
            }
            way.push(core::mem::replace(&mut at, up));
        }
        let mut seen = self.clone();
        for step in way.into_iter().rev() {
            seen = match step.inode.kind {
                Kind::Proc(_) => Dentry::new(&seen, &step.name(), step.inode.clone()),
                _ => seen.see(step),
            };
        }
        Some(seen)
    }

    /// The root of the mount through which it is seen, if that is a further one.
    pub fn mount_root(&self) -> Option<Arc<Dentry>> {
        self.view()?.root.upgrade()
    }

    /// The directory of a view that is no root, where what it is a view of is now; `known` is where that was.
    pub(super) fn parent_view(&self, known: Arc<Dentry>) -> Option<Arc<Dentry>> {
        let view = self.view()?;
        let parent = view.of.parent();
        if Arc::ptr_eq(known.origin(), &parent) {
            return Some(known);
        }
        view.root.upgrade()?.view_of(&parent)
    }
}
