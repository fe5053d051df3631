//! The address spaces that live on a memory, oldest first: how an object finds those that map it, and a root the space that it is of.
//!
//! A child joins under the writers' lock of its parent, which has left some of its tables to it by then. So whoever goes through them in
//! order, and changes each under its writers' lock, misses nothing: what a space inherited before its parent was changed, it has when its
//! own turn comes, for it comes after its parent's.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::AddressSpace;
use crate::error::{Error, Result};
use crate::frame::{Frame, Memory, NONE};
use crate::platform::SpaceId;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, Rank};

/// All living address spaces.
pub(crate) struct Registry {
    seats: Mutex<Seats>,
}

/// # Invariants
///
/// The seats from `oldest` on, each leading to the next younger one, are those of spaces that have joined and not left; all others are linked
/// from `free` on.
struct Seats {
    seats: Vec<Seat>,
    oldest: u32,
    youngest: u32,
    free: u32,
}

struct Seat {
    space: Weak<AddressSpace>,
    older: u32,
    /// Of a free seat, the next free one.
    younger: u32,
}

impl Registry {
    pub(crate) const fn new() -> Registry {
        Registry { seats: Mutex::new(Rank::Row, Seats { seats: Vec::new(), oldest: NONE, youngest: NONE, free: NONE }) }
    }

    /// Adds the youngest. O(1).
    pub(super) fn join(&self, space: &Arc<AddressSpace>) -> Result<()> {
        let mut seats = self.seats.lock();
        let number = seats.take()?;
        let older = core::mem::replace(&mut seats.youngest, number);
        *seats.leading_to_younger(older) = number;
        seats.seats[number as usize] = Seat { space: Arc::downgrade(space), older, younger: NONE };
        // Relaxed: under the lock of the row, or asked of a space that has joined and is held.
        space.seat.store(number, Ordering::Relaxed);
        space.memory.record(space.root).set_seat(number);
        Ok(())
    }

    /// Takes a space out that is being dropped, if it had joined. O(1).
    pub(super) fn leave(&self, space: &AddressSpace) {
        let number = space.seat.load(Ordering::Relaxed);
        if number == NONE {
            return;
        }
        let mut seats = self.seats.lock();
        let free = seats.free;
        let left = Seat { space: Weak::new(), older: NONE, younger: free };
        let Seat { space, older, younger } = core::mem::replace(&mut seats.seats[number as usize], left);
        seats.free = number;
        *seats.leading_to_younger(older) = younger;
        *seats.leading_to_older(younger) = older;
        drop(seats);
        drop(space);
    }

    /// The next younger living space.
    fn after(&self, space: Option<&AddressSpace>) -> Option<Arc<AddressSpace>> {
        let seats = self.seats.lock();
        let mut at = match space {
            // It has not left: it is held.
            Some(space) => seats.seats.get(space.seat.load(Ordering::Relaxed) as usize)?.younger,
            None => seats.oldest,
        };
        loop {
            let seat = seats.seats.get(at as usize)?;
            // One that is being dropped is passed over: nobody runs it, and it lets go of everything by itself.
            if let Some(space) = seat.space.upgrade() {
                return Some(space);
            }
            at = seat.younger;
        }
    }

    /// The space in a seat.
    fn at(&self, number: u32) -> Option<Arc<AddressSpace>> {
        self.seats.lock().seats.get(number as usize)?.space.upgrade()
    }
}

impl Seats {
    /// Makes sure that there is room for one more.
    fn reserve(&mut self) -> Result<()> {
        if self.free != NONE {
            return Ok(());
        }
        self.seats.try_reserve(1).map_err(|_| Error::OutOfMemory)
    }

    fn take(&mut self) -> Result<u32> {
        if let Some(seat) = self.seats.get(self.free as usize) {
            return Ok(core::mem::replace(&mut self.free, seat.younger));
        }
        self.reserve()?;
        self.seats.push(Seat { space: Weak::new(), older: NONE, younger: NONE });
        Ok(self.seats.len() as u32 - 1)
    }

    fn leading_to_younger(&mut self, older: u32) -> &mut u32 {
        match self.seats.get_mut(older as usize) {
            Some(seat) => &mut seat.younger,
            None => &mut self.oldest,
        }
    }

    fn leading_to_older(&mut self, younger: u32) -> &mut u32 {
        match self.seats.get_mut(younger as usize) {
            Some(seat) => &mut seat.older,
            None => &mut self.youngest,
        }
    }
}

/// The living address spaces of a memory, oldest first: [`Memory::spaces`].
pub struct Spaces<'m> {
    memory: &'m Memory,
    last: Option<Arc<AddressSpace>>,
}

impl Iterator for Spaces<'_> {
    type Item = Arc<AddressSpace>;

    fn next(&mut self) -> Option<Arc<AddressSpace>> {
        let next = self.memory.registry.after(self.last.as_deref());
        // The last one only now, and with no lock held: it may be dropped by this.
        self.last.clone_from(&next);
        next
    }
}

impl Memory {
    /// The living address spaces, oldest first. Each is held while it is looked at; if its last owner lets go meanwhile, it is dropped here.
    /// What is forked meanwhile comes after its parent; what has begun to be dropped is left out. O(1) for each.
    pub fn spaces(&self) -> Spaces<'_> {
        Spaces { memory: self, last: None }
    }

    /// The address space of that name, if it lives. O(spaces).
    pub fn space(&self, id: SpaceId) -> Option<Arc<AddressSpace>> {
        self.spaces().find(|space| space.id() == id)
    }

    /// The address space whose root this is, if it lives. O(1).
    pub fn space_of_root(&self, root: Frame) -> Option<Arc<AddressSpace>> {
        let space = self.registry.at(self.record(root).seat())?;
        (space.root() == root).then_some(space)
    }
}

/// Makes an address space that can join: its `Arc` and its seat first, since `Arc::new` itself can only abort, and without heap even dropping
/// what was made might. Only another thread that takes that memory in between can still make it so.
pub(super) fn counted(memory: &Memory, make: impl FnOnce() -> Result<AddressSpace>) -> Result<Arc<AddressSpace>> {
    // Two counts, and the value.
    Vec::<(usize, usize, AddressSpace)>::new().try_reserve_exact(1).map_err(|_| Error::OutOfMemory)?;
    memory.registry.seats.lock().reserve()?;
    make().map(Arc::new)
}
