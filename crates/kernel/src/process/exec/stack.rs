//! The stack that a program starts with (System V ABI, x86-64, 3.4.1).
//!
//! ```text
//!   7ffffffff000 │ 8 zero bytes                    │
//!                │ path of the program             │ AT_EXECFN
//!                │ environment strings             │
//!                │ argument strings                │
//!                │ "x86_64", 16 random bytes       │ AT_PLATFORM, AT_RANDOM
//!                │ auxiliary vector                │
//!                │ pointers to environment, null   │
//!                │ pointers to arguments, null     │
//!            rsp │ number of arguments             │
//! ```

use alloc::vec::Vec;

use foldspace::addr::{PAGE_SIZE, USER_END};
use foldspace::space::{Layout, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, VirtAddr};
use foldspace_image::Image;
use linux_raw_sys::auxvec as aux;
use zerocopy::IntoBytes;

use super::arguments::{Arguments, Strings};
use crate::arch::cpu::{Features, features};
use crate::errno::Errno;
use crate::process::credentials::Credentials;
use crate::process::rseq;
use crate::process::signal::frame::minimum_stack;
use crate::process::usage::TICKS_PER_SECOND;

/// What the stack has beyond its strings from the start (`setup_arg_pages`).
const HEADROOM: u64 = 128 << 10;
const PLATFORM: &[u8] = b"x86_64\0";
/// `AT_RSEQ_FEATURE_SIZE` and `AT_RSEQ_ALIGN` (`linux/auxvec.h`).
const AT_RSEQ_FEATURE_SIZE: u32 = 27;
const AT_RSEQ_ALIGN: u32 = 28;
/// `AT_HWCAP2`: programs may use `rdfsbase` and its like.
const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// What the auxiliary vector tells.
pub struct Facts<'a> {
    /// The program.
    pub image: &'a Image,
    /// Where its dynamic linker was loaded; 0 for none.
    pub interpreter_base: u64,
    /// Path that exec was given.
    pub filename: &'a [u8],
    /// Who runs it.
    pub credentials: &'a Credentials,
    /// Whether the C library is to distrust the environment.
    pub secure: bool,
    /// Whether code on the stack may run.
    pub executable: bool,
}

/// Maps the stack and fills it. Returns the stack pointer.
///
/// # Errors
/// `ENOMEM`, `E2BIG`.
pub fn build(space: &AddressSpace, arguments: &Arguments, facts: &Facts<'_>, limit: u64) -> Result<VirtAddr, Errno> {
    let strings = [&arguments.argv, &arguments.envp].map(|strings| strings.bytes().len() as u64);
    let execfn = USER_END.get() - 8 - (facts.filename.len() as u64 + 1);
    let env = execfn - strings[1];
    let args = env - strings[0];
    let platform = (args & !15) - PLATFORM.len() as u64;
    let random = platform - 16;
    let auxiliary = auxiliary_vector(facts, execfn, platform, random);
    let words = 1 + arguments.argv.count() + 1 + arguments.envp.count() + 1 + 2 * auxiliary.len();
    let stack_pointer = (random - 8 * words as u64) & !15;

    let bottom = ((args & !(PAGE_SIZE - 1)) - HEADROOM.min(limit)).min(stack_pointer & !(PAGE_SIZE - 1));
    let access = VmaFlags::READ | VmaFlags::WRITE | VmaFlags::MAY_READ | VmaFlags::MAY_WRITE | VmaFlags::MAY_EXEC;
    space.map(MapRequest {
        placement: Placement::Fixed(VirtAddr(bottom)),
        len: USER_END.get() - bottom,
        flags: access | VmaFlags::GROWS_DOWN | if facts.executable { VmaFlags::EXEC } else { VmaFlags::empty() },
        backing: Backing::Anonymous,
        page_offset: 0,
    })?;

    let mut table: Vec<u64> = Vec::new();
    table.try_reserve_exact(words).map_err(|_| Errno::ENOMEM)?;
    table.push(arguments.argv.count() as u64);
    let mut pointers = |strings: &Strings, start: u64| {
        table.extend(strings.offsets().map(|offset| start + offset as u64));
        table.push(0);
    };
    pointers(&arguments.argv, args);
    pointers(&arguments.envp, env);
    table.extend(auxiliary.iter().flatten());

    let mut seed = [0; 16];
    crate::fs::random::fill(&mut seed);
    let put = |address: u64, bytes: &[u8]| match space.write(VirtAddr(address), bytes) == bytes.len() {
        true => Ok(()),
        false => Err(Errno::ENOMEM),
    };
    put(execfn, facts.filename)?;
    put(env, arguments.envp.bytes())?;
    put(args, arguments.argv.bytes())?;
    put(platform, PLATFORM)?;
    put(random, &seed)?;
    put(stack_pointer, table.as_bytes())?;

    space.update_layout(|layout: &mut Layout| {
        layout.start_stack = VirtAddr(stack_pointer);
        layout.args = (VirtAddr(args), VirtAddr(env));
        layout.env = (VirtAddr(env), VirtAddr(execfn));
    });
    Ok(VirtAddr(stack_pointer))
}

/// Key and value of each entry, the terminator last, in Linux's order (`create_elf_tables`).
fn auxiliary_vector(facts: &Facts<'_>, execfn: u64, platform: u64, random: u64) -> [[u64; 2]; 22] {
    let Facts { image, credentials, .. } = facts;
    let hwcap2 = if features().contains(Features::FSGSBASE) { HWCAP2_FSGSBASE } else { 0 };
    [
        (aux::AT_MINSIGSTKSZ, minimum_stack()),
        (aux::AT_HWCAP, u64::from(raw_cpuid::cpuid!(1).edx)),
        (aux::AT_PAGESZ, PAGE_SIZE),
        (aux::AT_CLKTCK, TICKS_PER_SECOND),
        (aux::AT_PHDR, image.headers.get()),
        (aux::AT_PHENT, image.header_size),
        (aux::AT_PHNUM, image.header_count),
        (aux::AT_BASE, facts.interpreter_base),
        (aux::AT_FLAGS, 0),
        (aux::AT_ENTRY, image.entry.get()),
        (aux::AT_UID, u64::from(credentials.shown_user(credentials.uid))),
        (aux::AT_EUID, u64::from(credentials.shown_user(credentials.euid))),
        (aux::AT_GID, u64::from(credentials.shown_group(credentials.gid))),
        (aux::AT_EGID, u64::from(credentials.shown_group(credentials.egid))),
        (aux::AT_SECURE, u64::from(facts.secure)),
        (aux::AT_RANDOM, random),
        (aux::AT_HWCAP2, hwcap2),
        (AT_RSEQ_FEATURE_SIZE, rseq::FEATURE_SIZE),
        (AT_RSEQ_ALIGN, rseq::ALIGNMENT),
        (aux::AT_EXECFN, execfn),
        (aux::AT_PLATFORM, platform),
        (aux::AT_NULL, 0),
    ]
    .map(|(key, value)| [u64::from(key), value])
}
