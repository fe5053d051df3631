//! What happens to a mount's copies when something is mounted on it or taken away (mount_namespaces(7), "SHARED SUBTREES"; Linux's `fs/pnode.c`).
//!
//! Mounts of one *peer group* do the same; a mount may be a *slave* of a group, which does what that does and not the other way round. Groups have numbers.
//! Each namespace is locked by itself, so that what is mounted at the same time elsewhere may come before or after.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use super::change::Submounts;
use super::{Mount, MountNamespace};
use crate::errno::Errno;
use crate::fs::dentry::Dentry;
use crate::sync::Mutex;

/// Number of a peer group.
type Group = u32;

/// Whom a mount has to do with.
#[derive(Clone, Copy, Default, Debug)]
pub struct Propagation {
    /// The group it is in.
    group: Option<Group>,
    /// The group it is a slave of.
    master: Option<Group>,
    /// It cannot be bound elsewhere.
    unbindable: bool,
}

/// What a mount is to be (`MS_SHARED` and the like).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// In a group.
    Shared,
    /// With nobody.
    Private,
    /// A slave of the group it was in.
    Slave,
    /// With nobody, and not to be bound.
    Unbindable,
}

/// All namespaces.
static ALL: Mutex<Vec<Weak<MountNamespace>>> = Mutex::new(Vec::new());

/// A namespace has been made.
pub(super) fn register(namespace: &Arc<MountNamespace>) {
    let mut all = ALL.lock();
    all.retain(|other| other.strong_count() > 0);
    all.push(Arc::downgrade(namespace));
}

fn all() -> Vec<Arc<MountNamespace>> {
    ALL.lock().iter().filter_map(Weak::upgrade).collect()
}

fn new_group() -> Group {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// As what somebody gets what happens to a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Peer,
    /// A slave in no group, or in one of its own: what it gets is in that group too.
    Slave,
}

/// Who gets what happens to `group`, but `own`: a mount, its namespace, and as what.
fn receivers(group: Group, own: u32) -> Vec<(Arc<MountNamespace>, Mount, Role)> {
    let mut found: Vec<(Arc<MountNamespace>, Mount, Role)> = Vec::new();
    let mut groups = alloc::vec![(group, Role::Peer)];
    let namespaces = all();
    while let Some((group, role)) = groups.pop() {
        for namespace in &namespaces {
            let mounts = namespace.state.lock().mounts.clone();
            for mount in mounts {
                let of = *mount.propagation.lock();
                let role = match (of.group == Some(group), of.master == Some(group)) {
                    (true, _) => role,
                    (false, true) => Role::Slave,
                    _ => continue,
                };
                if mount.id == own || found.iter().any(|(_, other, _)| other.id == mount.id) {
                    continue;
                }
                if let Some(below) = of.group.filter(|&below| below != group) {
                    groups.push((below, Role::Slave));
                }
                found.push((namespace.clone(), mount, role));
            }
        }
    }
    found
}

/// How many mounts are in a group.
fn members(group: Group) -> usize {
    let in_group = |mount: &&Mount| mount.propagation.lock().group == Some(group);
    all().iter().map(|namespace| namespace.state.lock().mounts.iter().filter(in_group).count()).sum()
}

/// The slaves of a group that has lost its last member are those of `master` now.
fn hand_on_slaves(group: Group, master: Option<Group>) {
    for namespace in all() {
        for mount in &namespace.state.lock().mounts {
            let mut of = mount.propagation.lock();
            if of.master == Some(group) {
                of.master = master;
            }
        }
    }
}

impl Propagation {
    /// That of a copy for another namespace of users, which only gets.
    #[must_use]
    pub(super) fn received(self) -> Propagation {
        Propagation { group: None, master: self.group.or(self.master), ..self }
    }

