//! The kernel's `memcpy`, `memmove`, `memset` and `memcmp`, in this program in place of the C library's.
//!
//! They are assembly, and the kernel itself has no tests of its own.

#[path = "../../kernel/src/arch/memory_functions.rs"]
mod memory_functions;

use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn memmove(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn memset(to: *mut c_void, byte: c_int, bytes: usize) -> *mut c_void;
    fn memcmp(a: *const c_void, b: *const c_void, bytes: usize) -> c_int;
}

/// Sizes around all that the functions distinguish.
fn sizes() -> impl Iterator<Item = usize> {
    (0..600).chain([1023, 1024, 1025, 4080, 4095, 4096, 4097, 5000])
}

/// Bytes that differ from their neighbours.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + 1) as u8).collect()
}

const ROOM: usize = 5200;

#[test]
fn a_filled_range_ends_where_it_should() {
    for size in sizes() {
        for start in 0..33 {
            let mut bytes = pattern(ROOM);
            let expected: Vec<u8> = bytes
                .iter()
                .enumerate()
                .map(|(i, byte)| if (start..start + size).contains(&i) { 0xa5 } else { *byte })
                .collect();
            let to = bytes[start..].as_mut_ptr().cast::<c_void>();
            // SAFETY: the range lies inside `bytes`. Only the lowest byte of the value counts.
            assert_eq!(unsafe { memset(to, 0x7fa5, size) }, to);
            assert!(bytes == expected, "{size} bytes from {start}");
        }
    }
}

#[test]
fn a_copy_is_whole_and_no_more() {
    for size in sizes() {
        for (from, to) in [(0, 0), (0, 1), (1, 0), (3, 8), (16, 7), (15, 31)] {
            let source = pattern(ROOM);
            let mut bytes = vec![0xee; ROOM];
            let mut expected = bytes.clone();
            expected[to..to + size].copy_from_slice(&source[from..from + size]);
            let at = bytes[to..].as_mut_ptr().cast::<c_void>();
            // SAFETY: both ranges lie inside their vectors, which do not overlap.
            assert_eq!(unsafe { memcpy(at, source[from..].as_ptr().cast(), size) }, at);
            assert!(bytes == expected, "{size} bytes from {from} to {to}");
        }
    }
}

#[test]
fn what_overlaps_moves_whole() {
    for size in sizes() {
        for (from, to) in [(0, 0), (0, 1), (1, 0), (0, 100), (100, 0), (17, 33), (33, 17), (5, 13)] {
            let mut bytes = pattern(ROOM);
            let mut expected = bytes.clone();
            expected.copy_within(from..from + size, to);
            let base = bytes.as_mut_ptr();
            // SAFETY: both ranges lie inside `bytes`.
            unsafe { memmove(base.add(to).cast(), base.add(from).cast(), size) };
            assert!(bytes == expected, "{size} bytes from {from} to {to}");
        }
    }
}

#[test]
fn the_first_difference_decides() {
    for size in 1..300 {
        let first = pattern(size);
        for at in [0, size / 3, size / 2, size - 1] {
            let mut second = first.clone();
            second[at] = first[at].wrapping_add(1);
            let wanted = first.cmp(&second) as c_int;
            // SAFETY: both have `size` bytes.
            let found = unsafe { memcmp(first.as_ptr().cast(), second.as_ptr().cast(), size) };
            assert_eq!(found.signum(), wanted, "{size} bytes, {at} differs");
            // SAFETY: as above.
            assert_eq!(unsafe { memcmp(first.as_ptr().cast(), second.as_ptr().cast(), at) }, 0);
        }
    }
}
