//! Loads a static program.

use std::error::Error;

use elf::ElfBytes;
use elf::abi::{PF_W, PF_X, PT_LOAD};
use elf::endian::LittleEndian;
use foldspace::addr::PAGE_SIZE;
use foldspace_hosted::{Guest, Permissions};

/// Maps what the program's headers say and copies it in; where it begins.
pub fn load(guest: &Guest, program: &[u8]) -> Result<u64, Box<dyn Error>> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(program)?;
    for segment in file.segments().ok_or("no segments")?.iter().filter(|segment| segment.p_type == PT_LOAD) {
        let start = segment.p_vaddr / PAGE_SIZE * PAGE_SIZE;
        let end = (segment.p_vaddr + segment.p_memsz).next_multiple_of(PAGE_SIZE);
        let permissions = match (segment.p_flags & PF_W != 0, segment.p_flags & PF_X != 0) {
            (true, true) => Permissions::ALL,
            (true, false) => Permissions::READ_WRITE,
            (false, true) => Permissions::READ_EXECUTE,
            (false, false) => Permissions::READ,
        };
        guest.map(start, end - start, permissions)?;
        let bytes = file.segment_data(&segment)?;
        if guest.load_image(segment.p_vaddr, bytes) != bytes.len() {
            return Err("the program does not fit".into());
        }
    }
    Ok(file.ehdr.e_entry)
}
