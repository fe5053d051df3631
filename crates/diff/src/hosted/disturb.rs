//! What the machine does behind the backs of its processes between two operations: frames move, memory is compacted, frames fail. The host's Linux needs no
//! counterpart, for nothing that a process sees may change.

use foldspace::migrate::NotMoved;
use foldspace::{AddressSpace, VirtAddr};
use foldspace_hosted::Host;

use crate::op::mix;
use crate::window::{BASE, END, PAGE};

/// Frames of a machine that fail at most: they do not come back.
const MOST_FAILED: u64 = 2_000;

/// Pages that are looked at to find one that is mapped.
const TRIES: u64 = 12;

/// Disturbs, the same way each time that a sequence is run.
pub struct Disturber {
    state: u64,
}

impl Disturber {
    pub fn new() -> Disturber {
        Disturber { state: 1 }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.state = mix(self.state, 0x9e37_79b9);
        (self.state >> 16) % below
    }

    /// Once, in one way or another, or not at all. `spaces` are all that there are.
    ///
    /// # Errors
    /// What was refused though it should not be.
    pub fn disturb(&mut self, host: &Host, spaces: &[&AddressSpace]) -> Result<(), String> {
        match self.next(128) {
            0 => drop(host.memory().compact(1)),
            1 if host.memory().stats().reserved < MOST_FAILED => self.fail(host, spaces)?,
            number if number < 72 => {
                // Neighbours, so that a table has several that have moved.
                let count = 1 + self.next(4);
                for (space, at) in self.pick(host, spaces, count) {
                    self.migrate(host, space, at)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Some mapped pages in a row, if one is found.
    fn pick<'s>(&mut self, host: &Host, spaces: &[&'s AddressSpace], count: u64) -> Vec<(&'s AddressSpace, VirtAddr)> {
        if spaces.is_empty() {
            return Vec::new();
        }
        let space = spaces[self.next(spaces.len() as u64) as usize];
        let vmas = space.vmas();
        let areas: Vec<(u64, u64)> = vmas
            .view()
            .iter()
            .map(|vma| (vma.start().get().max(BASE), vma.end().get().min(END)))
            .filter(|(start, end)| start < end)
            .collect();
        for _ in 0..TRIES {
            let Some((start, end)) = areas.get(self.next(areas.len().max(1) as u64) as usize) else { break };
            let first = start + self.next((end - start) / PAGE) * PAGE;
            if host.translate(space, VirtAddr(first)).is_ok() {
                return (0..count).map(|number| (space, VirtAddr(first + number * PAGE))).collect();
            }
        }
        Vec::new()
    }

    fn migrate(&self, host: &Host, space: &AddressSpace, at: VirtAddr) -> Result<(), String> {
        let Ok(shown) = host.translate(space, at) else { return Ok(()) };
        let memory = host.memory();
        if !memory.frame_use(shown.frame).is_movable() {
            return Ok(());
        }
        match memory.migrate(shown.frame) {
            Ok(to) if host.translate(space, at).is_ok_and(|now| now.frame == to) => Ok(()),
            Ok(to) => Err(format!("{at} does not show the frame {to:?} that its content has moved to")),
            Err(NotMoved::OutOfMemory) => Ok(()),
            Err(error) => Err(format!("{:?}, which {at} shows, stays where it is: {error}", shown.frame)),
        }
    }

    /// A frame that a process has a page in is about to fail.
    fn fail(&mut self, host: &Host, spaces: &[&AddressSpace]) -> Result<(), String> {
        let memory = host.memory();
        for (space, at) in self.pick(host, spaces, 1) {
            let Ok(shown) = host.translate(space, at) else { continue };
            if memory.frame_use(shown.frame).is_movable() {
                memory.soft_offline(shown.frame).map_err(|error| format!("{at} stays in a bad frame: {error}"))?;
            }
        }
        Ok(())
    }
}
