//! pkey_alloc and pkey_free (`mm/mprotect.c` in Linux).

use foldspace::vma::ProtectionKey;

use crate::caller::Caller;
use crate::errno::Errno;

/// What a thread may not do to the pages of a key: of `PKEY_DISABLE_ACCESS` and `PKEY_DISABLE_WRITE`.
pub const PKEY_RIGHTS: u64 = 3;
/// Nothing may be read or written.
pub const PKEY_DISABLE_ACCESS: u32 = 1;

/// pkey_alloc(2): the lowest key that is free, of which the calling thread gets `rights`.
///
/// # Errors
///
/// `EINVAL`: any flag, or unknown rights, or the processor has no keys (so Linux, whatever pkeys(7) says). `ENOSPC`: no key is free.
pub fn pkey_alloc(caller: &impl Caller, flags: u64, rights: u64) -> Result<u32, Errno> {
    if flags != 0 || rights & !PKEY_RIGHTS != 0 {
        return Err(Errno::EINVAL);
    }
    let space = caller.space();
    if !space.memory().has_protection_keys() {
        return Err(Errno::EINVAL);
    }
    let key = space.update_layout(|layout| layout.keys.give()).ok_or(Errno::ENOSPC)?;
    caller.set_key_rights(key, rights as u32);
    Ok(key.number())
}

/// pkey_free(2): the key may be given again. Memory that has it keeps it, and threads keep their rights.
///
/// # Errors
///
/// `EINVAL`: it was not given.
pub fn pkey_free(caller: &impl Caller, key: i32) -> Result<(), Errno> {
    let space = caller.space();
    let key = given(caller, key)?;
    if space.update_layout(|layout| layout.keys.take_back(key)) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The key of that number, if the program has it.
pub(crate) fn given(caller: &impl Caller, key: i32) -> Result<ProtectionKey, Errno> {
    let space = caller.space();
    let key = u32::try_from(key).ok().and_then(ProtectionKey::new).filter(|_| space.memory().has_protection_keys());
    key.filter(|key| space.with_layout(|layout| layout.keys.has(*key))).ok_or(Errno::EINVAL)
}

/// The key of memory that may only be executed, of which the calling thread then has no rights; `None` where there are no keys, or none is free.
pub(crate) fn execute_only(caller: &impl Caller) -> Option<ProtectionKey> {
    let space = caller.space();
    if !space.memory().has_protection_keys() {
        return None;
    }
    let key = space.update_layout(|layout| layout.keys.give_execute_only())?;
    caller.set_key_rights(key, PKEY_DISABLE_ACCESS);
    Some(key)
}
