//! Who is reached by which name: names in the file system stand for an inode, abstract ones for themselves.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use crate::sync::Mutex;

use super::{Endpoint, Style};
use crate::errno::Errno;
use crate::fs::Inode;
use crate::process::net::Net;

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Key {
    /// Device and number of an inode; neither is ever given out again.
    Inode(u64, u64),
    /// The bytes after the first NUL; sockets of different kinds, and of different network namespaces, do not see each other's.
    Abstract(u64, Style, Vec<u8>),
}

static NAMES: Mutex<BTreeMap<Key, Weak<Endpoint>>> = Mutex::new(BTreeMap::new());

/// That a socket goes by a name, until this is dropped. The name in the file system stays.
pub struct Bound(Key);

impl Drop for Bound {
    fn drop(&mut self) {
        let gone = NAMES.lock().remove(&self.0);
        drop(gone);
    }
}

fn key_of(inode: &Inode) -> Key {
    Key::Inode(inode.superblock.device.encode(), inode.number)
}

fn insert(key: Key, end: &Arc<Endpoint>) -> Result<Bound, Errno> {
    let mut names = NAMES.lock();
    if names.contains_key(&key) {
        return Err(Errno::EADDRINUSE);
    }
    names.insert(key.clone(), Arc::downgrade(end));
    Ok(Bound(key))
}

/// Makes a socket be reached by an inode that was made for it.
pub fn bind_inode(inode: &Inode, end: &Arc<Endpoint>) -> Result<Bound, Errno> {
    insert(key_of(inode), end)
}

/// Makes a socket be reached by an abstract name. `EADDRINUSE`.
pub fn bind_abstract(name: &[u8], end: &Arc<Endpoint>) -> Result<Bound, Errno> {
    insert(Key::Abstract(end.net.number, end.style, name.to_vec()), end)
}

/// An abstract name that nobody has (`unix_autobind`): five hexadecimal digits.
pub fn unused(net: &Net, style: Style) -> Option<Vec<u8>> {
    let names = NAMES.lock();
    let mut candidates = (0..0x10_0000_u32).map(|number| format!("{number:05x}").into_bytes());
    candidates.find(|name| !names.contains_key(&Key::Abstract(net.number, style, name.clone())))
}

/// Whoever is reached by an inode.
pub fn by_inode(inode: &Inode) -> Option<Arc<Endpoint>> {
    NAMES.lock().get(&key_of(inode))?.upgrade()
}

/// Whoever is reached by an abstract name.
pub fn by_abstract(net: &Net, style: Style, name: &[u8]) -> Option<Arc<Endpoint>> {
    NAMES.lock().get(&Key::Abstract(net.number, style, name.to_vec()))?.upgrade()
}
