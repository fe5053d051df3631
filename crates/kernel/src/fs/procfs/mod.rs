//! `/proc`. Nothing is stored: names are found and texts made when they are looked at.

mod entries;
pub mod frames;
mod kpage;
mod listing;
mod map_files;
mod maps;
mod mem;
mod node;
mod pagemap;
mod process;
mod settings;
mod status;
mod sysctl;
pub mod system;
mod text;

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::dentry::Dentry;
use super::file::{Body, OpenFlags};
use super::inode::{Attributes, Inode, Kind, mode};
use super::superblock::{FsType, Superblock};
use crate::errno::Errno;
use crate::process::pid_namespace::PidNamespace;
use kpage::{Kpage, KpageBody};
use maps::{Form, MapsBody};
pub use node::{Jump, Node};
use node::{ProcessFile, SystemFile};
use pagemap::PagemapBody;
pub use process::auxiliary_vector;
pub use status::ProcessorList;

/// A root for a mount of `/proc` that shows the processes of `namespace`.
pub fn root_inode(namespace: &Arc<PidNamespace>) -> Arc<Inode> {
    inode(Node::Root, &Superblock::showing(FsType::Proc, Some(namespace.clone())))
}

/// Whose processes are shown where an inode is.
pub fn shown_in(inode: &Inode) -> &Arc<PidNamespace> {
    inode.superblock.processes.as_ref().unwrap_or_else(|| PidNamespace::first())
}

fn inode(node: Node, superblock: &Arc<Superblock>) -> Arc<Inode> {
    let links = if node.type_bits() == mode::S_IFDIR { 2 } else { 1 };
    let attributes = Attributes { links, ..Attributes::new(node.permissions()).owned_by(node.owner()) };
    Inode::numbered(superblock, node.number(), Kind::Proc(node), attributes)
}

impl Node {
    /// The entry of that name in this directory.
    pub fn lookup(&self, directory: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>, Errno> {
        let node = self.child(name, shown_in(&directory.inode)).ok_or(Errno::ENOENT)?;
        Ok(Dentry::new(directory, name, inode(node, &directory.inode.superblock)))
    }
}

/// Opens what a node stands for.
pub fn open(node: &Node, inode: &Inode, flags: OpenFlags) -> Result<Box<dyn Body>, Errno> {
    match node.type_bits() {
        mode::S_IFDIR => Ok(Box::new(listing::ListingBody(*node))),
        mode::S_IFLNK => Err(Errno::ELOOP),
        _ if flags.writable() && node.refuses_writers() => Err(Errno::EACCES),
        _ => match *node {
            Node::ProcessFile { pid, file: ProcessFile::Maps } => Ok(Box::new(MapsBody::open(pid, Form::Maps)?)),
            Node::ProcessFile { pid, file: ProcessFile::Smaps } => Ok(Box::new(MapsBody::open(pid, Form::Smaps)?)),
            Node::ProcessFile { pid, file: ProcessFile::SmapsRollup } => {
                Ok(Box::new(MapsBody::open(pid, Form::Rollup)?))
            }
            Node::ProcessFile { pid, file: ProcessFile::Pagemap } => Ok(Box::new(PagemapBody::open(pid)?)),
            Node::ProcessFile { pid, file: ProcessFile::Mem } => Ok(Box::new(mem::MemBody::open(pid)?)),
            Node::System(SystemFile::Kpagecount) => Ok(Box::new(KpageBody(Kpage::Count))),
            Node::System(SystemFile::Kpageflags) => Ok(Box::new(KpageBody(Kpage::Flags))),
            node => Ok(Box::new(text::TextBody::new(node, shown_in(inode).clone())?)),
        },
    }
}
