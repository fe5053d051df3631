//! The build id of an ELF file (`NT_GNU_BUILD_ID`), found as Linux's `lib/buildid.c` finds it: in the first note of that kind that is whole.

use elf::abi::{ELFMAGIC, ET_DYN, ET_EXEC, NT_GNU_BUILD_ID, PT_NOTE};
use elf::endian::{EndianParse, LittleEndian};
use elf::file::{Class, FileHeader};
use elf::parse::ParseAt;
use elf::segment::ProgramHeader;

/// The longest there is: SHA-1 (`BUILD_ID_SIZE_MAX`).
pub const MAX: usize = 20;

/// Program headers that are looked at (`MAX_PHDR_CNT`).
const MAX_SEGMENTS: u64 = 256;
/// Bytes of the identification, and of the header of a note.
const IDENT: usize = 16;
const NOTE_HEADER: u64 = 12;
/// The name of the note, with its NUL: as long as names are aligned.
const NAME: [u8; 4] = *b"GNU\0";

/// A build id.
pub struct BuildId {
    bytes: [u8; MAX],
    len: usize,
}

impl BuildId {
    /// The one of a file, if it is an ELF program or library of either class that has one. `read` fills a buffer from an offset on, or says that there is
    /// not so much.
    pub fn of(read: impl Fn(u64, &mut [u8]) -> Option<()>) -> Option<BuildId> {
        let mut ident = [0; IDENT];
        read(0, &mut ident)?;
        if ident[..4] != ELFMAGIC {
            return None;
        }
        // What else is said there, Linux does not look at.
        let (class, header_size, segment_size) = match ident[4] {
            1 => (Class::ELF32, 52, 32),
            2 => (Class::ELF64, 64, 56),
            _ => return None,
        };
        let mut bytes = [0; 64];
        let bytes = &mut bytes[..header_size - IDENT];
        read(IDENT as u64, bytes)?;
        let header = FileHeader::parse_tail((LittleEndian, class, 0, 0), bytes).ok()?;
        if !matches!(header.e_type, ET_EXEC | ET_DYN) {
            return None;
        }
        for number in 0..u64::from(header.e_phnum).min(MAX_SEGMENTS) {
            let mut bytes = [0; 56];
            let bytes = &mut bytes[..segment_size];
            read(header.e_phoff.checked_add(number * segment_size as u64)?, bytes)?;
            let segment = ProgramHeader::parse_at(LittleEndian, class, &mut 0, bytes).ok()?;
            if segment.p_type == PT_NOTE
                && let Some(found) = in_notes(&read, segment.p_offset, u64::from(segment.p_filesz as u32))
            {
                return Some(found);
            }
        }
        None
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The one among the notes of a segment.
fn in_notes(read: &impl Fn(u64, &mut [u8]) -> Option<()>, start: u64, len: u64) -> Option<BuildId> {
    let (mut at, end) = (start, start.checked_add(len)?);
    while end - at > NOTE_HEADER + NAME.len() as u64 {
        let mut note = [0; NOTE_HEADER as usize + NAME.len()];
        read(at, &mut note)?;
        let word = |index: usize| LittleEndian.parse_u32_at(&mut (4 * index), &note).ok();
        let (name_len, len, kind) = (word(0)?, word(1)?, word(2)?);
        // Sizes are 32 bits wide, and wrap where they are rounded up to four.
        let aligned = |size: u32| u64::from(size.wrapping_add(3) & !3);
        let next = at.checked_add(NOTE_HEADER)?.checked_add(aligned(name_len))?.checked_add(aligned(len))?;
        if next > end {
            return None;
        }
        let is_ours = u64::from(kind) == NT_GNU_BUILD_ID && name_len as usize == NAME.len() && note.ends_with(&NAME);
        if is_ours && (1..=MAX as u32).contains(&len) {
            let mut id = BuildId { bytes: [0; MAX], len: len as usize };
            read(at + note.len() as u64, &mut id.bytes[..len as usize])?;
            return Some(id);
        }
        at = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// An ELF file of 64 bits with one segment of notes.
    fn file(notes: &[u8], kind: u16) -> Vec<u8> {
        let mut file = std::vec![0; 64 + 56];
        file[..5].copy_from_slice(b"\x7fELF\x02");
        file[16..18].copy_from_slice(&kind.to_le_bytes());
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[56..58].copy_from_slice(&1u16.to_le_bytes());
        file[64..68].copy_from_slice(&PT_NOTE.to_le_bytes());
        file[72..80].copy_from_slice(&120u64.to_le_bytes());
        file[96..104].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        file.extend_from_slice(notes);
        file
    }

    fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut note: Vec<u8> =
            [name.len() as u32, content.len() as u32, kind].iter().flat_map(|word| word.to_le_bytes()).collect();
        for part in [name, content] {
            note.extend_from_slice(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    fn id(file: &[u8]) -> Option<Vec<u8>> {
        let read = |offset: u64, out: &mut [u8]| {
            let from = usize::try_from(offset).ok()?;
            out.copy_from_slice(file.get(from..from.checked_add(out.len())?)?);
            Some(())
        };
        BuildId::of(read).map(|id| id.bytes().to_vec())
    }

    #[test]
    fn the_first_whole_one_is_found() {
        let (other, short) = (note(b"GNU\0", 1, &[9; 16]), note(b"GNU\0", 3, &[7; 20]));
        assert_eq!(id(&file(&[other.clone(), short.clone()].concat(), ET_DYN)), Some([7; 20].to_vec()));
        assert_eq!(id(&file(&note(b"GNU\0", 3, &[7; 5]), ET_EXEC)), Some([7; 5].to_vec()));
        assert_eq!(id(&file(&[note(b"GNU\0", 3, &[]), short.clone()].concat(), ET_DYN)), Some([7; 20].to_vec()));
        for notes in [note(b"GNU\0", 3, &[7; 21]), note(b"GNV\0", 3, &[7; 20]), note(b"GNU", 3, &[7; 20]), other] {
            assert_eq!(id(&file(&notes, ET_DYN)), None);
        }
        assert_eq!(id(&file(&short, 1)), None, "a relocatable file");
        let whole = file(&short, ET_DYN);
        for len in 0..whole.len() {
            assert_eq!(id(&whole[..len]), None, "cut at {len}");
        }
    }

    #[test]
    fn sizes_that_wrap_end_the_search() {
        for (at, size) in [(0, u32::MAX), (4, u32::MAX), (0, u32::MAX - 3), (4, 0x8000_0000)] {
            let mut notes = note(b"GNU\0", 1, &[9; 16]);
            notes[at..at + 4].copy_from_slice(&size.to_le_bytes());
            notes.extend(note(b"GNU\0", 3, &[7; 20]));
            let _ = id(&file(&notes, ET_DYN));
        }
    }
}
