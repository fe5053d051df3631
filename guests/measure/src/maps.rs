//! Reading `/proc/PID/maps`: as text, in pieces of a given size, and by questions about one area.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;

/// An open maps file.
#[derive(Debug)]
pub struct Maps {
    file: File,
    text: Vec<u8>,
    piece: Vec<u8>,
}

/// A line of maps, without its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Area {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// The four letters of its permissions.
    pub access: [u8; 4],
    /// Where it begins in its file.
    pub offset: u64,
}

/// Linux's `struct procmap_query` (`linux/fs.h`, 6.11).
#[derive(Default)]
#[repr(C)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    start: u64,
    end: u64,
    flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
/// What is wanted: the area that covers the address, or the next one.
const COVERING_OR_NEXT: u64 = 0x10;

impl Maps {
    /// The maps of a process, or of this one with "self".
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn of(process: &str) -> io::Result<Maps> {
        let file = File::open(format!("/proc/{process}/maps"))?;
        Ok(Maps { file, text: Vec::with_capacity(1 << 16), piece: Vec::new() })
    }

    /// The whole file from its start, read in pieces of `size` bytes.
    ///
    /// # Errors
    /// What reading says.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn read(&mut self, size: usize) -> io::Result<&[u8]> {
        self.read_while(size, |_| true)
    }

    /// The same, but only until `go_on`, which is asked after each piece, has seen enough.
    ///
    /// # Errors
    /// What reading says.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn read_while(&mut self, size: usize, mut go_on: impl FnMut(&[u8]) -> bool) -> io::Result<&[u8]> {
        assert!(size > 0);
        self.piece.resize(size, 0);
        self.text.clear();
        self.file.seek(SeekFrom::Start(0))?;
        loop {
            let got = self.file.read(&mut self.piece)?;
            self.text.extend_from_slice(&self.piece[..got]);
            if got == 0 || !go_on(&self.text) {
                return Ok(&self.text);
            }
        }
    }

    /// The area that covers an address, or the next one above it; `None` if there is none.
    ///
    /// # Errors
    /// What PROCMAP_QUERY says: `ENOTTY` where the kernel does not have it.
    pub fn query(&self, address: u64) -> io::Result<Option<Area>> {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            query_flags: COVERING_OR_NEXT,
            query_addr: address,
            ..Query::default()
        };
        // SAFETY: `query` is what the request reads and writes, and names no other memory.
        if unsafe { libc::ioctl(self.file.as_raw_fd(), PROCMAP_QUERY as _, &mut query) } == -1 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ENOENT) { Ok(None) } else { Err(error) };
        }
        let letter = |bit: u64, letter: u8| if query.flags & bit != 0 { letter } else { b'-' };
        let access =
            [letter(1, b'r'), letter(2, b'w'), letter(4, b'x'), if query.flags & 8 != 0 { b's' } else { b'p' }];
        Ok(Some(Area { start: query.start, end: query.end, access, offset: query.offset }))
    }
}

/// The areas of a text, in its order.
pub fn areas(text: &[u8]) -> impl Iterator<Item = Result<Area, String>> + '_ {
    text.split_inclusive(|byte| *byte == b'\n')
        .map(|line| area(line).ok_or_else(|| format!("no line of maps: {:?}", String::from_utf8_lossy(line))))
}

/// The areas that have an address in a range, cut to it.
///
/// # Errors
/// A line that is none.
pub fn areas_in(text: &[u8], range: Range<u64>) -> Result<Vec<Area>, String> {
    let mut inside = Vec::new();
    for area in areas(text) {
        let area = area?;
        if area.start < range.end && range.start < area.end {
            inside.push(area.cut(&range));
        }
    }
    Ok(inside)
}

impl Area {
    /// What of it lies in a range.
    #[must_use]
    pub fn cut(self, range: &Range<u64>) -> Area {
        Area { start: self.start.max(range.start), end: self.end.min(range.end), ..self }
    }
}

/// Fails where areas are not in ascending order, or have an address in common.
///
/// # Errors
/// The two that do not.
pub fn in_order(text: &[u8]) -> Result<usize, String> {
    let (mut reached, mut number) = (0, 0);
    for area in areas(text) {
        let area = area?;
        if area.start < reached || area.end <= area.start {
            return Err(format!("{:x}-{:x} comes after an area that ends at {reached:x}", area.start, area.end));
        }
        reached = area.end;
        number += 1;
    }
    Ok(number)
}

fn area(line: &[u8]) -> Option<Area> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let mut words = line.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let access = words.next()?.as_bytes().try_into().ok()?;
    Some(Area { start, end, access, offset: number(words.next()?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_areas() {
        let text = b"00400000-00401000 r--p 00000000 00:02 23     /bin/a b\n7f0000000000-7f0000002000 rw-s 00001000 00:00 0 \n";
        let seen: Result<Vec<Area>, String> = areas(text).collect();
        let first = Area { start: 0x40_0000, end: 0x40_1000, access: *b"r--p", offset: 0 };
        let second = Area { start: 0x7f00_0000_0000, end: 0x7f00_0000_2000, access: *b"rw-s", offset: 0x1000 };
        assert_eq!(seen, Ok(vec![first, second]));
        assert_eq!(areas_in(text, 0x7f00_0000_1000..u64::MAX), Ok(vec![Area { start: 0x7f00_0000_1000, ..second }]));
        assert_eq!(in_order(text), Ok(2));
        assert!(in_order(&[text.as_slice(), text].concat()).is_err());
        assert!(in_order(&text[..20]).is_err());
    }

    #[test]
    fn pieces_make_the_same_text() {
        let mut maps = Maps::of("self").unwrap();
        let whole = maps.read(1 << 16).unwrap().to_vec();
        assert!(in_order(&whole).unwrap() > 3);
        assert!(maps.read(7).unwrap().starts_with(&whole[..200]));
    }
}
