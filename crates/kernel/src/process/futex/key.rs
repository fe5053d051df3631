//! What a futex goes by (`get_futex_key` of Linux's `kernel/futex/core.c`).

use alloc::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::platform::SpaceId;
use foldspace::space::Access;
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, VirtAddr};

use crate::errno::Errno;

/// Who may wake whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// `FUTEX_PRIVATE_FLAG`: only threads of one address space.
    Private,
    /// Without it: everybody who maps the same memory.
    Shared,
}

/// What a futex goes by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// Of one address space, by its address.
    Private(SpaceId, u64),
    /// Memory that turned out to be private although it was not said to be. Those who say so do not meet these, as on Linux.
    Anonymous(SpaceId, u64),
    /// Memory of an object (its address in the kernel stands for it; [`Place::object`] keeps it alive): page, and bytes from the page's start.
    Object(usize, u64, u64),
}

/// A key, and what keeps it meaning the same.
#[derive(Clone)]
pub struct Place {
    /// What it goes by.
    pub key: Key,
    /// The object that the key names.
    #[expect(dead_code, reason = "held so that no other object gets its address")]
    object: Option<Arc<Object>>,
}

/// The place of the word at `address`.
///
/// # Errors
/// `EINVAL`: not aligned. `EFAULT`: not user memory, or shared and not accessible as `access` wants, or secret.
pub fn place(space: &AddressSpace, address: u64, scope: Scope, access: Access) -> Result<Place, Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    if address >= foldspace::addr::USER_END.get() {
        return Err(Errno::EFAULT);
    }
    if scope == Scope::Private {
        return Ok(Place { key: Key::Private(space.id(), address), object: None });
    }
    let at = VirtAddr(address);
    space.fault(at, access).map_err(|_| Errno::EFAULT)?;
    let version = space.vmas();
    let vma = version.view().find_at_or_after(at).filter(|vma| vma.range.contains(at)).ok_or(Errno::EFAULT)?;
    if vma.flags.contains(VmaFlags::SECRET) {
        return Err(Errno::EFAULT);
    }
    Ok(match &vma.backing {
        Backing::Object(object) if vma.flags.contains(VmaFlags::SHARED) => {
            let page = vma.page_offset + (address - vma.start().get()) / PAGE_SIZE;
            let key = Key::Object(Arc::as_ptr(object) as usize, page, address % PAGE_SIZE);
            Place { key, object: Some(object.clone()) }
        }
        _ => Place { key: Key::Anonymous(space.id(), address), object: None },
    })
}
