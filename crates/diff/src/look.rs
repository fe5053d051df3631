//! What is to be seen of a process after each operation: the lines of /proc/PID/smaps in the window, mincore, content.

use crate::op::Outcome;
use crate::window;

/// One line of maps with what smaps says below it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// `rwxp` as maps has it.
    pub access: [u8; 4],
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Which file: inode numbers in the order in which the sequence met them, from 1; 0 is none.
    pub file: u32,
    /// The last column.
    pub name: String,
    /// Kilobytes, as smaps has them, in the order of [`SIZES`].
    pub sizes: [u64; SIZES.len()],
    /// Two letters each, in alphabetical order.
    pub flags: Vec<[u8; 2]>,
}

/// The lines of smaps that are compared, in the order in which Linux prints them.
///
/// Not LazyFree: Linux moves pages there in batches, when it comes to it.
pub const SIZES: [&str; 4] = ["Rss", "Private_Dirty", "Anonymous", "Locked"];

/// What a process' memory in the window looks like.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// Its areas, by address.
    pub areas: Vec<Area>,
    /// One entry a page of all areas, in their order: what mincore says.
    pub in_core: Vec<bool>,
    /// A hash of content: of four words of each page that is in memory and can be read; after [`crate::Call::LookDeep`] of every byte.
    pub content: u64,
}

/// One operation and what came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Result, errno, signal.
    pub outcome: Outcome,
    /// The process that did it, afterwards; `None` if it is gone, or never was.
    pub look: Option<Look>,
}

/// Inodes of one sequence in the order in which they came.
#[derive(Default)]
pub struct Inodes(Vec<u64>);

impl Inodes {
    fn number(&mut self, inode: u64) -> u32 {
        if inode == 0 {
            return 0;
        }
        let known = self.0.iter().position(|known| *known == inode).unwrap_or_else(|| {
            self.0.push(inode);
            self.0.len() - 1
        });
        known as u32 + 1
    }
}

/// One entry of smaps, as text.
pub struct Entry<'a> {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// The line of maps without its addresses.
    head: &'a [u8],
    /// The lines below it.
    body: &'a [u8],
}

/// The entries of `text` that lie in the window.
pub fn entries(text: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut rest = text;
    core::iter::from_fn(move || {
        loop {
            let (line, mut after) = split_line(rest)?;
            let (start, line) = hexadecimal(line);
            let (end, head) = hexadecimal(line.get(1..)?);
            let body = after;
            // A line of maps starts with a digit, all others with a capital letter.
            while let Some((_, next)) =
                split_line(after).filter(|(line, _)| line.first().is_some_and(u8::is_ascii_uppercase))
            {
                after = next;
            }
            rest = after;
            if window::contains(start, end) {
                return Some(Entry { start, end, head, body: &body[..body.len() - after.len()] });
            }
        }
    })
}

impl<'a> Entry<'a> {
    /// `rwxp`.
    pub fn access(&self) -> [u8; 4] {
        self.head.get(1..5).and_then(|letters| letters.try_into().ok()).unwrap_or_default()
    }

    /// The value of the line `name`, in kilobytes.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.lines().find_map(|(key, value)| (key == name.as_bytes()).then(|| decimal(value)))
    }

    /// The lines below the first: what is before the colon, what is behind it.
    fn lines(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.body;
        core::iter::from_fn(move || {
            let (line, after) = split_line(rest)?;
            rest = after;
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// All of it.
    pub fn area(&self, inodes: &mut Inodes) -> Area {
        let (offset, rest) = hexadecimal(self.head.get(6..).unwrap_or_default());
        let mut fields = rest.trim_ascii_start().splitn(3, |byte| *byte == b' ');
        let (_device, inode) = (fields.next(), fields.next().map_or(0, decimal));
        let name = fields.next().map_or(&[][..], <[u8]>::trim_ascii);
        let mut area = Area {
            start: self.start,
            end: self.end,
            access: self.access(),
            offset,
            file: inodes.number(inode),
            name: String::from_utf8_lossy(name).into_owned(),
            ..Area::default()
        };
        let mut wanted = 0;
        for (key, value) in self.lines() {
            if SIZES.get(wanted).is_some_and(|name| key == name.as_bytes()) {
                area.sizes[wanted] = decimal(value);
                wanted += 1;
            } else if key == b"VmFlags" {
                let flags = value.split(|byte| *byte == b' ').filter_map(|flag| flag.try_into().ok());
                // Soft-dirty tracking is a matter of the kernel's configuration: it shows sd in all new areas.
                area.flags = flags.filter(|flag| flag != b"sd").collect();
                area.flags.sort_unstable();
            }
        }
        area
    }
}

impl Look {
    /// From the text of smaps, and what mincore said of each page of the entries in the window.
    pub fn new(text: &[u8], in_core: &[u8], content: u64, inodes: &mut Inodes) -> Look {
        Look {
            areas: entries(text).map(|entry| entry.area(inodes)).collect(),
            in_core: in_core.iter().map(|byte| byte & 1 != 0).collect(),
            content,
        }
    }
}

fn split_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    Some((&text[..end], &text[end + 1..]))
}

fn hexadecimal(text: &[u8]) -> (u64, &[u8]) {
    let (mut value, mut digits) = (0, 0);
    for digit in text.iter().map_while(|byte| (*byte as char).to_digit(16)) {
        value = value << 4 | digit as u64;
        digits += 1;
    }
    (value, &text[digits..])
}

fn decimal(text: &[u8]) -> u64 {
    text.iter().take_while(|byte| byte.is_ascii_digit()).fold(0, |value, digit| value * 10 + (digit - b'0') as u64)
}
