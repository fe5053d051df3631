//! Protection keys of an address space: which of them are given out (pkeys(7)). What a thread may do to the pages of a key is in a register of the
//! processor, and the embedder's business.

use crate::vma::ProtectionKey;

/// The keys that are given out. Fork copies it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeySet {
    /// A bit for each.
    given: u16,
    /// The one that is for memory that may only be executed; the default for none.
    execute_only: ProtectionKey,
}

impl KeySet {
    /// The default key alone.
    pub const DEFAULT: KeySet = KeySet { given: 1, execute_only: ProtectionKey::DEFAULT };

    /// Whether a key was given to the program, and not given back.
    pub fn has(&self, key: ProtectionKey) -> bool {
        self.given & bit(key) != 0 && self.execute_only() != Some(key)
    }

    /// Gives the lowest that is free; `None` if there is none.
    pub fn give(&mut self) -> Option<ProtectionKey> {
        let key = ProtectionKey::new(self.given.trailing_ones())?;
        self.given |= bit(key);
        Some(key)
    }

    /// Takes one back; false if it was not given. Memory keeps it.
    pub fn take_back(&mut self, key: ProtectionKey) -> bool {
        let had = self.has(key);
        if had {
            self.given &= !bit(key);
        }
        had
    }

    /// The key of memory that may only be executed, if there is such memory.
    pub fn execute_only(&self) -> Option<ProtectionKey> {
        (self.execute_only != ProtectionKey::DEFAULT).then_some(self.execute_only)
    }

    /// The same; takes a free key for it if there is none yet.
    pub fn give_execute_only(&mut self) -> Option<ProtectionKey> {
        if self.execute_only().is_none() {
            self.execute_only = self.give()?;
        }
        self.execute_only()
    }
}

impl Default for KeySet {
    fn default() -> KeySet {
        KeySet::DEFAULT
    }
}

fn bit(key: ProtectionKey) -> u16 {
    1 << key.number()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn keys_are_given_from_the_lowest_on_and_taken_back() {
        let mut keys = KeySet::DEFAULT;
        let given: Vec<u32> = core::iter::from_fn(|| keys.give()).map(ProtectionKey::number).collect();
        assert_eq!(given, (1..16).collect::<Vec<_>>());
        let seven = ProtectionKey::new(7).unwrap();
        assert!(keys.take_back(seven) && !keys.has(seven) && !keys.take_back(seven));
        assert_eq!(keys.give_execute_only(), Some(seven));
        assert_eq!(keys.give_execute_only(), Some(seven));
        assert!(!keys.has(seven) && !keys.take_back(seven));
        assert!(keys.give().is_none());
    }
}
