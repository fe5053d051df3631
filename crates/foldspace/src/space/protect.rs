//! mprotect.

use crossbeam_epoch::Guard;

use super::limits::{committed_growth, is_data, may_expand};
use super::modify::Holes;
use super::{AddressSpace, Layout, retry_after_reclaim};
use crate::addr::{Index, PageRange};
use crate::error::{Error, Result};
use crate::frame::{Charge, Garbage, Memory};
use crate::table::{Entry, Exclusive, Touch};
use crate::vma::{Change, ProtectionKey, Tag, VersionRef, Vma, VmaFlags};

/// Flags that system calls change without making another mapping of it.
const CHANGED_IN_PLACE: VmaFlags = VmaFlags::all()
    .difference(VmaFlags::SHARED)
    .difference(VmaFlags::GROWS_DOWN)
    .difference(VmaFlags::NO_RESERVE)
    .difference(VmaFlags::DROPPABLE)
    .difference(VmaFlags::MAY_READ)
    .difference(VmaFlags::MAY_WRITE)
    .difference(VmaFlags::MAY_EXEC);

/// What a change of permissions does to protection keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeyChange {
    /// Each area keeps its own.
    Keep,
    /// All of the range gets this one.
    Set(ProtectionKey),
    /// Areas that have this one get the default.
    Drop(ProtectionKey),
}

impl KeyChange {
    #[inline]
    fn of(self, tag: Tag) -> Tag {
        match self {
            KeyChange::Set(key) => tag.with_key(key),
            KeyChange::Drop(key) if tag.key() == key => tag.with_key(ProtectionKey::DEFAULT),
            KeyChange::Keep | KeyChange::Drop(_) => tag,
        }
    }

    /// The bits to set and to clear in an entry.
    #[inline]
    fn bits(self, entry: Entry) -> (u64, u64) {
        match self {
            KeyChange::Set(key) => (Entry::key(key), Entry::KEY - Entry::key(key)),
            KeyChange::Drop(key) if entry.bits() & Entry::KEY == Entry::key(key) => (0, Entry::KEY),
            KeyChange::Keep | KeyChange::Drop(_) => (0, 0),
        }
    }
}

/// What one call sets, and the state of the address space as its VMAs change one after the other.
struct Turn<'s> {
    space: &'s AddressSpace,
    layout: &'s Layout,
    access: VmaFlags,
    key: KeyChange,
    /// What was mapped before.
    version: VersionRef<'s>,
    /// Pages that have become private writable memory since, modulo 2^64.
    data_growth: u64,
    charge: Charge<'s>,
}

