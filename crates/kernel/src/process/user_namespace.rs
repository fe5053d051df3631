//! Namespaces of users (user_namespaces(7)): ids of their own for users and groups, and capabilities that count for what belongs to them.
//!
//! Inside the kernel an id is always the one in the first namespace; those of the others are translated where programs say and are told them. What has no
//! number in a namespace is shown there as [`OVERFLOW`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::SmallVec;
use spin::Once;

use super::credentials::{
    ALL_CAPABILITIES, CAP_SETFCAP, CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN, Capabilities, Credentials,
};
use super::namespaces::next_number;
use crate::errno::Errno;
use crate::sync::Mutex;

/// What an id that has no number is shown as (`/proc/sys/kernel/overflowuid`).
pub const OVERFLOW: u32 = 65_534;
/// No id at all.
const NONE: u32 = u32::MAX;
/// How deep they go (`create_user_ns` of Linux's `kernel/user_namespace.c`).
const DEEPEST: usize = 32;
/// Most lines of a map (`UID_GID_MAP_MAX_EXTENTS`).
const MOST_LINES: usize = 340;

impl core::fmt::Debug for UserNamespace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "user:[{}]", self.number)
    }
}

/// Users or groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ids {
    /// `uid_map`.
    Users,
    /// `gid_map`.
    Groups,
}

/// Some numbers of a namespace, and what they are in the first.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: u32,
    kernel: u32,
    count: u32,
}

type Map = SmallVec<[Extent; 1]>;

#[derive(Default)]
struct State {
    users: Map,
    groups: Map,
    /// `/proc/PID/setgroups` says "deny".
    denies_groups: bool,
}

/// A namespace of users.
pub struct UserNamespace {
    /// `st_ino` of its file.
    pub number: u64,
    level: usize,
    parent: Option<Arc<UserNamespace>>,
    /// Who made it, as user and group.
    pub owner: (u32, u32),
    /// Whether that one might have given files capabilities: else the parent's root is not to be had.
    maker_may_set_files: bool,
    state: Mutex<State>,
}

