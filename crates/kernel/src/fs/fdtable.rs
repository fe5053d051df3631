//! Descriptors: the numbers of open files.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::file::File;
use super::lock::{Owner, TableId};
use crate::errno::Errno;

/// Most descriptors that any process may have (`fs.nr_open`); `RLIMIT_NOFILE` sets a lower limit.
pub const MAX_FDS: usize = crate::process::limits::MAX_FILES as usize;

/// Whether exec closes a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtExec {
    /// It stays open.
    Keep,
    /// `FD_CLOEXEC`.
    Close,
}

impl AtExec {
    /// From a flag that a call got.
    pub fn from_flag(flags: u32, bit: u32) -> AtExec {
        if flags & bit != 0 { AtExec::Close } else { AtExec::Keep }
    }
}

#[derive(Clone)]
struct Slot {
    file: Arc<File>,
    at_exec: AtExec,
}

/// The open files of a process. A clone (fork) shares the open file descriptions: one reference count each.
///
/// Closing the last descriptor of a description may wake others and free pages, so methods return what they took out; it is
/// dropped by the caller once the table is unlocked.
#[derive(Default)]
pub struct FdTable {
    slots: Vec<Option<Slot>>,
    /// Who owns the record locks taken through this table; `None` until one is taken.
    lock_owner: Option<TableId>,
}

impl Clone for FdTable {
    /// Record locks are not inherited.
    fn clone(&self) -> FdTable {
        FdTable { slots: self.slots.clone(), lock_owner: None }
    }
}

impl Drop for FdTable {
    fn drop(&mut self) {
        if let Some(owner) = self.lock_owner {
            for slot in self.slots.iter().flatten() {
                slot.file.inode().locks.release(Owner::Table(owner));
            }
        }
    }
}

impl FdTable {
    /// The owner of record locks taken through this table.
    pub fn lock_owner(&mut self) -> Owner {
        Owner::Table(*self.lock_owner.get_or_insert_with(TableId::next))
    }

    /// That owner, if any lock was ever taken.
    pub fn lock_owner_if_any(&self) -> Option<Owner> {
        self.lock_owner.map(Owner::Table)
    }

    /// The open file of a number.
    pub fn get(&self, fd: i32) -> Result<Arc<File>, Errno> {
        self.slot(fd).map(|slot| slot.file.clone())
    }

    fn slot(&self, fd: i32) -> Result<&Slot, Errno> {
        usize::try_from(fd).ok().and_then(|index| self.slots.get(index)?.as_ref()).ok_or(Errno::EBADF)
    }

    /// What exec does with it.
    pub fn at_exec(&self, fd: i32) -> Result<AtExec, Errno> {
        self.slot(fd).map(|slot| slot.at_exec)
    }

    /// Sets what exec does with it.
    pub fn set_at_exec(&mut self, fd: i32, at_exec: AtExec) -> Result<(), Errno> {
        let index = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        let slot = self.slots.get_mut(index).and_then(Option::as_mut).ok_or(Errno::EBADF)?;
        slot.at_exec = at_exec;
        Ok(())
    }

    /// Gives a file the lowest free number that is at least `from`. `EMFILE` if that is not below `limit`.
    pub fn insert_from(&mut self, from: usize, limit: usize, file: Arc<File>, at_exec: AtExec) -> Result<i32, Errno> {
        let free = (from..self.slots.len()).find(|&index| self.slots[index].is_none());
        let index = free.unwrap_or(self.slots.len().max(from));
        if index >= limit.min(MAX_FDS) {
            return Err(Errno::EMFILE);
        }
        self.put(index, Slot { file, at_exec });
        Ok(index as i32)
    }

    /// Gives a file the lowest free number.
    pub fn insert(&mut self, file: Arc<File>, at_exec: AtExec) -> Result<i32, Errno> {
        self.insert_from(0, MAX_FDS, file, at_exec)
    }

    /// Gives a file this number; returns what had it. `EBADF` for a number out of range.
    pub fn replace(&mut self, fd: i32, file: Arc<File>, at_exec: AtExec) -> Result<Option<Arc<File>>, Errno> {
        let index = usize::try_from(fd).ok().filter(|&index| index < MAX_FDS).ok_or(Errno::EBADF)?;
        Ok(self.put(index, Slot { file, at_exec }))
    }

    fn put(&mut self, index: usize, slot: Slot) -> Option<Arc<File>> {
        if index >= self.slots.len() {
            self.slots.resize(index + 1, None);
        }
        self.slots[index].replace(slot).map(|old| old.file)
    }

    /// Takes a number away; returns the file.
    pub fn remove(&mut self, fd: i32) -> Result<Arc<File>, Errno> {
        let index = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        let slot = self.slots.get_mut(index).and_then(Option::take).ok_or(Errno::EBADF)?;
        Ok(slot.file)
    }

    /// Takes away all that exec closes; returns the files.
    pub fn close_on_exec(&mut self) -> Vec<Arc<File>> {
        let doomed =
            self.slots.iter_mut().filter(|slot| slot.as_ref().is_some_and(|slot| slot.at_exec == AtExec::Close));
        doomed.filter_map(|slot| slot.take()).map(|slot| slot.file).collect()
    }

    /// Numbers in use, upwards.
    pub fn numbers(&self) -> impl Iterator<Item = i32> + '_ {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some()).map(|(index, _)| index as i32)
    }

    /// How many numbers Linux's table would have room for (`FDSize` of `/proc/PID/status`; `select` looks no further): 64, then powers of two
    /// times 128 (`alloc_fdtable` of `fs/file.c`).
    pub fn size(&self) -> usize {
        match self.slots.len() {
            0..=64 => 64,
            len => len.div_ceil(128).next_power_of_two() * 128,
        }
    }
}
