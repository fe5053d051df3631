//! Going back: tables of one address space show again what those of a snapshot show.

use super::{Common, Entry, Exclusive, Root};
use crate::addr::{ENTRIES, Index, Level};
use crate::frame::{Garbage, Memory};
use crate::platform::Flush;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::glance;

/// Where to go on: the index at each level, the root's first.
type Position = [usize; 4];

const START: Position = [0; 4];

impl Root<'_> {
    /// Makes these tables show what those of `from` show, a relative's whose root is in the same lineage. Only tables that differ are looked into.
    /// What is taken out is in the garbage, which is settled in between when it is full. Tables of our own in which nothing differs stay ours, or with
    /// [`Alike::GiveUp`] make way for theirs.
    ///
    /// Under the writers' lock, with all of it marked as in change: faults wait.
    ///
    /// Tables are locked in pairs, ours first. Ours are exclusive, and of one address space; the other is reached by no space that anybody runs
    /// with the right to write. So nobody holds a table of the second kind while he waits for one of the first of the same level.
    pub(crate) fn relink(&self, from: &Root<'_>, alike: Alike, garbage: &mut Garbage) {
        let mut position = START;
        loop {
            let mut ours = self.lock();
            let theirs = Common::lock(self.memory, from.frame, Level::L4);
            let outcome = relink_below(&mut ours, &theirs, alike, &mut position, garbage);
            drop((theirs, ours));
            if outcome != Outcome::Full {
                return;
            }
            garbage.settle(self.memory, self.space, Flush::All);
        }
    }
}

/// What becomes of a table of a space's own that shows what the snapshot's does: nobody has stored below it since the last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alike {
    /// It is looked through again the next time.
    Keep,
    /// The next store below it copies it again.
    GiveUp,
}

/// How going through a table ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Nothing was stored below it.
    Same,
    /// Something was, as far as is known.
    Changed,
    /// No more can be given up before a shootdown; the position says where to go on.
    Full,
}

/// From `position` on, and if it is done with the position of its level back at the start.
fn relink_below(
    ours: &mut Exclusive<'_>,
    theirs: &Common<'_>,
    alike: Alike,
    position: &mut Position,
    garbage: &mut Garbage,
) -> Outcome {
    let (memory, level) = (ours.memory(), ours.level());
    let depth = depth(level);
    let slots = if level == Level::L4 { ENTRIES / 2 } else { ENTRIES };
    let mut next = position[depth];
    // What comes before was made alike until the garbage was full.
    let mut outcome = if next == 0 { Outcome::Same } else { Outcome::Changed };
    while let Some(at) = next_difference(memory, ours, theirs, next..slots) {
        position[depth] = at;
        if garbage.is_full() {
            return Outcome::Full;
        }
        let index = Index::truncate(at as u64);
        let entry = theirs.entry(index);
        match pair(ours, theirs, index) {
            Some((mut child, their_child)) => {
                let below = relink_below(&mut child, &their_child, alike, position, garbage);
                drop((their_child, child));
                match below {
                    Outcome::Same if alike == Alike::GiveUp && !garbage.is_full() => {
                        take_over(ours, theirs, index, entry, garbage);
                    }
                    Outcome::Full => return below,
                    Outcome::Same if alike == Alike::GiveUp => return Outcome::Full,
                    Outcome::Same | Outcome::Changed => {
                        // It is ours alone: the next store need not find that out again.
                        if !ours.entry(index).is_writable() {
                            ours.change(index, Entry::WRITE, 0);
                        }
                        if below == Outcome::Changed {
                            outcome = Outcome::Changed;
                        }
                    }
                }
            }
            None if same_frame(ours.entry(index), entry) => {
                // Only what may be done with it differs.
                const ALLOWED: u64 = Entry::USER | Entry::NO_EXECUTE | Entry::KEY;
                let (set, clear) = (entry.bits() & (ALLOWED | Entry::DIRTY), !entry.bits() & ALLOWED | Entry::WRITE);
                ours.change(index, set, clear);
                garbage.stale = true;
                outcome = Outcome::Changed;
            }
            None => {
                take_over(ours, theirs, index, entry, garbage);
                outcome = Outcome::Changed;
            }
        }
        next = at + 1;
    }
    position[depth] = 0;
    outcome
}