impl UserNamespace {
    /// The first, where every id is itself; with Linux's `PROC_USER_INIT_INO`.
    pub fn first() -> &'static Arc<UserNamespace> {
        static FIRST: Once<Arc<UserNamespace>> = Once::new();
        FIRST.call_once(|| {
            Arc::new(UserNamespace {
                number: 0xefff_fffd,
                level: 0,
                parent: None,
                owner: (0, 0),
                maker_may_set_files: true,
                state: Mutex::default(),
            })
        })
    }

    /// A new one, and who its maker is there: all-powerful, and nobody by number.
    ///
    /// # Errors
    /// `ENOSPC`: too deep. `EPERM`: the maker has no number itself.
    pub fn create(maker: &Credentials) -> Result<Credentials, Errno> {
        let parent = &maker.user_namespace;
        if parent.level >= DEEPEST {
            return Err(Errno::ENOSPC);
        }
        let known =
            parent.number_of(Ids::Users, maker.euid).is_some() && parent.number_of(Ids::Groups, maker.egid).is_some();
        if !known {
            return Err(Errno::EPERM);
        }
        let namespace = Arc::new(UserNamespace {
            number: next_number(),
            level: parent.level + 1,
            parent: Some(parent.clone()),
            owner: (maker.euid, maker.egid),
            maker_may_set_files: maker.may_here(CAP_SETFCAP),
            state: Mutex::new(State { denies_groups: parent.state.lock().denies_groups, ..State::default() }),
        });
        Ok(maker.all_powerful_in(namespace))
    }

    /// The one above.
    pub fn parent(&self) -> Option<&Arc<UserNamespace>> {
        self.parent.as_ref()
    }

    /// Whether it is the first.
    pub fn is_first(&self) -> bool {
        self.level == 0
    }

    /// Whether it is this one or below it.
    pub fn is_within(&self, above: &UserNamespace) -> bool {
        let mut at = self;
        loop {
            if core::ptr::eq(at, above) {
                return true;
            }
            match &at.parent {
                Some(parent) => at = parent,
                None => return false,
            }
        }
    }

    /// Which id a number means here (`make_kuid`).
    pub fn id_of(&self, ids: Ids, number: u32) -> Option<u32> {
        if self.level == 0 {
            return (number != NONE).then_some(number);
        }
        let state = self.state.lock();
        let found = state.map(ids).iter().find_map(|extent| {
            let offset = number.checked_sub(extent.first).filter(|&offset| offset < extent.count)?;
            Some(extent.kernel + offset)
        });
        found.filter(|_| number != NONE)
    }

    /// The number of an id here (`from_kuid`).
    pub fn number_of(&self, ids: Ids, id: u32) -> Option<u32> {
        if self.level == 0 {
            return Some(id);
        }
        self.state.lock().map(ids).iter().find_map(|extent| {
            let offset = id.checked_sub(extent.kernel).filter(|&offset| offset < extent.count)?;
            Some(extent.first + offset)
        })
    }

    /// As what an id is shown here (`from_kuid_munged`).
    pub fn shown(&self, ids: Ids, id: u32) -> u32 {
        self.number_of(ids, id).unwrap_or(OVERFLOW)
    }

    /// Whether its processes may set supplementary groups.
    pub fn may_set_groups(&self) -> bool {
        let state = self.state.lock();
        self.level == 0 || !state.denies_groups && !state.groups.is_empty()
    }

    /// Whether `/proc/PID/setgroups` says "deny".
    pub fn denies_groups(&self) -> bool {
        self.state.lock().denies_groups
    }

    /// Changes that (`proc_setgroups_write`). `EPERM`: groups are mapped already, or denied for ever.
    pub fn set_denies_groups(&self, denies: bool) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let refused = if denies { !state.groups.is_empty() || self.level == 0 } else { state.denies_groups };
        if refused {
            return Err(Errno::EPERM);
        }
        state.denies_groups = denies;
        Ok(())
    }

    /// The lines of a map as somebody in `reader` sees them: first number, what that is outside, how many.
    pub fn lines(&self, ids: Ids, reader: &Arc<UserNamespace>) -> Vec<[u32; 3]> {
        if self.level == 0 {
            return [[0, 0, u32::MAX]].into();
        }
        // Seen from inside, outside is the parent.
        let outside = match &self.parent {
            Some(parent) if core::ptr::eq(&**reader, self) => parent,
            _ => reader,
        };
        let extents: Map = self.state.lock().map(ids).clone();
        extents
            .iter()
            .map(|extent| [extent.first, outside.number_of(ids, extent.kernel).unwrap_or(NONE), extent.count])
            .collect()
    }

    /// Writes a map, which can be done once (`map_write` of Linux's `kernel/user_namespace.c`). `writer` is who opened the file.
    ///
    /// # Errors
    /// `EPERM`: there is one, or who writes may not; `EINVAL`: it is no map.
    pub fn write_map(&self, ids: Ids, text: &[u8], writer: &Credentials, actor: &Credentials) -> Result<(), Errno> {
        let Some(parent) = &self.parent else { return Err(Errno::EPERM) };
        let seen_from = &writer.user_namespace;
        if !core::ptr::eq(&**seen_from, self) && !Arc::ptr_eq(seen_from, parent) {
            return Err(Errno::EPERM);
        }
        if !self.state.lock().map(ids).is_empty() || !writer.may_in(self, CAP_SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        let mut map = parse(text)?;
        if !self.may_map(ids, &map, writer, actor, parent) {
            return Err(Errno::EPERM);
        }
        for extent in &mut map {
            // All of it must be mapped together above.
            let last = extent.kernel + (extent.count - 1);
            let kernel = parent.id_of(ids, extent.kernel).ok_or(Errno::EPERM)?;
            if parent.id_of(ids, last) != kernel.checked_add(extent.count - 1) {
                return Err(Errno::EPERM);
            }
            extent.kernel = kernel;
        }
        let mut state = self.state.lock();
        let place = state.map_mut(ids);
        if !place.is_empty() {
            return Err(Errno::EPERM);
        }
        *place = map;
        Ok(())
    }

    /// Who may write what (`new_idmap_permitted`): one's own id; anything with the capability above.
    fn may_map(&self, ids: Ids, map: &Map, writer: &Credentials, actor: &Credentials, parent: &UserNamespace) -> bool {
        let covers_root = map.iter().any(|extent| extent.kernel == 0);
        if ids == Ids::Users && covers_root {
            let from_inside = core::ptr::eq(&*writer.user_namespace, self);
            let may = if from_inside { self.maker_may_set_files } else { writer.may_in(parent, CAP_SETFCAP) };
            if !may {
                return false;
            }
        }
        if let [Extent { kernel, count: 1, .. }] = map[..]
            && self.owner.0 == writer.euid
        {
            let own = match ids {
                Ids::Users => parent.id_of(ids, kernel) == Some(writer.euid),
                Ids::Groups => self.denies_groups() && parent.id_of(ids, kernel) == Some(writer.egid),
            };
            if own {
                return true;
            }
        }
        let capability = if ids == Ids::Users { CAP_SETUID } else { CAP_SETGID };
        actor.may_in(parent, capability) && writer.may_in(parent, capability)
    }
}

