//! The objects that have pages in memory, by number: how a frame leads to the object that it is a page of.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::Object;
use crate::error::{Error, Result};
use crate::frame::NONE;
use crate::sync::{Mutex, Rank};

/// All objects that have had a page in memory, and live.
pub(crate) struct Objects(Mutex<Seats>);

struct Seats {
    seats: Vec<Seat>,
    free: u32,
}

enum Seat {
    Taken(Weak<Object>),
    /// With the next free one.
    Free(u32),
}

impl Objects {
    pub(crate) const fn new() -> Objects {
        Objects(Mutex::new(Rank::Objects, Seats { seats: Vec::new(), free: NONE }))
    }

    /// A number for an object. O(1).
    pub(super) fn join(&self, object: &Weak<Object>) -> Result<u32> {
        let mut seats = self.0.lock();
        let taken = Seat::Taken(Weak::clone(object));
        let number = seats.free;
        if let Some(seat) = seats.seats.get_mut(number as usize) {
            let next = match core::mem::replace(seat, taken) {
                Seat::Free(next) => next,
                Seat::Taken(_) => NONE,
            };
            seats.free = next;
            return Ok(number);
        }
        seats.seats.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        seats.seats.push(taken);
        Ok(seats.seats.len() as u32 - 1)
    }

    /// An object is being dropped. O(1).
    pub(super) fn leave(&self, number: u32) {
        let mut seats = self.0.lock();
        let next = seats.free;
        if let Some(seat) = seats.seats.get_mut(number as usize) {
            *seat = Seat::Free(next);
            seats.free = number;
        }
    }

    /// The object with that number, if it lives.
    pub(crate) fn at(&self, number: u32) -> Option<Arc<Object>> {
        match self.0.lock().seats.get(number as usize)? {
            Seat::Taken(object) => object.upgrade(),
            Seat::Free(_) => None,
        }
    }
}