    /// As `/proc/PID/mountinfo` shows it.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        [("shared", self.group), ("master", self.master)].into_iter().filter_map(|(name, group)| Some((name, group?)))
    }

    /// Whether it cannot be bound.
    pub fn is_unbindable(&self) -> bool {
        self.unbindable
    }

    /// Whether it is in a group.
    pub(super) fn is_shared(&self) -> bool {
        self.group.is_some()
    }
}

impl Mount {
    pub(super) fn is_shared(&self) -> bool {
        self.propagation.lock().is_shared()
    }

    pub(super) fn share(&self) {
        let mut of = self.propagation.lock();
        if of.group.is_none() {
            of.group = Some(new_group());
        }
        of.unbindable = false;
    }

    fn change(&self, manner: Manner) {
        if manner == Manner::Shared {
            return self.share();
        }
        let before = *self.propagation.lock();
        let alone = before.group.is_some_and(|group| members(group) == 1);
        if let Some(group) = before.group.filter(|_| alone) {
            hand_on_slaves(group, before.master);
        }
        *self.propagation.lock() = match manner {
            Manner::Slave => Propagation {
                group: None,
                master: before.group.filter(|_| !alone).or(before.master),
                unbindable: false,
            },
            _ => Propagation { unbindable: manner == Manner::Unbindable, ..Propagation::default() },
        };
    }
}

impl MountNamespace {
    /// Says whom the mount with its root at `target`, and those below it if they are meant, have to do with. `EINVAL`: there is none.
    pub fn set_propagation(&self, target: &Arc<Dentry>, manner: Manner, below: Submounts) -> Result<(), Errno> {
        let chosen = {
            let state = self.state.lock();
            let index = state.at(target).ok_or(Errno::EINVAL)?;
            let mut chosen = alloc::vec![state.mounts[index].clone()];
            if below == Submounts::Too {
                let inside = |mount: &&Mount| mount.covers.as_ref().is_some_and(|covers| covers.is_below(target));
                chosen.extend(state.mounts.iter().filter(inside).cloned());
            }
            chosen
        };
        for mount in chosen {
            mount.change(manner);
        }
        Ok(())
    }

    /// The mount that `dentry` is seen through, if it is in a group: its number and the group's.
    pub(super) fn group_at(&self, dentry: &Arc<Dentry>) -> Option<(u32, Group)> {
        let state = self.state.lock();
        let mount = state.mount_of(dentry)?;
        let group = mount.propagation.lock().group?;
        Some((mount.id, group))
    }

    /// What has been mounted on `target`, with its root at `top`, is mounted on the copies of what `target` is seen through.
    pub(super) fn propagate_mount(&self, through: (u32, Group), target: &Arc<Dentry>, top: &Arc<Dentry>) {
        for (namespace, mount, role) in receivers(through.1, through.0) {
            let Some(place) = mount.root.view_of(target.origin()) else { continue };
            let Ok(copies) = self.clone_tree(top, Submounts::Too) else { continue };
            if role == Role::Slave {
                let shared = mount.is_shared();
                for copy in &copies {
                    let received = copy.propagation.lock().received();
                    *copy.propagation.lock() = received;
                    if shared {
                        copy.share();
                    }
                }
            }
            namespace.attach_quietly(copies, &place);
        }
    }

    /// What was mounted on `covered` has been taken away, and goes from the copies of what that is seen through.
    pub(super) fn propagate_unmount(&self, through: (u32, Group), covered: &Arc<Dentry>, below: Submounts) {
        for (namespace, mount, _) in receivers(through.1, through.0) {
            let Some(place) = mount.root.view_of(covered.origin()) else { continue };
            let there = {
                let state = namespace.state.lock();
                let on_it = |mount: &&Mount| mount.covers.as_ref().is_some_and(|covers| Arc::ptr_eq(covers, &place));
                state.mounts.iter().rfind(on_it).map(|mount| mount.root.clone())
            };
            if let Some(root) = there {
                // One with something on it stays.
                let _ = namespace.take_away(&root, below);
            }
        }
    }
}
