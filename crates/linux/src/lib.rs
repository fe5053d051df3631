#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod abi;
mod advice;
mod brk;
mod build_id;
mod caller;
mod errno;
mod keys;
mod lock;
mod memory_failure;
mod mincore;
mod mmap;
mod mprotect;
mod mremap;
mod mseal;
mod msync;
mod munmap;
mod populate;
mod process_madvise;
mod process_vm;
mod procmap_query;
mod range;
mod refpage;
mod remap_file_pages;
mod set_mm;
mod set_vma;
mod vector;

pub use advice::madvise;
pub use brk::brk;
pub use caller::{Caller, Capability, Content, OpenFile, OpenRights, Reserve};
pub use errno::Errno;
pub use keys::{PKEY_RIGHTS, pkey_alloc, pkey_free};
pub use lock::{mlock, mlock2, mlockall, munlock, munlockall};
pub use mincore::mincore;
pub use mmap::mmap;
pub use mprotect::{mprotect, pkey_mprotect};
pub use mremap::mremap;
pub use mseal::mseal;
pub use msync::msync;
pub use munmap::munmap;
pub use process_madvise::process_madvise;
pub use process_vm::{Vectors, process_vm_readv, process_vm_writev};
pub use procmap_query::{PROCMAP_QUERY, procmap_query};
pub use refpage::refpage_create;
pub use remap_file_pages::remap_file_pages;
pub use set_mm::prctl_set_mm;
pub use set_vma::prctl_set_vma;
pub use vector::{IoVec, IoVecs, MAX_BYTES, MAX_VECTORS};
