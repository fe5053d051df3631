//! The window, low in the address space, so that readers find it in the first lines; and the system calls that change it. All `unsafe` code is here.

use std::io;
use std::num::NonZeroUsize;

use crate::cases::{Call, Case, PAGES};

pub const PAGE: usize = 4096;
/// Below any program, above what nobody may map.
const BASE: usize = 0x10_0000;

/// The stretch of this process's memory that the writer changes.
pub struct Window;

impl Window {
    /// The address of a page.
    pub fn page(page: usize) -> NonZeroUsize {
        NonZeroUsize::MIN.saturating_add(BASE + page * PAGE - 1)
    }

    /// Maps what a case begins with. Something was stored to each page.
    pub fn set_up(case: &Case) -> io::Result<()> {
        // All from one mapping: Linux would keep areas apart that were stored to on their own.
        do_call(Call::Unmap(0, PAGES))?;
        do_call(Call::Map(0, case.start.len(), b'A'))?;
        for (page, letter) in case.start.bytes().enumerate() {
            // SAFETY: mapped a moment ago, for nothing else.
            unsafe { std::ptr::without_provenance_mut::<u64>(Window::page(page).get()).write_volatile(page as u64) };
            match letter {
                b'A' => {}
                b'.' => do_call(Call::Unmap(page, page + 1))?,
                letter => do_call(Call::Protect(page, page + 1, letter))?,
            }
        }
        Ok(())
    }
}

fn protection(letter: u8) -> i32 {
    match letter {
        b'A' => libc::PROT_READ | libc::PROT_WRITE,
        b'B' => libc::PROT_READ,
        _ => libc::PROT_NONE,
    }
}

/// Makes a call.
///
/// # Errors
/// What it says.
pub fn do_call(call: Call) -> io::Result<()> {
    let at = |page: usize| std::ptr::without_provenance_mut::<libc::c_void>(Window::page(page).get());
    let len = |from: usize, until: usize| (until - from) * PAGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the window is nobody else's: no object of Rust's lies in it.
    let result = unsafe {
        match call {
            Call::Protect(from, until, letter) => libc::mprotect(at(from), len(from, until), protection(letter)) as i64,
            Call::Map(from, until, letter) => {
                libc::mmap(at(from), len(from, until), protection(letter), flags, -1, 0) as i64
            }
            Call::Unmap(from, until) => libc::munmap(at(from), len(from, until)) as i64,
            Call::Resize(page, old, new) => libc::mremap(at(page), old * PAGE, new * PAGE, 0) as i64,
            Call::Move(page, pages, to) => {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                libc::mremap(at(page), pages * PAGE, pages * PAGE, flags, at(to)) as i64
            }
        }
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
