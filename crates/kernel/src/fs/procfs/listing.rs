//! Listings of directories of `/proc`.

use super::{Node, shown_in};
use crate::errno::Errno;
use crate::fs::directory::{Entry, take_dots};
use crate::fs::file::{Body, File, Taken, Whence, seek_without_end};
use crate::fs::io::{Sink, Supply};
use crate::fs::reserve;
use crate::syscall::SysResult;

/// An open directory. Positions: 0 and 1 are the dots, then those of [`Node::list`] plus 2.
pub struct ListingBody(pub Node);

impl Body for ListingBody {
    fn read(&self, _file: &File, _at: Option<u64>, _out: &mut dyn Sink) -> SysResult {
        Err(Errno::EISDIR)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EBADF)
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64, Errno> {
        seek_without_end(file, offset, whence)
    }

    fn has_position(&self) -> bool {
        true
    }

    fn entries(&self, file: &File, take: &mut dyn FnMut(&Entry<'_>) -> Taken) -> Result<(), Errno> {
        reserve::check_heap()?;
        let mut position = file.position.lock();
        if !take_dots(&file.dentry, &mut position, take) {
            return Ok(());
        }
        let from = *position - 2;
        self.0.list(from, shown_in(file.inode()), &mut |at, name, node| {
            let next = at + 3;
            let entry = Entry { inode: node.number(), next, type_bits: node.type_bits(), name };
            let taken = take(&entry) == Taken::Yes;
            if taken {
                *position = next;
            }
            taken
        });
        Ok(())
    }
}
