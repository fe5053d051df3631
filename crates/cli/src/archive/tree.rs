//! A file tree in memory.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Links followed before a path is taken for a loop, as Linux does (`MAXSYMLINKS`, path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Files by their absolute path. Parents come before their children in its order, as unpackers need it.
#[derive(Default)]
pub struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
}

/// One file.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    /// Permission bits, with set-id and sticky bits.
    pub mode: u32,
    /// Time of the last change, in seconds since 1970.
    pub mtime: u32,
}

/// What a file is and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    /// A file whose content is read from the host when the archive is written.
    Host(PathBuf),
    Bytes(Vec<u8>),
    Link(PathBuf),
    Fifo,
    /// A character device.
    Device {
        major: u32,
        minor: u32,
    },
}

impl Node {
    fn new(kind: Kind, mode: u32) -> Self {
        Self { kind, mode, mtime: 0 }
    }

    pub fn directory(mode: u32) -> Self {
        Self::new(Kind::Directory, mode)
    }

    pub fn file(content: Vec<u8>, mode: u32) -> Self {
        Self::new(Kind::Bytes(content), mode)
    }

    pub fn host(path: &Path, mode: u32) -> Self {
        Self::new(Kind::Host(path.to_owned()), mode)
    }

    pub fn link(target: &str) -> Self {
        Self::new(Kind::Link(target.into()), 0o777)
    }

    pub fn device(mode: u32, major: u32, minor: u32) -> Self {
        Self::new(Kind::Device { major, minor }, mode)
    }
}

impl Tree {
    /// All files, parents first.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_path(), node))
    }

    /// Puts a file at `path`, whose directories may be links, in place of whatever is there. Directories on the way
    /// that are missing are made. Returns the path without links.
    pub fn add(&mut self, path: &str, node: Node) -> PathBuf {
        let path = Path::new(path);
        let name = path.file_name().expect("a file in the archive has a name");
        let parent = path.parent().expect("a path in the archive is absolute");
        let place = self.make_directories(parent).join(name);
        self.nodes.insert(place.clone(), node);
        place
    }

    /// Puts a file at `path` unless something is there already.
    pub fn add_missing(&mut self, path: &str, node: Node) {
        if self.resolve(Path::new(path)).is_none() && !self.nodes.contains_key(Path::new(path)) {
            self.add(path, node);
        }
    }

    /// The file at `path`, links followed, with its path without links. `None` if there is none.
    pub fn resolve(&self, path: &Path) -> Option<(PathBuf, &Node)> {
        let place = self.walk(path)?;
        let node = self.nodes.get(&place)?;
        Some((place, node))
    }

    /// Adds everything below a directory of the host.
    ///
    /// Owners are not kept: everything belongs to root inside. A file with several names becomes one file and links
    /// to it, as unpackers differ in how they treat hard links.
    pub fn import(&mut self, root: &Path) -> Result<()> {
        if !root.is_dir() {
            bail!("--root {} is not a directory", root.display());
        }
        let mut names = HashMap::new();
        let mut left = vec![PathBuf::from("/")];
        while let Some(dir) = left.pop() {
            let on_host = root.join(dir.strip_prefix("/").expect("paths in the archive are absolute"));
            let entries = fs::read_dir(&on_host).with_context(|| format!("cannot read {}", on_host.display()))?;
            for entry in entries {
                let host = entry.with_context(|| format!("cannot read {}", on_host.display()))?.path();
                let place = dir.join(host.file_name().expect("a directory entry has a name"));
                let about = fs::symlink_metadata(&host).with_context(|| format!("cannot read {}", host.display()))?;
                let Some(kind) = kind_of(&host, &about, &place, &mut names)? else { continue };
                if kind == Kind::Directory {
                    left.push(place.clone());
                }
                let mtime = u32::try_from(about.mtime()).unwrap_or(0);
                self.nodes.insert(place, Node { kind, mode: about.mode() & 0o7777, mtime });
            }
        }
        Ok(())
    }

    fn make_directories(&mut self, dir: &Path) -> PathBuf {
        let mut place = PathBuf::from("/");
        for part in dir.components() {
            let Component::Normal(name) = part else { continue };
            let next = place.join(name);
            place = match self.resolve(&next) {
                Some((real, Node { kind: Kind::Directory, .. })) => real,
                // Nothing there, or something that cannot hold a file: it has to make room.
                _ => {
                    self.nodes.insert(next.clone(), Node::directory(0o755));
                    next
                }
            };
        }
        place
    }

    fn walk(&self, path: &Path) -> Option<PathBuf> {
        let mut place = PathBuf::from("/");
        // What is still to be walked, the next part last.
        let mut ahead: Vec<PathBuf> = parts(path);
        let mut links = 0;
        while let Some(part) = ahead.pop() {
            if part == Path::new("..") {
                place.pop();
                continue;
            }
            let next = place.join(&part);
            match &self.nodes.get(&next)?.kind {
                Kind::Link(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return None;
                    }
                    if target.is_absolute() {
                        place = PathBuf::from("/");
                    }
                    ahead.extend(parts(target));
                }
                _ => place = next,
            }
        }
        Some(place)
    }
}

