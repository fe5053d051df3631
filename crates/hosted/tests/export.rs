//! Snapshots as files: what comes back, and what is refused.

use std::fs;
use std::path::PathBuf;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{MapRequest, Placement, Snapshot};
use foldspace::vma::{Backing, Name, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::export::{
    ExportError, Mark, difference_to_bytes, export, export_difference, import, import_difference, to_bytes,
};
use foldspace_hosted::{Guest, Host, Permissions};

const AT: u64 = 0x10_0000;
const PAGES: u64 = 600;

fn range(first: u64, pages: u64) -> PageRange {
    PageRange::from_len(VirtAddr(AT + first * PAGE_SIZE), pages * PAGE_SIZE).unwrap()
}

/// A guest with areas of several kinds, and pages in some of them.
fn guest(host: &Host) -> Guest {
    let guest = host.guest().unwrap();
    guest.map(AT, PAGES * PAGE_SIZE, Permissions::READ_WRITE).unwrap();
    for page in (0..PAGES).step_by(7) {
        guest.write(AT + page * PAGE_SIZE + page, &page.to_le_bytes());
    }
    let space = guest.space();
    space.set_name(range(50, 10), Name::new(b"named")).unwrap();
    space.protect(range(100, 20), VmaFlags::READ).unwrap();
    space.protect(range(200, 20), VmaFlags::empty()).unwrap();
    space.guard_install(range(300, 3)).unwrap();
    space.brk(VirtAddr(space.layout().start_brk.get() + 3 * PAGE_SIZE));
    guest
}

/// Both have the same areas, pages, guards and addresses.
fn assert_equal(a: &AddressSpace, b: &AddressSpace) {
    let text = |space: &AddressSpace| String::from_utf8(space.maps().text()).unwrap();
    assert_eq!(text(a), text(b));
    // A hint, in which VMAs that are one may differ.
    let hint = VmaFlags::WRITTEN;
    let flags = |space: &AddressSpace| space.vmas().view().iter().map(|vma| vma.flags - hint).collect::<Vec<_>>();
    assert_eq!(flags(a), flags(b));
    assert_eq!(a.layout().brk, b.layout().brk);
    for page in 0..PAGES {
        let addr = VirtAddr(AT + page * PAGE_SIZE);
        let content = |space: &AddressSpace| {
            let mut bytes = [0; PAGE_SIZE as usize];
            (space.read_private(addr, &mut bytes), bytes, space.is_guarded(addr))
        };
        assert!(content(a) == content(b), "page {page}");
    }
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn exported(snapshot: &Snapshot, files: &Files) -> (Vec<u8>, Mark) {
    let mark = export(snapshot, &files.path("all")).unwrap();
    (fs::read(files.path("all")).unwrap(), mark)
}

#[test]
fn a_snapshot_and_a_difference_come_back_on_another_machine() {
    let (host, files) = (Host::new(32 << 20).unwrap(), Files::new());
    let guest = guest(&host);
    let base = guest.snapshot().unwrap();
    let (all, mark) = exported(&base, &files);
    assert!(all.len() < 100_000, "{} bytes: zeros are compressed", all.len());

    let space = guest.space();
    guest.write(AT + 3 * PAGE_SIZE, b"changed");
    space.unmap(range(400, 50)).unwrap();
    space.protect(range(0, 20), VmaFlags::READ).unwrap();
    space.guard_remove(range(301, 1)).unwrap();
    guest.write(AT + 301 * PAGE_SIZE, b"no guard");
    space.discard(range(500, 30)).unwrap();
    let later = guest.snapshot().unwrap();
    let second = export_difference(&base, mark, &later, &files.path("difference")).unwrap();
    let difference = fs::read(files.path("difference")).unwrap();
    assert!(difference.len() < all.len(), "{} bytes, all are {}", difference.len(), all.len());

    let other = Host::new(32 << 20).unwrap();
    let (here, here_mark) = import(&other, &all).unwrap();
    assert_eq!(here_mark, mark);
    assert_equal(&here, base.space());
    let here_base = here.snapshot().unwrap();
    let (now, now_mark) = import_difference(&here_base, here_mark, &difference).unwrap();
    assert_eq!(now_mark, second);
    assert_equal(&now, later.space());
    assert_equal(&here, base.space());
    other.memory().check(&[&here, &now], &[]).unwrap();

    // Not onto another base, and not by itself.
    assert!(matches!(import_difference(&here_base, now_mark, &difference), Err(ExportError::OtherBase)));
    assert!(matches!(import(&other, &difference), Err(ExportError::OtherBase)));
    assert!(matches!(import_difference(&here_base, here_mark, &all), Err(ExportError::OtherBase)));
    let stranger = host.guest().unwrap().snapshot().unwrap();
    let refused = export_difference(&base, mark, &stranger, &files.path("never"));
    assert!(matches!(refused, Err(ExportError::NotRelated)) && !files.path("never").exists());
}

#[test]
fn a_difference_holds_the_pages_that_differ_and_no_others() {
    let host = Host::new(32 << 20).unwrap();
    let guest = host.guest().unwrap();
    guest.map(AT, PAGES * PAGE_SIZE, Permissions::READ_WRITE).unwrap();
    let mut noise = 1_u32;
    for page in 0..PAGES {
        let mut content = [0; PAGE_SIZE as usize];
        for byte in &mut content {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (noise >> 24) as u8;
        }
        guest.write(AT + page * PAGE_SIZE, &content);
    }
    let base = guest.snapshot().unwrap();
    let (all, mark) = to_bytes(&base).unwrap();
    // The area becomes three: all of its pages are mapped anew, two differ, one is a guard, one is gone.
    guest.space().set_name(range(100, 50), Name::new(b"named")).unwrap();
    guest.write(AT + 7 * PAGE_SIZE, b"differs");
    guest.write(AT + 120 * PAGE_SIZE, b"differs");
    guest.space().guard_install(range(200, 1)).unwrap();
    guest.space().discard(range(300, 1)).unwrap();
    let later = guest.snapshot().unwrap();
    let (difference, _) = difference_to_bytes(&base, mark, &later).unwrap();
    let two = 2 * PAGE_SIZE as usize;
    assert!((two..two + 1000).contains(&difference.len()), "{} bytes of {}", difference.len(), all.len());

    let other = Host::new(32 << 20).unwrap();
    let (here, here_mark) = import(&other, &all).unwrap();
    let (now, _) = import_difference(&here.snapshot().unwrap(), here_mark, &difference).unwrap();
    assert_equal(&now, later.space());
    other.memory().check(&[&here, &now], &[]).unwrap();
}

#[test]
fn what_is_not_anonymous_is_refused_and_nothing_is_written() {
    let (host, files) = (Host::new(16 << 20).unwrap(), Files::new());
    let guest = guest(&host);
    let backing = Backing::Object(Object::anonymous(host.memory(), PAGE_SIZE).unwrap());
    let placement = Placement::Fixed(VirtAddr(AT - PAGE_SIZE));
    let flags = VmaFlags::READ | VmaFlags::MAY_READ;
    guest.space().map(MapRequest { placement, len: PAGE_SIZE, flags, backing, page_offset: 0 }).unwrap();
    let outcome = export(&guest.snapshot().unwrap(), &files.path("all"));
    assert!(matches!(outcome, Err(ExportError::NotAnonymous(at)) if at.get() == AT - PAGE_SIZE));
    assert_eq!(fs::read_dir(files.0.path()).unwrap().count(), 0);
}

#[test]
fn a_damaged_file_is_refused_wherever_it_is_damaged() {
    let (host, files) = (Host::new(16 << 20).unwrap(), Files::new());
    let guest = host.guest().unwrap();
    guest.map(AT, 8 * PAGE_SIZE, Permissions::READ_WRITE).unwrap();
    guest.write(AT, b"content");
    let (all, _) = exported(&guest.snapshot().unwrap(), &files);
    host.memory().reclaim();
    let before = host.memory().stats();
    for len in 0..all.len() {
        assert!(import(&host, &all[..len]).is_err(), "the first {len} bytes");
    }
    for at in 0..all.len() {
        for bit in [0, 7] {
            let mut damaged = all.clone();
            damaged[at] ^= 1 << bit;
            assert!(import(&host, &damaged).is_err(), "bit {bit} of byte {at}");
        }
    }
    host.memory().reclaim();
    let after = host.memory().stats();
    assert_eq!((after.data, after.tables), (before.data, before.tables), "nothing is left behind");
}

/// The body of a fuzz target: whatever the bytes are, there is an answer, and the machine is in order.
fn any_bytes(host: &Host, bytes: &[u8]) -> bool {
    let read = import(host, bytes);
    let spaces: Vec<_> = read.iter().map(|(space, _)| &**space).collect();
    host.memory().check(&spaces, &[]).unwrap();
    read.is_ok()
}

/// Bodies that are compressed and signed as they should be, and say anything.
#[test]
fn nonsense_with_a_right_checksum_does_no_harm() {
    let (host, files) = (Host::new(8 << 20).unwrap(), Files::new());
    let guest = host.guest().unwrap();
    guest.map(AT, 4 * PAGE_SIZE, Permissions::READ_WRITE).unwrap();
    guest.write(AT, b"content");
    guest.space().guard_install(range(2, 1)).unwrap();
    let (all, _) = exported(&guest.snapshot().unwrap(), &files);
    drop(guest);
    let mut body = Vec::new();
    let decoder = &mut lz4_flex::frame::FrameDecoder::new(&all[32..all.len() - 4]);
    std::io::Read::read_to_end(decoder, &mut body).unwrap();
    let signed = |body: &[u8]| {
        let mut file = all[..24].to_vec();
        file.extend((body.len() as u64).to_le_bytes());
        let mut encoder = lz4_flex::frame::FrameEncoder::new(file);
        std::io::Write::write_all(&mut encoder, body).unwrap();
        let mut file = encoder.finish().unwrap();
        let checksum = crc32fast::hash(&file);
        file.extend(checksum.to_le_bytes());
        file
    };
    assert!(any_bytes(&host, &signed(&body)), "what is not changed is read");
    // A small generator, the same each time.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let rounds = std::env::var("FOLDSPACE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1500);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..rounds {
        let mut body = body.clone();
        for _ in 0..=next(3) {
            // Numbers are where harm could be done, and they come first.
            let words = (body.len() as u64 / 8).min(40);
            let at = next(words) as usize * 8;
            let value = match next(6) {
                0 => next(1 << 48) & !0xfff,
                1 => AT + next(8) * PAGE_SIZE,
                2 => 1 << next(64),
                3 => u64::MAX - next(3),
                4 => next(8),
                _ => u64::from_le_bytes(body[at..at + 8].try_into().unwrap()) ^ 1 << next(40),
            };
            body[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        if next(10) == 0 {
            body.truncate(next(body.len() as u64) as usize);
        }
        if any_bytes(&host, &signed(&body)) { read += 1 } else { refused += 1 }
    }
    println!("{read} read, {refused} refused");
    assert!(read > 0 && refused > 0);
}
