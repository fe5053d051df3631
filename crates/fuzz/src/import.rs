//! Snapshots as files: a file gives an address space that is in order and comes back from a file of its own, or a reason and nothing else.

use std::cell::RefCell;
use std::io::{Read, Write};

use foldspace::AddressSpace;
use foldspace::space::Snapshot;
use foldspace_hosted::export::{
    ExportError, Mark, difference_to_bytes, import as import_all, import_difference, to_bytes,
};
use foldspace_hosted::{Guest, Host, Permissions};

const AT: u64 = 0x10_0000;
const PAGE: u64 = 4096;
/// Bytes of the head, and of what follows the body.
const HEAD: usize = 32;
const END: usize = 4;

/// A machine, and what differences are imported onto.
struct Scene {
    /// The heads of a file with everything and of a difference: what they say of themselves is right.
    heads: [[u8; HEAD]; 2],
    base: Snapshot,
    mark: Mark,
    _guest: Guest,
    host: Host,
}

thread_local! {
    static SCENE: RefCell<Option<Scene>> = const { RefCell::new(None) };
}

/// The first byte says how the rest is to be read: 0 and 1: a file as it is, with everything and a difference; 2 and 3: the body of one, to be compressed and
/// signed as it should be.
pub(crate) fn import(bytes: &[u8]) {
    let Some((how, rest)) = bytes.split_first() else { return };
    SCENE.with_borrow_mut(|scene| {
        let scene = scene.get_or_insert_with(Scene::new);
        let difference = how & 1 == 1;
        let file = if how & 2 == 0 { rest.to_vec() } else { scene.signed(rest, usize::from(difference)) };
        scene.import(&file, difference);
    });
}

impl Scene {
    fn new() -> Scene {
        let host = Host::new(8 << 20).expect("an arena");
        let guest = host.guest().expect("a guest");
        guest.map(AT, 64 * PAGE, Permissions::READ_WRITE).expect("an area");
        guest.write(AT + 3 * PAGE, b"base");
        let base = guest.snapshot().expect("a snapshot");
        let (all, mark) = to_bytes(&base).expect("a file");
        guest.write(AT + 4 * PAGE, b"more");
        let more = guest.snapshot().expect("a snapshot");
        let (difference, _) = difference_to_bytes(&base, mark, &more).expect("a file");
        let head = |file: &[u8]| file[..HEAD].try_into().expect("a head");
        Scene { heads: [head(&all), head(&difference)], base, mark, _guest: guest, host }
    }

    fn signed(&self, body: &[u8], kind: usize) -> Vec<u8> {
        let mut file = self.heads[kind][..HEAD - 8].to_vec();
        file.extend((body.len() as u64).to_le_bytes());
        let mut encoder = lz4_flex::frame::FrameEncoder::new(file);
        encoder.write_all(body).expect("into memory");
        let mut file = encoder.finish().expect("into memory");
        let checksum = crc32fast::hash(&file);
        file.extend(checksum.to_le_bytes());
        file
    }

    fn import(&self, file: &[u8], difference: bool) {
        let memory = self.host.memory();
        memory.reclaim();
        let before = memory.stats();
        let read =
            if difference { import_difference(&self.base, self.mark, file) } else { import_all(&self.host, file) };
        let spaces: Vec<&AddressSpace> =
            [self._guest.space().as_ref()].into_iter().chain(read.iter().map(|(space, _)| space.as_ref())).collect();
        memory.check(&spaces, &[]).expect("in order");
        if let Ok((space, _)) = read {
            self.comes_back(&space);
        }
        memory.reclaim();
        let after = memory.stats();
        assert_eq!((after.data, after.tables), (before.data, before.tables), "frames were left behind");
    }

    /// What was read is written, read, and written alike.
    fn comes_back(&self, space: &AddressSpace) {
        // There may be no memory for it, or areas that are sealed.
        let Ok(snapshot) = space.snapshot() else { return };
        let (file, mark) = match to_bytes(&snapshot) {
            Ok(file) => file,
            Err(error) => panic!("it cannot be written: {error}"),
        };
        match import_all(&self.host, &file) {
            Ok((again, same)) => {
                assert_eq!(same, mark);
                let (second, _) = to_bytes(&again.snapshot().expect("a snapshot")).expect("a file");
                assert_eq!(body(&second), body(&file), "another file");
            }
            Err(ExportError::Refused(_) | ExportError::Damaged(_)) => {}
            Err(error) => panic!("what was written is refused: {error}"),
        }
    }
}

fn body(file: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut decoder = lz4_flex::frame::FrameDecoder::new(&file[HEAD..file.len() - END]);
    decoder.read_to_end(&mut body).expect("what was compressed");
    body
}