fn parts(path: &Path) -> Vec<PathBuf> {
    let kept = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    kept.map(|part| PathBuf::from(part.as_os_str())).rev().collect()
}

/// What the archive holds for a file of the host: nothing for a socket or a block device.
fn kind_of(
    host: &Path,
    about: &Metadata,
    place: &Path,
    names: &mut HashMap<(u64, u64), PathBuf>,
) -> Result<Option<Kind>> {
    let kind = about.file_type();
    Ok(Some(if kind.is_dir() {
        Kind::Directory
    } else if kind.is_symlink() {
        Kind::Link(fs::read_link(host).with_context(|| format!("cannot read {}", host.display()))?)
    } else if kind.is_file() {
        match names.get(&(about.dev(), about.ino())) {
            Some(first) => Kind::Link(first.clone()),
            None => {
                if about.nlink() > 1 {
                    names.insert((about.dev(), about.ino()), place.to_owned());
                }
                Kind::Host(host.to_owned())
            }
        }
    } else if kind.is_fifo() {
        Kind::Fifo
    } else if kind.is_char_device() {
        Kind::Device { major: rustix::fs::major(about.rdev()), minor: rustix::fs::minor(about.rdev()) }
    } else {
        return Ok(None);
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(nodes: &[(&str, Node)]) -> Tree {
        let mut tree = Tree::default();
        for (path, node) in nodes {
            tree.nodes.insert(PathBuf::from(path), node.clone());
        }
        tree
    }

    fn place(tree: &Tree, path: &str) -> Option<String> {
        tree.resolve(Path::new(path)).map(|(place, _)| place.to_str().unwrap().to_owned())
    }

    #[test]
    fn links_are_followed_as_inside_the_root() {
        let tree = tree(&[
            ("/usr", Node::directory(0o755)),
            ("/usr/bin", Node::directory(0o755)),
            ("/usr/bin/dash", Node::file(vec![], 0o755)),
            ("/usr/bin/sh", Node::link("dash")),
            ("/bin", Node::link("usr/bin")),
            ("/out", Node::link("/../../bin/sh")),
            ("/loop", Node::link("loop")),
        ]);
        assert_eq!(place(&tree, "/bin/sh").as_deref(), Some("/usr/bin/dash"));
        assert_eq!(place(&tree, "/out").as_deref(), Some("/usr/bin/dash"));
        assert_eq!(place(&tree, "/usr/bin/../bin/./sh").as_deref(), Some("/usr/bin/dash"));
        assert_eq!(place(&tree, "/loop"), None);
        assert_eq!(place(&tree, "/bin/none"), None);
    }

    #[test]
    fn adding_goes_through_linked_directories_and_makes_missing_ones() {
        let mut tree = tree(&[
            ("/usr", Node::directory(0o755)),
            ("/usr/bin", Node::directory(0o755)),
            ("/bin", Node::link("usr/bin")),
        ]);
        assert_eq!(tree.add("/bin/prog", Node::file(vec![], 0o755)), Path::new("/usr/bin/prog"));
        assert_eq!(tree.add("/a/b/c", Node::file(vec![], 0o644)), Path::new("/a/b/c"));
        assert_eq!(tree.resolve(Path::new("/a/b")).unwrap().1.kind, Kind::Directory);
        tree.add_missing("/bin/prog", Node::file(b"other".to_vec(), 0o755));
        assert_eq!(tree.resolve(Path::new("/bin/prog")).unwrap().1.kind, Kind::Bytes(vec![]));
        let paths: Vec<_> = tree.iter().map(|(path, _)| path.to_str().unwrap().to_owned()).collect();
        assert_eq!(paths, ["/a", "/a/b", "/a/b/c", "/bin", "/usr", "/usr/bin", "/usr/bin/prog"]);
    }

    #[test]
    fn importing_keeps_modes_and_links_and_turns_further_names_into_links() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/a"), "x").unwrap();
        fs::hard_link(dir.path().join("d/a"), dir.path().join("d/b")).unwrap();
        std::os::unix::fs::symlink("d/a", dir.path().join("l")).unwrap();
        let mut tree = Tree::default();
        tree.import(dir.path()).unwrap();
        let kinds: Vec<_> = tree.iter().map(|(_, node)| &node.kind).collect();
        let files = kinds.iter().filter(|kind| matches!(kind, Kind::Host(_))).count();
        assert_eq!((kinds.len(), files), (4, 1));
        assert_eq!(place(&tree, "/d/a"), place(&tree, "/d/b"));
        assert_eq!(
            tree.resolve(Path::new("/l")).unwrap().1.mode & 0o777,
            tree.resolve(Path::new("/d/a")).unwrap().1.mode & 0o777
        );
    }
}