impl AddressSpace {
    /// Sets the permissions of `range` to `access` (of READ, WRITE and EXEC).
    ///
    /// # Errors
    ///
    /// As on Linux, what comes before the first hole ([`Error::NotMapped`]) or VMA for which it is refused is changed all the same:
    /// [`Error::AccessDenied`] by what the VMA may be given, [`Error::Sealed`], [`Error::NoRoom`] if private memory becomes writable and
    /// RLIMIT_DATA is reached, [`Error::CommitLimit`], [`Error::TooManyVmas`]. [`Error::OutOfMemory`]: nothing is changed, but
    /// for whole parts of some hundred VMAs at the start of a range that has more.
    pub fn protect(&self, range: PageRange, access: VmaFlags) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let layout = self.writer.lock();
            self.protect_locked(guard, &layout, range, access & VmaFlags::ACCESS, KeyChange::Keep)
        })
    }

    /// As [`AddressSpace::protect`], and gives all of `range` the protection key `key` (pkey_mprotect).
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::protect`].
    pub fn protect_with_key(&self, range: PageRange, access: VmaFlags, key: ProtectionKey) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let layout = self.writer.lock();
            self.protect_locked(guard, &layout, range, access & VmaFlags::ACCESS, KeyChange::Set(key))
        })
    }

    /// As [`AddressSpace::protect`], from the start of the first VMA in the range on, which must be one that grows down (PROT_GROWSDOWN).
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::protect`], and [`Error::WrongKind`] if that VMA does not grow down.
    pub fn protect_stack(&self, range: PageRange, access: VmaFlags) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let layout = self.writer.lock();
            let (start, flags) = match self.vmas.load(guard).range(range).next() {
                Some(stack) => (stack.start(), stack.flags),
                None => return Err(Error::NotMapped),
            };
            if !flags.contains(VmaFlags::GROWS_DOWN) {
                return Err(Error::WrongKind);
            }
            let range = PageRange::new(start, range.end()).ok_or(Error::BadRange)?;
            self.protect_locked(guard, &layout, range, access & VmaFlags::ACCESS, KeyChange::Keep)
        })
    }

    fn protect_locked(
        &self,
        guard: &Guard,
        layout: &Layout,
        range: PageRange,
        access: VmaFlags,
        key: KeyChange,
    ) -> Result<()> {
        // Memory that could only be executed has a key of its own, which it loses with that.
        let key = match layout.keys.execute_only() {
            Some(own) if key == KeyChange::Keep => KeyChange::Drop(own),
            _ => key,
        };
        let mut turn = self.turn(guard, layout, access, key);
        // Not moved about: a change is large.
        {
            let mut change = self.vmas.change(guard, range);
            if let Some(vma) = self.simple_case(&change, range) {
                let (flags, tag) = (turn.flags(vma, range.pages())?, turn.tag(vma));
                if flags == vma.flags && tag == vma.tag {
                    return Ok(());
                }
                change.put(Some(Vma { flags, tag, ..vma.slice(range) }))?;
                return self.publish_access(&mut change, guard, range, &[(range, flags)], key, turn.charge);
            }
        }
        self.protect_many(guard, range, turn)
    }

    #[inline(always)]
    fn turn<'s>(&'s self, guard: &'s Guard, layout: &'s Layout, access: VmaFlags, key: KeyChange) -> Turn<'s> {
        let version = self.vmas.load(guard);
        Turn { space: self, layout, access, key, version, data_growth: 0, charge: self.memory.charge() }
    }

    /// Any number of VMAs, and holes.
    #[inline(never)]
    fn protect_many<'s>(&'s self, guard: &'s Guard, mut range: PageRange, mut turn: Turn<'s>) -> Result<()> {
        loop {
            let (modification, outcome) = self.modify_many(guard, range, Holes::End, &mut |piece, vma| {
                piece.flags = turn.flags(vma, piece.range.pages())?;
                piece.tag = turn.tag(vma);
                Ok(())
            })?;
            let (turned, rest) = (modification.turned.clone(), modification.rest);
            let (layout, access, key) = (turn.layout, turn.access, turn.key);
            let ends = turned.first().zip(turned.last()).map(|(first, last)| (first.0.start(), last.0.end()));
            let touched = ends.and_then(|(start, end)| PageRange::new(start, end));
            if let Some(touched) = touched {
                if let Some(mut change) = self.plan_many(guard, modification)? {
                    self.publish_access(&mut change, guard, touched, &turned, key, turn.charge)?;
                }
            }
            match rest {
                None => return outcome,
                Some(rest) => (range, turn) = (rest, self.turn(guard, layout, access, key)),
            }
        }
    }

    /// Publishes a change of permissions and brings the tables under it in line: `changed` are the parts of `touched` with their new flags,
    /// the keys of which change as `key` says.
    #[inline]
    fn publish_access(
        &self,
        change: &mut Change<'_>,
        guard: &Guard,
        touched: PageRange,
        changed: &[(PageRange, VmaFlags)],
        key: KeyChange,
        mut charge: Charge<'_>,
    ) -> Result<()> {
        charge.settle(committed_growth(change));
        let mut garbage = Garbage::new();
        if let Err(error) = self.tables().own_range(touched, Touch::All, &mut garbage) {
            self.finish(&mut garbage, guard, touched);
            return Err(error);
        }
        change.publish();
        charge.keep();
        for (range, flags) in changed {
            let memory = &*self.memory;
            self.tables().change_leaves(*range, &mut garbage, |table, index, entry| {
                set_access(memory, table, index, entry, *flags, key);
            });
        }
        self.finish(&mut garbage, guard, touched);
        Ok(())
    }
}

