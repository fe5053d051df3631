//! From a path to a dentry.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::dentry::{Dentry, NAME_MAX};
use super::inode::Kind;
use super::mount;
use super::permission::{Asker, Wanted};
use super::procfs::{Jump, shown_in};
use crate::errno::Errno;

/// Symbolic links that one lookup follows (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// What a task's paths are relative to, and the mode bits that it does not give.
#[derive(Clone)]
pub struct FsContext {
    /// Current directory.
    pub cwd: Arc<Dentry>,
    /// What `/` means.
    pub root: Arc<Dentry>,
    /// Permission bits that new files do not get.
    pub umask: u32,
}

/// What to do with a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastLink {
    /// Go where it points.
    Follow,
    /// Stay.
    Keep,
}

/// The directory that a path's last component is in, and that component.
pub struct Parent {
    /// The directory.
    pub directory: Arc<Dentry>,
    /// The component.
    pub last: Last,
    /// Whether slashes came after it: it must be a directory.
    pub trailing_slash: bool,
}

/// The last component of a path.
pub enum Last {
    /// A name.
    Name(Vec<u8>),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// There was none: the path is of slashes only.
    Root,
}

impl Last {
    /// The name, or the error of a call that makes or removes one where there is none.
    pub fn name(&self, otherwise: Errno) -> Result<&[u8], Errno> {
        match self {
            Last::Name(name) => Ok(name),
            _ => Err(otherwise),
        }
    }
}

impl FsContext {
    /// At the root of everything.
    pub fn new(root: Arc<Dentry>) -> FsContext {
        FsContext { cwd: root.clone(), root, umask: 0o022 }
    }

    /// The directory above, no further than the root.
    pub fn up(&self, from: &Arc<Dentry>) -> Arc<Dentry> {
        if Arc::ptr_eq(from, &self.root) { from.clone() } else { from.parent() }
    }
}

/// One lookup: counts the links that it follows.
pub struct Lookup<'a> {
    context: &'a FsContext,
    links: u32,
    /// Who must be allowed to go through the directories; `None` for root.
    asker: Option<Asker>,
}

/// Where a link leads.
enum Led {
    /// On along a path from the directory that holds the link.
    Along(Vec<u8>),
    /// Right there.
    To(Arc<Dentry>),
}

/// Which component is handled how.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Go through to the end.
    AtEnd,
    /// Stop before the last component.
    BeforeLast,
}

/// Where a walk ended.
enum End {
    At { dentry: Arc<Dentry>, trailing_slash: bool },
    Before(Parent),
}

impl<'a> Lookup<'a> {
    /// A new one.
    pub fn new(context: &'a FsContext) -> Lookup<'a> {
        Lookup { context, links: 0, asker: Asker::current() }
    }

    /// What `path`, relative to `base`, refers to.
    pub fn resolve(&mut self, base: &Arc<Dentry>, path: &[u8], last_link: LastLink) -> Result<Arc<Dentry>, Errno> {
        let found = self.resolve_unnoticed(base, path, last_link);
        found.inspect(mount::looked_up)
    }

    /// The same, which does not count as a use of the mount where it is.
    pub fn resolve_unnoticed(
        &mut self,
        base: &Arc<Dentry>,
        path: &[u8],
        last_link: LastLink,
    ) -> Result<Arc<Dentry>, Errno> {
        match self.walk(base, path, last_link, Stop::AtEnd)? {
            End::At { dentry, trailing_slash } if trailing_slash && !dentry.inode.is_directory() => Err(Errno::ENOTDIR),
            End::At { dentry, .. } => Ok(dentry),
            End::Before(_) => Err(Errno::ENOENT),
        }
    }

    /// The directory of the last component of `path`, and that component.
    pub fn parent(&mut self, base: &Arc<Dentry>, path: &[u8]) -> Result<Parent, Errno> {
        match self.walk(base, path, LastLink::Keep, Stop::BeforeLast)? {
            End::Before(parent) => Ok(parent),
            End::At { dentry, .. } => Ok(Parent { directory: dentry, last: Last::Root, trailing_slash: true }),
        }
    }

    /// Where the symbolic link `link`, found in `directory`, leads to a place for a file: as [`Lookup::parent`] of its target. `Ok(Err(_))` if it
    /// leads to a file by itself (the links of `/proc/PID/fd`).
    pub fn parent_of_target(
        &mut self,
        directory: &Arc<Dentry>,
        link: &Arc<Dentry>,
    ) -> Result<Result<Parent, Arc<Dentry>>, Errno> {
        match self.follow(link)? {
            Led::Along(target) => self.parent(directory, &target).map(Ok),
            Led::To(dentry) => Ok(Err(dentry)),
        }
    }

    fn walk(&mut self, base: &Arc<Dentry>, path: &[u8], last_link: LastLink, stop: Stop) -> Result<End, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let mut text: Cow<'_, [u8]> = Cow::Borrowed(path);
        let mut at = if path[0] == b'/' { self.context.root.clone() } else { base.clone() };
        let mut next = 0;
        loop {
            next += text[next..].iter().take_while(|&&byte| byte == b'/').count();
            if next == text.len() {
                return Ok(End::At { dentry: at, trailing_slash: text.ends_with(b"/") });
            }
            let len = text[next..].iter().position(|&byte| byte == b'/').unwrap_or(text.len() - next);
            let component = &text[next..next + len];
            next += len;
            let is_last = text[next..].iter().all(|&byte| byte == b'/');
            if !at.inode.is_directory() {
                return Err(Errno::ENOTDIR);
            }
            if let Some(asker) = &self.asker {
                asker.check(&at.inode, Wanted::EXECUTE)?;
            }
            if component.len() > NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            if is_last && stop == Stop::BeforeLast {
                let last = match component {
                    b"." => Last::Dot,
                    b".." => Last::DotDot,
                    name => Last::Name(name.to_vec()),
                };
                return Ok(End::Before(Parent { directory: at, last, trailing_slash: next < text.len() }));
            }
            let child = match component {
                b"." => continue,
                b".." => {
                    at = self.context.up(&at);
                    continue;
                }
                name => at.lookup(name)?.uncovered(),
            };
            let stays = is_last && last_link == LastLink::Keep && next == text.len();
            if !child.inode.is_symlink() || stays {
                at = child;
                continue;
            }
            match self.follow(&child)? {
                Led::To(dentry) => at = dentry.uncovered(),
                Led::Along(mut target) => {
                    if target.first() == Some(&b'/') {
                        at = self.context.root.clone();
                    }
                    target.extend_from_slice(&text[next..]);
                    text = Cow::Owned(target);
                    next = 0;
                }
            }
        }
    }

    fn follow(&mut self, link: &Arc<Dentry>) -> Result<Led, Errno> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Errno::ELOOP);
        }
        match &link.inode.kind {
            Kind::Symlink(target) => Ok(Led::Along(target.to_vec())),
            Kind::Proc(node) => Ok(match node.link(shown_in(&link.inode))? {
                Jump::Path(path) => Led::Along(path),
                Jump::Dentry { dentry, .. } => Led::To(dentry),
            }),
            _ => Err(Errno::EINVAL),
        }
    }
}
