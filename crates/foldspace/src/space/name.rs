//! prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME): names for anonymous memory.

use super::modify::Holes;
use super::{AddressSpace, retry_after_reclaim};
use crate::addr::PageRange;
use crate::error::{Error, Result};
use crate::vma::{Backing, Name, VmaFlags};

impl AddressSpace {
    /// Names the anonymous memory in `range`, shared anonymous memory and what shows an object without a path
    /// ([`VmaFlags::UNLINKED`]) too; `None` takes names away. All VMAs named by one call, and what
    /// is split or forked from them, share the one copy of the name. Which names are allowed is for the caller to check.
    ///
    /// # Errors
    ///
    /// As on Linux: holes are passed over and make it [`Error::NotMapped`] at the end (ENOMEM). A file ends it at once
    /// ([`Error::WrongKind`], EBADF), as does [`Error::TooManyVmas`] (EAGAIN); what comes before is named. [`Error::OutOfMemory`]
    /// (EAGAIN): nothing has changed.
    pub fn set_name(&self, range: PageRange, name: Option<Name>) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            self.modify(guard, range, Holes::Skip, |piece, vma| {
                let is_file = match &vma.backing {
                    Backing::Anonymous => false,
                    Backing::Object(object) => !object.is_anonymous() && !vma.flags.contains(VmaFlags::UNLINKED),
                    // Also of zeros (`/dev/zero`): what has a path has no name.
                    Backing::Reference(reference) => reference.file().is_some(),
                };
                if is_file {
                    return Err(Error::WrongKind);
                }
                piece.name.clone_from(&name);
                Ok(())
            })
        })
    }
}
