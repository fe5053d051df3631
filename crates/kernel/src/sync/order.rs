//! Which lock is taken under which, learnt as it happens. Locks are of one class if they are around the same type. That a lock is waited for while another is
//! held is an arrow between their classes; arrows that come round to where they began are a deadlock for processors that are at the same moment where the
//! arrows were seen, one each. So any run that goes through all of them finds it, however its processors fall.

use core::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;

/// A number of a class.
pub type Class = u8;

/// No class.
pub const UNKNOWN: Class = u8::MAX;

/// Classes at most.
const CLASSES: usize = 128;

/// Bits in a word of a row.
const WORD: usize = 64;

/// What is taken under each class: bits.
type Row = [AtomicU64; CLASSES / WORD];

static ARROWS: [Row; CLASSES] = [const { [const { AtomicU64::new(0) }; CLASSES / WORD] }; CLASSES];

/// The types, by class; held while arrows are added.
static NAMES: spin::Mutex<ArrayVec<&'static str, CLASSES>> = spin::Mutex::new(ArrayVec::new_const());

/// The class of locks around a type.
pub fn class_of(name: &'static str) -> Class {
    let mut names = NAMES.lock();
    if let Some(known) = names.iter().position(|known| *known == name) {
        return known as Class;
    }
    names.push(name);
    (names.len() - 1) as Class
}

/// A lock of one class is waited for while one of another is held. (Of two of one class the order cannot be known here: who takes them has one of his own.)
///
/// # Panics
/// If that may be a deadlock.
pub fn note(held: Class, wanted: Class) {
    if has(held, wanted) {
        return;
    }
    let names = NAMES.lock();
    let comes_round = held != wanted && leads(wanted, held);
    set(held, wanted);
    let (held, wanted) = (names[held as usize], names[wanted as usize]);
    // Given up first: to panic is to write, and that takes locks.
    drop(names);
    assert!(
        !comes_round,
        "the lock around {wanted} is waited for under that around {held}, which elsewhere is taken under it"
    );
}

/// Logs what was taken under what.
pub fn log() {
    let names = NAMES.lock().clone();
    for (held, name) in names.iter().enumerate() {
        let under: ArrayVec<_, CLASSES> = (0..names.len())
            .filter(|wanted| has(held as Class, *wanted as Class))
            .map(|wanted| names[wanted])
            .collect();
        log::debug!("locks: under that around {name}: {under:?}");
    }
}

fn has(from: Class, to: Class) -> bool {
    // Relaxed: who misses an arrow that was just added looks again under the lock.
    ARROWS[from as usize][to as usize / WORD].load(Ordering::Relaxed) & 1 << (to as usize % WORD) != 0
}

fn set(from: Class, to: Class) {
    ARROWS[from as usize][to as usize / WORD].fetch_or(1 << (to as usize % WORD), Ordering::Relaxed);
}

/// Whether arrows lead from one class to another.
fn leads(from: Class, to: Class) -> bool {
    let mut seen = [false; CLASSES];
    let mut waiting: ArrayVec<Class, CLASSES> = ArrayVec::new();
    seen[from as usize] = true;
    waiting.push(from);
    while let Some(at) = waiting.pop() {
        if at == to {
            return true;
        }
        for next in (0..CLASSES as Class).filter(|next| has(at, *next)) {
            if !core::mem::replace(&mut seen[next as usize], true) {
                waiting.push(next);
            }
        }
    }
    false
}
