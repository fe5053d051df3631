//! Protection keys of the current program (pkeys(7)): what PKRU lets it do. The processor asks for its own accesses; here it is asked for those that
//! the kernel makes on its behalf, which do not go through the program's page tables as the processor does.

use core::sync::atomic::{AtomicBool, Ordering};

use foldspace::VirtAddr;
use foldspace::space::Access;
use foldspace::vma::ProtectionKey;

use crate::arch::live_registers::{key_rights, set_key_rights};
use crate::sched;

/// Nothing that has the key may be accessed.
const NO_ACCESS: u32 = 1;
/// Nothing that has the key may be written.
const NO_WRITE: u32 = 2;

/// Whether a program has ever asked for a key. Until then all memory has the default key, which the kernel need not ask about.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether accesses on a program's behalf have to ask.
#[inline]
pub fn in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// Sets what the current thread may not do to memory that has `key`.
pub fn set_rights(key: ProtectionKey, rights: u32) {
    IN_USE.store(true, Ordering::Relaxed);
    if let Some(now) = key_rights() {
        let shift = 2 * key.number();
        set_key_rights(now & !((NO_ACCESS | NO_WRITE) << shift) | rights << shift);
    }
}

/// Whether a thread with these rights is kept from that access to memory that has `key`.
fn refuses(rights: u32, key: ProtectionKey, access: Access) -> bool {
    let refused = match access {
        Access::Read => NO_ACCESS,
        Access::Write => NO_ACCESS | NO_WRITE,
        Access::Execute => 0,
    };
    rights >> (2 * key.number()) & refused != 0
}

/// The key of the memory at `addr`, if it is what keeps the current thread from that access.
pub fn refusing(addr: VirtAddr, access: Access) -> Option<ProtectionKey> {
    let rights = key_rights()?;
    let version = sched::with_space(|space| space.vmas())?;
    let key = version.view().find(addr)?.tag.key();
    refuses(rights, key, access).then_some(key)
}

/// Bytes from `address` on that no key keeps from the current thread, `len` at most.
pub fn allowed(address: u64, len: usize, access: Access) -> usize {
    let end = address.saturating_add(len as u64);
    let Some((rights, version)) = key_rights().zip(sched::with_space(|space| space.vmas())) else { return len };
    let mut at = VirtAddr(address);
    // What is not mapped is refused for that reason.
    while let Some(vma) = version.view().find_at_or_after(at).filter(|vma| vma.start().get() < end) {
        if refuses(rights, vma.tag.key(), access) {
            return (vma.start().max(at).get() - address) as usize;
        }
        at = vma.end();
    }
    len
}
