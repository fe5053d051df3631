//! Reference pages: `MAP_REFPAGE` and `refpage_create`, which Linux does not have.

use alloc::sync::Arc;

use foldspace::backing::Reference;
use foldspace::{Error, VirtAddr};

use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::PAGE;

/// What `refpage_create(content, size, flags)` makes a file of: the reference page that repeats `size` bytes of the caller's memory.
///
/// # Errors
///
/// `EINVAL`: flags, a size that is no power of two up to a page, or content that is not aligned to it. `EFAULT`: content that cannot be read. `ENOMEM`.
pub fn refpage_create(caller: &impl Caller, content: u64, size: u32, flags: u64) -> Result<Arc<Reference>, Errno> {
    let size = u64::from(size);
    if flags != 0 || !size.is_power_of_two() || size > PAGE || !content.is_multiple_of(size) {
        return Err(Errno::EINVAL);
    }
    let mut page = [0; PAGE as usize];
    let bytes = &mut page[..size as usize];
    if caller.space().read(VirtAddr(content), bytes) < bytes.len() {
        return Err(Errno::EFAULT);
    }
    Ok(Reference::new(caller.space().memory(), bytes)?)
}

/// The reference page with the content that the page at `address` has now.
pub(crate) fn page_at(caller: &impl Caller, address: u64) -> Result<Arc<Reference>, Errno> {
    caller.space().reference_at(VirtAddr(address)).map_err(|error| match error {
        Error::NotMapped => Errno::EFAULT,
        error => error.into(),
    })
}
