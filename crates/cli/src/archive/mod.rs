//! The archive that a machine boots with: a file tree in memory, written as cpio (newc), which both kernels unpack
//! into their root file system.

mod tree;
mod write;

pub use tree::{Kind, Node, Tree};
pub use write::write;

use std::path::Path;

use anyhow::Result;

/// Directories that every Linux program may expect.
const DIRECTORIES: [(&str, u32); 11] = [
    ("/bin", 0o755),
    ("/dev", 0o755),
    ("/etc", 0o755),
    ("/proc", 0o555),
    ("/root", 0o700),
    ("/run", 0o755),
    ("/sys", 0o555),
    ("/tmp", 0o1777),
    ("/usr", 0o755),
    ("/var", 0o755),
    ("/.foldspace", 0o700),
];

/// Files that name lookups need: without them `id` and `ls -l` show numbers.
const FILES: [(&str, &str); 3] = [
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    ("/etc/group", "root:x:0:\n"),
    ("/etc/hostname", "foldspace\n"),
];

/// Device nodes for the moment before a kernel's own `/dev` is there (Linux opens the console before its first process
/// runs; major and minor numbers from Linux's `Documentation/admin-guide/devices.txt`).
const DEVICES: [(&str, u32, u32, u32); 5] = [
    ("/dev/console", 0o600, 5, 1),
    ("/dev/null", 0o666, 1, 3),
    ("/dev/zero", 0o666, 1, 5),
    ("/dev/urandom", 0o666, 1, 9),
    ("/dev/tty", 0o666, 5, 0),
];

/// The tree below everything: `root`'s content if there is one, and what it lacks of the usual skeleton.
pub fn base(root: Option<&Path>) -> Result<Tree> {
    let mut tree = Tree::default();
    if let Some(root) = root {
        tree.import(root)?;
    }
    for (path, mode) in DIRECTORIES {
        tree.add_missing(path, Node::directory(mode));
    }
    for (path, text) in FILES {
        tree.add_missing(path, Node::file(text.as_bytes().to_vec(), 0o644));
    }
    for (path, mode, major, minor) in DEVICES {
        tree.add_missing(path, Node::device(mode, major, minor));
    }
    Ok(tree)
}
