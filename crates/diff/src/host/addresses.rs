//! What this machine's Linux is like: addresses that are the same in each run, names of memory.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::system::call;

/// Says "what it is now" to personality(2).
const ASK: u64 = 0xffff_ffff;

/// Starts this program again, with the same arguments, if the kernel gives it random addresses: MAP_32BIT searches from a random address on then.
/// To be called first of all.
///
/// # Errors
/// The system does not let a program switch that off, or start itself.
pub fn fix_addresses() -> io::Result<()> {
    let now = call!(libc::SYS_personality, ASK);
    if now < 0 || now & i64::from(libc::ADDR_NO_RANDOMIZE) != 0 {
        return if now < 0 { Err(io::Error::from_raw_os_error(-now as i32)) } else { Ok(()) };
    }
    let set = call!(libc::SYS_personality, now | i64::from(libc::ADDR_NO_RANDOMIZE));
    if set < 0 {
        return Err(io::Error::from_raw_os_error(-set as i32));
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    Err(Command::new("/proc/self/exe").arg0(name).args(arguments).exec())
}

/// Whether this machine's Linux lets memory have names (`CONFIG_ANON_VMA_NAME`).
pub fn names_memory() -> bool {
    // PR_SET_VMA, PR_SET_VMA_ANON_NAME; no memory and no name is fine wherever there are names.
    call!(libc::SYS_prctl, 0x5356_4d41, 0, 0, 0, 0) == 0
}