impl Turn<'_> {
    /// The flags that `vma` gets, in `pages` of its pages (`mprotect_fixup` in Linux's `mm/mprotect.c`).
    #[inline(always)]
    fn flags(&mut self, vma: &Vma, pages: u64) -> Result<VmaFlags> {
        let (old, access) = (vma.flags, self.access);
        if !may(old).contains(access) {
            return Err(Error::AccessDenied);
        }
        if old.contains(VmaFlags::SEALED) {
            return Err(Error::Sealed);
        }
        let new = old.difference(VmaFlags::ACCESS) | access;
        if new.contains(VmaFlags::WRITE) == old.contains(VmaFlags::WRITE) {
            return Ok(new);
        }
        if new.contains(VmaFlags::WRITE) {
            return self.make_writable(old, new, pages);
        }
        if is_data(old) {
            self.data_growth = self.data_growth.wrapping_sub(pages);
        }
        // Never written to: it promises nothing any more. (What cannot be written to and counts all the same was written to before.)
        let promises = !old.contains(VmaFlags::ACCOUNT)
            || old.contains(VmaFlags::WRITTEN)
            || vma.backing.has_offsets()
            || self.space.tables().holds_private(vma.range)
            || self.was_written_with(vma);
        Ok(if promises { new } else { new - VmaFlags::ACCOUNT })
    }

    /// Whether a VMA that holds no private page may have been one with one that does, as far as can be seen: what counts right beside it and
    /// differs in nothing that is not changed in place. Linux knows: a VMA has an anon_vma from the first store into it on, and all that is cut
    /// from it has the same. Only a few VMAs on each side are looked at.
    #[inline(never)]
    fn was_written_with(&self, vma: &Vma) -> bool {
        const FAR: usize = 4;
        let is_part = |other: &Vma| {
            other.flags.contains(VmaFlags::ACCOUNT)
                && (other.flags ^ vma.flags).difference(CHANGED_IN_PLACE).is_empty()
                && other.backing.same(&vma.backing)
        };
        let written =
            |other: &Vma| other.flags.contains(VmaFlags::WRITTEN) || self.space.tables().holds_private(other.range);
        let (mut start, mut end) = (vma.start(), vma.end());
        for _ in 0..FAR {
            let below = self.version.find_before(start).filter(|below| below.end() == start && is_part(below));
            let Some(below) = below else { break };
            if written(below) {
                return true;
            }
            start = below.start();
        }
        for _ in 0..FAR {
            let Some(above) = self.version.find(end).filter(|above| is_part(above)) else { break };
            if written(above) {
                return true;
            }
            end = above.end();
        }
        false
    }

    /// What else stands before an access to `vma` afterwards.
    #[inline(always)]
    fn tag(&self, vma: &Vma) -> Tag {
        self.key.of(vma.tag)
    }

    /// As [`Turn::flags`], of what could not be written to before.
    #[inline(never)]
    fn make_writable(&mut self, old: VmaFlags, new: VmaFlags, pages: u64) -> Result<VmaFlags> {
        const SETTLED: VmaFlags = VmaFlags::ACCOUNT.union(VmaFlags::SHARED).union(VmaFlags::NO_RESERVE);
        let mut now = self.version.summary().totals.pages;
        now.data = now.data.wrapping_add(self.data_growth);
        let fits = |flags| may_expand(self.layout, &now, flags, pages).is_ok();
        if !fits(new) && fits(old) {
            return Err(Error::NoRoom);
        }
        let accounted = if old.intersects(SETTLED) { VmaFlags::empty() } else { VmaFlags::ACCOUNT };
        if !accounted.is_empty() {
            self.charge.take(pages, || self.space.kept_back(now.total))?;
        }
        if is_data(new) {
            self.data_growth = self.data_growth.wrapping_add(pages);
        }
        Ok(new | accounted)
    }
}

/// The permissions that a VMA may be given.
#[inline]
fn may(flags: VmaFlags) -> VmaFlags {
    const SHIFT: u32 = VmaFlags::MAY_READ.bits().trailing_zeros() - VmaFlags::READ.bits().trailing_zeros();
    const _: () = assert!(
        VmaFlags::MAY_WRITE.bits() >> SHIFT == VmaFlags::WRITE.bits()
            && VmaFlags::MAY_EXEC.bits() >> SHIFT == VmaFlags::EXEC.bits()
    );
    VmaFlags::from_bits_truncate(flags.bits() >> SHIFT) & VmaFlags::ACCESS
}

/// Brings a leaf in line with its VMA. What becomes writable stays to be found out by a fault if it may be shared.
fn set_access(memory: &Memory, table: &mut Exclusive<'_>, index: Index, entry: Entry, flags: VmaFlags, key: KeyChange) {
    let (mut set, mut clear) = key.bits(entry);
    let mut give = |bit: u64, yes: bool| if yes { set |= bit } else { clear |= bit };
    give(Entry::NO_EXECUTE, !flags.contains(VmaFlags::EXEC));
    if entry.is_reference() {
        // Zeros that somebody has put there stay.
        if !flags.intersects(VmaFlags::WATCHED) {
            table.put(index, Entry::NONE);
            return;
        }
        table.change(index, set, clear);
        return;
    }
    let ours = if entry.is_object() {
        flags.contains(VmaFlags::SHARED) && !memory.record(entry.frame()).is_moving()
    } else {
        memory.record(entry.frame()).is_alone()
    };
    give(Entry::USER, flags.intersects(VmaFlags::ACCESS));
    give(Entry::WRITE, flags.contains(VmaFlags::WRITE) && ours && !entry.is_marked());
    table.change(index, set, clear);
}
