//! prctl(PR_SET_MM): the addresses that exec noted, set by a program that restores another.

use foldspace::space::Layout;
use foldspace::{AddressSpace, VirtAddr};
use linux_raw_sys::prctl as raw;

use crate::caller::{Caller, Capability};
use crate::errno::Errno;
use crate::range::TASK_SIZE;
use crate::vector::number;

/// Bytes of `struct prctl_mm_map`: eleven addresses, the auxiliary vector and its size, the executable's descriptor.
const MAP_SIZE: usize = 104;

/// prctl(PR_SET_MM, option, address, size, rest), as far as it is about [`Layout`]: the auxiliary vector and the executable's link are refused with `EINVAL`.
///
/// # Errors
///
/// `EINVAL`: unknown option, addresses outside the user half or out of order, a heap beyond RLIMIT_DATA. `EPERM`: no CAP_SYS_RESOURCE. `EFAULT`: nothing is
/// mapped from the address of a stack, of arguments or of an environment on; or the structure cannot be read.
pub fn prctl_set_mm(caller: &impl Caller, option: u64, address: u64, size: u64, rest: u64) -> Result<(), Errno> {
    // Linux's order: `prctl_set_mm` in kernel/sys.c.
    let option = option as u32;
    let takes_size = matches!(option, raw::PR_SET_MM_AUXV | raw::PR_SET_MM_MAP | raw::PR_SET_MM_MAP_SIZE);
    if rest != 0 || size != 0 && !takes_size {
        return Err(Errno::EINVAL);
    }
    let space = caller.space();
    match option {
        raw::PR_SET_MM_MAP_SIZE => return write_size(space, address),
        raw::PR_SET_MM_MAP => return set_all(caller, address, size),
        _ if !caller.is_capable(Capability::Resource) => return Err(Errno::EPERM),
        _ => {}
    }
    if !is_usable(space, address) {
        return Err(Errno::EINVAL);
    }
    let mapped_above = space.vmas().view().find_at_or_after(VirtAddr(address)).is_some();
    change(space, |layout| {
        let field = field(layout, option).ok_or(Errno::EINVAL)?;
        *field = VirtAddr(address);
        check(space, layout)?;
        let needs_memory = matches!(
            option,
            raw::PR_SET_MM_START_STACK
                | raw::PR_SET_MM_ARG_START
                | raw::PR_SET_MM_ARG_END
                | raw::PR_SET_MM_ENV_START
                | raw::PR_SET_MM_ENV_END
        );
        if needs_memory && !mapped_above { Err(Errno::EFAULT) } else { Ok(()) }
    })
}

/// The address that an option is about.
fn field(layout: &mut Layout, option: u32) -> Option<&mut VirtAddr> {
    Some(match option {
        raw::PR_SET_MM_START_CODE => &mut layout.code.0,
        raw::PR_SET_MM_END_CODE => &mut layout.code.1,
        raw::PR_SET_MM_START_DATA => &mut layout.data.0,
        raw::PR_SET_MM_END_DATA => &mut layout.data.1,
        raw::PR_SET_MM_START_BRK => &mut layout.start_brk,
        raw::PR_SET_MM_BRK => &mut layout.brk,
        raw::PR_SET_MM_START_STACK => &mut layout.start_stack,
        raw::PR_SET_MM_ARG_START => &mut layout.args.0,
        raw::PR_SET_MM_ARG_END => &mut layout.args.1,
        raw::PR_SET_MM_ENV_START => &mut layout.env.0,
        raw::PR_SET_MM_ENV_END => &mut layout.env.1,
        _ => return None,
    })
}

/// The order of the addresses in `struct prctl_mm_map`.
const FIELDS: [u32; 11] = [
    raw::PR_SET_MM_START_CODE,
    raw::PR_SET_MM_END_CODE,
    raw::PR_SET_MM_START_DATA,
    raw::PR_SET_MM_END_DATA,
    raw::PR_SET_MM_START_BRK,
    raw::PR_SET_MM_BRK,
    raw::PR_SET_MM_START_STACK,
    raw::PR_SET_MM_ARG_START,
    raw::PR_SET_MM_ARG_END,
    raw::PR_SET_MM_ENV_START,
    raw::PR_SET_MM_ENV_END,
];

fn write_size(space: &AddressSpace, address: u64) -> Result<(), Errno> {
    let bytes = (MAP_SIZE as u32).to_ne_bytes();
    if space.write(VirtAddr(address), &bytes) < bytes.len() { Err(Errno::EFAULT) } else { Ok(()) }
}

/// All addresses at once, from a `struct prctl_mm_map`.
fn set_all(caller: &impl Caller, address: u64, size: u64) -> Result<(), Errno> {
    let space = caller.space();
    let mut bytes = [0; MAP_SIZE];
    if size != MAP_SIZE as u64 {
        return Err(Errno::EINVAL);
    }
    if space.read(VirtAddr(address), &mut bytes) < bytes.len() {
        return Err(Errno::EFAULT);
    }
    let word = |index: usize| number(&bytes[8 * index..8 * index + 8]);
    let [auxv_size, executable] = [word(12) as u32, (word(12) >> 32) as u32];
    change(space, |layout| {
        for (index, option) in FIELDS.into_iter().enumerate() {
            if let Some(field) = field(layout, option) {
                *field = VirtAddr(word(index));
            }
        }
        check(space, layout)?;
        if auxv_size != 0 {
            return Err(Errno::EINVAL);
        }
        match executable {
            u32::MAX => Ok(()),
            _ if !caller.is_capable(Capability::CheckpointRestore) => Err(Errno::EPERM),
            _ => Err(Errno::EINVAL),
        }
    })
}

/// Changes the layout if `edit` agrees to what it made of it.
fn change(space: &AddressSpace, edit: impl FnOnce(&mut Layout) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut outcome = Ok(());
    space.update_layout(|layout| {
        let mut edited = *layout;
        outcome = edit(&mut edited);
        if outcome.is_ok() {
            *layout = edited;
        }
    });
    outcome
}

/// `validate_prctl_map_addr`.
fn check(space: &AddressSpace, layout: &mut Layout) -> Result<(), Errno> {
    let mut all_usable = true;
    for option in FIELDS {
        if let Some(address) = field(layout, option) {
            all_usable &= is_usable(space, address.get());
        }
    }
    let Layout { code, data, start_brk, brk, args, env, .. } = *layout;
    let ordered = code.0 < code.1 && data.0 <= data.1 && start_brk <= brk && args.0 <= args.1 && env.0 <= env.1;
    if !all_usable || !ordered {
        return Err(Errno::EINVAL);
    }
    let heap_and_data = (brk.get() - start_brk.get()) + (data.1.get() - data.0.get());
    if heap_and_data > layout.data_limit { Err(Errno::EINVAL) } else { Ok(()) }
}

fn is_usable(space: &AddressSpace, address: u64) -> bool {
    (space.memory().lowest_address().get()..TASK_SIZE).contains(&address)
}
