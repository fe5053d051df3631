//! mincore: which pages are in memory.

use super::AddressSpace;
use crate::addr::{PAGE_SHIFT, PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::table::Stretch;
use crate::vma::{Backing, Vma};

impl AddressSpace {
    /// Says for the first pages of `range` whether an access would find them in memory (1) or not (0): up to the end of the VMA at its start,
    /// or of `out`. Returns for how many. A caller goes on from there, and gives out what he has before an error, as Linux does
    /// (`do_mincore` in `mm/mincore.c`).
    ///
    /// A page of an object is in memory if the object has it, mapped or not. Zeros that were read are, with all that one link shows.
    ///
    /// # Errors
    ///
    /// [`Error::NotMapped`] if the first page is not mapped.
    pub fn mincore(&self, range: PageRange, out: &mut [u8]) -> Result<usize> {
        let guard = self.memory.pin();
        let version = self.vmas.load(&guard);
        let vma = version.find(range.start()).ok_or(Error::NotMapped)?;
        let pages = (vma.end().min(range.end()).get() - range.start().get()) >> PAGE_SHIFT;
        let out = match usize::try_from(pages).ok().and_then(|pages| out.get_mut(..pages)) {
            Some(out) => out,
            None => out,
        };
        let Some(asked) = PageRange::from_len(range.start(), (out.len() as u64) << PAGE_SHIFT) else { return Ok(0) };
        self.tables().for_each_stretch(asked, |part, stretch| {
            let first = ((part.start().get() - asked.start().get()) >> PAGE_SHIFT) as usize;
            let out = &mut out[first..first + part.pages() as usize];
            let at = |page: usize| VirtAddr(part.start().get() + ((page as u64) << PAGE_SHIFT));
            match stretch {
                Stretch::Reference(_) => out.fill(1),
                Stretch::Hole => {
                    out.iter_mut().enumerate().for_each(|(page, out)| *out = in_object(vma, at(page)));
                }
                Stretch::Pages(pages) => {
                    for ((page, out), (_, entry)) in out.iter_mut().enumerate().zip(pages.iter()) {
                        *out = if entry.is_present() || entry.is_poison() { 1 } else { in_object(vma, at(page)) };
                    }
                }
            }
        });
        Ok(out.len())
    }
}

/// Whether the object that `vma` maps has the page at `addr`.
fn in_object(vma: &Vma, addr: VirtAddr) -> u8 {
    match &vma.backing {
        Backing::Anonymous | Backing::Reference(_) => 0,
        Backing::Object(object) => object.has(vma.page_at(addr)) as u8,
    }
}