impl State {
    fn map(&self, ids: Ids) -> &Map {
        if ids == Ids::Users { &self.users } else { &self.groups }
    }

    fn map_mut(&mut self, ids: Ids) -> &mut Map {
        if ids == Ids::Users { &mut self.users } else { &mut self.groups }
    }
}

/// Lines of three numbers; what is said as outside is still the parent's.
fn parse(text: &[u8]) -> Result<Map, Errno> {
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut map = Map::new();
    for line in text.split('\n') {
        let mut words = line.split_ascii_whitespace().map(|word| word.parse::<u32>());
        let mut next = || words.next().and_then(Result::ok).ok_or(Errno::EINVAL);
        let extent = Extent { first: next()?, kernel: next()?, count: next()? };
        let ends = |start: u32| start != NONE && start.checked_add(extent.count).is_some_and(|end| end > start);
        let overlaps = |other: &Extent| {
            let meets = |one: u32, other_start: u32, len: u32| {
                one < other_start.saturating_add(len) && other_start < one.saturating_add(extent.count)
            };
            meets(extent.first, other.first, other.count) || meets(extent.kernel, other.kernel, other.count)
        };
        let bad = words.next().is_some() || !ends(extent.first) || !ends(extent.kernel) || map.iter().any(overlaps);
        if bad || map.len() == MOST_LINES {
            return Err(Errno::EINVAL);
        }
        map.push(extent);
    }
    Ok(map)
}

impl Credentials {
    /// The same in another namespace, where all may be done (`set_cred_user_ns`).
    pub fn all_powerful_in(&self, namespace: Arc<UserNamespace>) -> Credentials {
        let capabilities = Capabilities {
            effective: ALL_CAPABILITIES,
            permitted: ALL_CAPABILITIES,
            inheritable: 0,
            bounding: ALL_CAPABILITIES,
            ambient: 0,
        };
        Credentials { user_namespace: namespace, capabilities, secure_bits: 0, ..self.clone() }
    }

    /// Whether a capability counts for what belongs to `namespace` (`cap_capable` of Linux's `security/commoncap.c`): one's own in one's own namespace and
    /// those below, and all of them in those that one has made.
    pub fn may_in(&self, namespace: &UserNamespace, capability: u32) -> bool {
        let own = &self.user_namespace;
        let mut at = namespace;
        loop {
            if core::ptr::eq(at, &**own) {
                return self.may_here(capability);
            }
            let Some(parent) = at.parent.as_ref().filter(|_| at.level > own.level) else { return false };
            if Arc::ptr_eq(parent, own) && at.owner.0 == self.euid {
                return true;
            }
            at = parent;
        }
    }

    /// Whether a capability counts for a file (`capable_wrt_inode_uidgid`): owner and group must have numbers here.
    pub fn may_to_file(&self, (uid, gid): (u32, u32), capability: u32) -> bool {
        let own = &self.user_namespace;
        self.may_here(capability)
            && (own.is_first() || own.number_of(Ids::Users, uid).is_some() && own.number_of(Ids::Groups, gid).is_some())
    }

    /// As what it is shown a user.
    pub fn shown_user(&self, uid: u32) -> u32 {
        self.user_namespace.shown(Ids::Users, uid)
    }

    /// As what it is shown a group.
    pub fn shown_group(&self, gid: u32) -> u32 {
        self.user_namespace.shown(Ids::Groups, gid)
    }
}