/// The tables below a slot of each, locked, if ours can be made to show what theirs shows: it is ours alone, and both are of one lineage, so that
/// what both link is found at one index.
fn pair<'m>(ours: &Exclusive<'m>, theirs: &Common<'m>, index: Index) -> Option<(Exclusive<'m>, Common<'m>)> {
    let (memory, below) = (ours.memory(), ours.level().below()?);
    let (mine, entry) = (ours.entry(index), theirs.entry(index));
    if mine.is_object() || !entry.is_present() || entry.is_reference() || entry.is_object() {
        return None;
    }
    let child = ours.child(index)?;
    let lineage = memory.record(child.table()).lineage();
    (lineage.is_some() && lineage == memory.record(entry.frame()).lineage())
        .then(|| (child, Common::lock(memory, entry.frame(), below)))
}

fn same_frame(a: Entry, b: Entry) -> bool {
    a.is_tracked() && b.is_tracked() && a.frame() == b.frame() && a.is_object() == b.is_object()
}

/// Puts what is in their slot into ours as well, write-protected in both, and gives up what was in ours.
fn take_over(ours: &mut Exclusive<'_>, theirs: &Common<'_>, index: Index, entry: Entry, garbage: &mut Garbage) {
    let (memory, level) = (ours.memory(), ours.level());
    if entry.is_tracked() {
        if entry.is_writable() {
            // Its last owner will reuse it as it is. Nobody runs a snapshot: no shootdown is owed for that.
            memory.entries(theirs.table)[index.get()].fetch_and(!Entry::WRITE, Ordering::Relaxed);
        }
        if let Some(lineage) = memory.record(ours.table()).lineage() {
            memory.relink_home(entry.frame(), theirs.table, lineage, index);
        }
    }
    let slot = ours.slot(index);
    let old = ours.put(index, entry.without(Entry::WRITE));
    if !old.is_empty() {
        garbage.give_up(memory, old, level, slot);
    }
}

/// The next slot in which the two differ in more than what a processor notes.
fn next_difference(
    memory: &Memory,
    ours: &Exclusive<'_>,
    theirs: &Common<'_>,
    within: core::ops::Range<usize>,
) -> Option<usize> {
    /// Slots that are looked at together: most are alike.
    const AT_ONCE: usize = 8;
    let (mine, their) = (memory.entries(ours.table()), memory.entries(theirs.table));
    let difference = |a: &AtomicU64, b: &AtomicU64| {
        let (a, b) = (glance(a, Ordering::Relaxed), glance(b, Ordering::Relaxed));
        (a ^ b) & !(Entry::ACCESSED | Entry::DIRTY) | b & !a & Entry::DIRTY
    };
    let mine = mine.get(..within.end)?.chunks_exact(AT_ONCE);
    let their = their.get(..within.end)?.chunks_exact(AT_ONCE);
    let group = within.start / AT_ONCE;
    let mut skipped = within.start % AT_ONCE;
    for (number, (mine, their)) in mine.zip(their).enumerate().skip(group) {
        let mut any = 0;
        for at in 0..AT_ONCE {
            any |= difference(&mine[at], &their[at]);
        }
        if any != 0 {
            if let Some(at) = (skipped..AT_ONCE).find(|at| difference(&mine[*at], &their[*at]) != 0) {
                return Some(number * AT_ONCE + at);
            }
        }
        skipped = 0;
    }
    None
}

const fn depth(level: Level) -> usize {
    match level {
        Level::L4 => 0,
        Level::L3 => 1,
        Level::L2 => 2,
        Level::L1 => 3,
    }
}
