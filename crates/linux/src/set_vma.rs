//! prctl(PR_SET_VMA): names of anonymous memory.

use foldspace::vma::Name;
use foldspace::{Error, VirtAddr};
use linux_raw_sys::prctl as raw;

use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{in_user_half, is_aligned, page_align};

/// Bytes that a name may have, its NUL included (`ANON_VMA_NAME_MAX_LEN`).
const MAX: usize = Name::MAX + 1;

/// prctl(PR_SET_VMA, option, address, len, name): `name` is the address of a string; 0 takes names away.
///
/// # Errors
///
/// `EINVAL`: unknown option, a name too long or with a character that is not allowed, misaligned, or a length that wraps. `EFAULT`: a name that cannot be read.
/// `ENOMEM`: a hole; what is mapped around it is named. `EBADF`: a file; what comes before it is named. `EAGAIN`: a mapping cannot be cut.
pub fn prctl_set_vma(caller: &impl Caller, option: u64, address: u64, len: u64, name: u64) -> Result<(), Errno> {
    // Linux's order: `prctl_set_vma` in kernel/sys.c, `madvise_set_anon_name` in mm/madvise.c.
    if option != u64::from(raw::PR_SET_VMA_ANON_NAME) {
        return Err(Errno::EINVAL);
    }
    let name = if name == 0 { None } else { Some(read(caller, name)?) };
    let rounded = page_align(len);
    let end = address.wrapping_add(rounded);
    if !is_aligned(address) || rounded == 0 && len != 0 || end < address {
        return Err(Errno::EINVAL);
    }
    if end == address {
        return Ok(());
    }
    in_user_half(address, end, |range| {
        caller.space().set_name(range, name).map_err(|error| match error {
            Error::WrongKind => Errno::EBADF,
            Error::TooManyVmas | Error::OutOfMemory => Errno::EAGAIN,
            error => error.into(),
        })
    })
}

fn read(caller: &impl Caller, address: u64) -> Result<Name, Errno> {
    let mut bytes = [0; MAX];
    let got = caller.space().read(VirtAddr(address), &mut bytes);
    let name = match bytes[..got].iter().position(|&byte| byte == 0) {
        Some(end) => &bytes[..end],
        None if got < MAX => return Err(Errno::EFAULT),
        None => return Err(Errno::EINVAL),
    };
    if !name.iter().all(|&byte| is_allowed(byte)) {
        return Err(Errno::EINVAL);
    }
    Name::new(name).ok_or(Errno::EINVAL)
}

/// Printable ASCII without what means something to shells and to readers of maps.
fn is_allowed(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'\\' | b'`' | b'$' | b'[' | b']')
}
