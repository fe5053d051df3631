//! Files: names, what they refer to, and open files.
//!
//! - A [`Dentry`] is a name in the tree. Directories hold their entries, entries know their parent; the path of an open file is
//!   found by walking up, so it follows renames. A mounted file system covers a directory's dentry with its own root.
//! - An [`Inode`] is what a name refers to: mode, owner, times, and its content ([`inode::Kind`]). Regular files are
//!   [`foldspace::Object`]s: the page cache is the storage, and a mapping and a `read` see the same bytes.
//! - A [`File`] is an open file description: position, flags and a [`file::Body`] that does the reading and writing.
//! - An [`FdTable`] gives open files their numbers.
//!
//! **Lock order**: `Slot` of a task's files or directories → nothing (copied out, then dropped) ; [`tree::CHANGE`] → a directory's
//! children → a dentry's place → an inode's attributes. [`FILE position`](file::File) → a regular file's append lock → attributes.
//! User memory may be touched under a file's position and under a pipe's buffer lock, never under the others; no lock is
//! held across a wait.

pub mod cpio;
pub mod dentry;
pub mod device;
pub mod directory;
pub mod epoll;
pub mod eventfd;
pub mod exec;
pub mod fdtable;
pub mod file;
pub mod inode;
pub mod io;
pub mod lock;
pub mod mount;
pub mod namespace;
pub mod open;
pub mod path;
pub mod permission;
pub mod pidfd;
pub mod pipe;
pub mod poll;
pub mod procfs;
pub mod random;
pub mod refpage;
pub mod regular;
pub mod reserve;
pub mod seal;
pub mod secret;
pub mod signalfd;
pub mod socket;
pub mod superblock;
pub mod timerfd;
pub mod tree;
pub mod tty;
pub mod userfault;
pub mod view;

pub use cpio::init_from_cpio;
pub use dentry::Dentry;
pub use exec::{ExecFile, open_exec};
pub use fdtable::FdTable;
pub use file::{File, Mappable};
pub use inode::Inode;
pub use path::FsContext;
