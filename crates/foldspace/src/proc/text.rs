//! Numbers as text, without the machinery of formatting: a reader of many lines does little else.

use alloc::vec::Vec;

/// Hexadecimal digits, `width` at least.
pub(super) fn hex(out: &mut Vec<u8>, number: u64, width: u32) {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(width);
    out.extend((0..digits).rev().map(|digit| b"0123456789abcdef"[(number >> (4 * digit)) as usize & 0xf]));
}

/// Decimal digits, after as many spaces as make it `width` wide.
pub(super) fn decimal(out: &mut Vec<u8>, number: u64, width: usize) {
    let (mut digits, mut rest, mut first) = ([b' '; 20], number, 20);
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend(core::iter::repeat_n(b' ', width.saturating_sub(20 - first)));
    out.extend_from_slice(&digits[first..]);
}

/// A size at the end of its line: eight wide, in kB.
pub(super) fn kib(out: &mut Vec<u8>, kib: u64) {
    decimal(out, kib, 8);
    out.extend_from_slice(b" kB\n");
}
