//! What must be so under every rule that counts right.

use std::collections::BTreeMap;

use crate::anon_vma::AnonVmaId;
use crate::vma::VmaId;
use crate::world::World;

impl World {
    /// Counts everything again and compares. O(everything).
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut linked: BTreeMap<AnonVmaId, Vec<VmaId>> = BTreeMap::new();
        let mut users: BTreeMap<AnonVmaId, u32> = BTreeMap::new();
        for id in self.vma_ids() {
            let vma = self.vma(id);
            for &anon_vma in &vma.chain {
                linked.entry(anon_vma).or_default().push(id);
            }
            match vma.own {
                Some(own) if !vma.chain.contains(&own) => return Err(format!("{vma:?}: its own is not in its chain")),
                Some(own) => *users.entry(own).or_default() += 1,
                None if !vma.chain.is_empty() => return Err(format!("{vma:?}: a chain, but none of its own")),
                None => {}
            }
        }
        for (id, anon_vma) in self.anon_vmas.iter() {
            let expected = linked.remove(&id).unwrap_or_default();
            if anon_vma.linked.iter().copied().ne(expected.iter().copied()) {
                return Err(format!("{id:?}: linked to {:?}, should be {expected:?}", anon_vma.linked));
            }
            let expected = users.remove(&id).unwrap_or(0);
            if anon_vma.users != expected {
                return Err(format!("{id:?}: {} users counted, there are {expected}", anon_vma.users));
            }
            let children =
                self.anon_vmas.iter().filter(|(_, other)| other.parent == id && !other.linked.is_empty()).count();
            if anon_vma.children as usize != children && !anon_vma.linked.is_empty() {
                return Err(format!("{id:?}: {} children counted, there are {children}", anon_vma.children));
            }
        }
        match linked.keys().next() {
            Some(freed) => Err(format!("{freed:?} is linked to and has been freed")),
            None => Ok(()),
        }
    }

    /// That the reverse map finds each mapping that a walk finds.
    ///
    /// # Errors
    /// The first page of which it misses one, in words.
    pub fn check_reverse(&self) -> Result<(), String> {
        for (page, mut mappings) in self.walk() {
            let mut found = self.look_up(page).found;
            mappings.sort();
            found.sort();
            if mappings != found {
                return Err(format!("{page:?}: mapped at {mappings:?}, found at {found:?}"));
            }
        }
        Ok(())
    }
}
