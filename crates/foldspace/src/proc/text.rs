//! Numbers as text, without the machinery of formatting: a reader of many lines does little else.

use alloc::vec::Vec;

/// Bytes that [`Columns`] holds: the numbers of a line of maps at their longest, and as many digits once more as are written at once.
const ROOM: usize = 128;

/// The part of a line that consists of numbers and single letters, put together before it goes into the text in one piece.
pub(super) struct Columns {
    bytes: [u8; ROOM],
    len: usize,
}

impl Columns {
    pub(super) const fn new() -> Columns {
        Columns { bytes: [0; ROOM], len: 0 }
    }

    #[inline]
    pub(super) fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Bytes as they are.
    #[inline]
    pub(super) fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.len..self.len + N].copy_from_slice(&bytes);
        self.len += N;
    }

    /// Hexadecimal digits, two at least, of a number that is mostly small.
    #[inline]
    pub(super) fn short_hex(&mut self, number: u64) {
        match number {
            0 => self.put(*b"00"),
            _ => self.hex(number, 2),
        }
    }

    /// Hexadecimal digits, `width` at least.
    #[inline]
    pub(super) fn hex(&mut self, number: u64, width: u32) {
        let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(width);
        // To the left, so that the first digit is the first that is written; what comes after the last is written over.
        let left = number << (u64::BITS - 4 * digits);
        let len = self.len;
        self.put(eight_digits((left >> 32) as u32));
        self.put(eight_digits(left as u32));
        self.len = len + digits as usize;
    }

    /// Decimal digits.
    #[inline]
    pub(super) fn decimal(&mut self, number: u64) {
        if number < 10 {
            return self.put([b'0' + number as u8]);
        }
        let mut digits = [0; MOST_DIGITS];
        let first = decimal_digits(number, &mut digits);
        let digits = &digits[first..];
        self.bytes[self.len..self.len + digits.len()].copy_from_slice(digits);
        self.len += digits.len();
    }
}

/// Eight hexadecimal digits at once: each half byte in a byte of its own, then turned into a letter.
#[inline]
fn eight_digits(number: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let spread = u64::from(number);
    let spread = (spread << 16 | spread) & 0x0000_ffff_0000_ffff;
    let spread = (spread << 8 | spread) & 0x00ff_00ff_00ff_00ff;
    let spread = (spread << 4 | spread) & 0x0f0f_0f0f_0f0f_0f0f;
    // One in each byte that is ten or more.
    let letters = (spread + 6 * ONES) >> 4 & ONES;
    const TO_LETTER: u64 = (b'a' - b'0' - 10) as u64;
    (spread + u64::from(b'0') * ONES + letters * TO_LETTER).to_be_bytes()
}

/// Digits of the largest number.
const MOST_DIGITS: usize = 20;

/// Writes decimal digits to the end of `digits`; where they begin.
#[inline]
fn decimal_digits(number: u64, digits: &mut [u8; MOST_DIGITS]) -> usize {
    let (mut rest, mut first) = (number, MOST_DIGITS);
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return first;
        }
    }
}

/// Decimal digits, after as many spaces as make it `width` wide.
pub(super) fn decimal(out: &mut Vec<u8>, number: u64, width: usize) {
    let mut digits = [b' '; MOST_DIGITS];
    let first = decimal_digits(number, &mut digits);
    out.extend(core::iter::repeat_n(b' ', width.saturating_sub(MOST_DIGITS - first)));
    out.extend_from_slice(&digits[first..]);
}

/// A size at the end of its line: eight wide, in kB.
pub(super) fn kib(out: &mut Vec<u8>, kib: u64) {
    decimal(out, kib, 8);
    out.extend_from_slice(b" kB\n");
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::Columns;

    #[test]
    fn numbers_look_as_the_standard_library_writes_them() {
        let powers = (0..64).map(|bit| 1u64 << bit);
        for number in powers.flat_map(|power| [power - 1, power, power + 9, power.wrapping_mul(0xfedc_ba98)]) {
            for width in [1, 2, 8] {
                let mut columns = Columns::new();
                columns.hex(number, width);
                columns.put([b' ']);
                columns.short_hex(number);
                columns.put([b' ']);
                columns.decimal(number);
                let expected = format!("{number:0width$x} {number:02x} {number}", width = width as usize);
                assert_eq!(core::str::from_utf8(columns.text()), Ok(&*expected));
            }
        }
    }
}
