//! PROCMAP_QUERY: random layouts, questions with edge arguments, and all that comes back.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use foldspace::{Object, VirtAddr};
use foldspace_linux as linux;

use crate::host::Call;
use crate::pair::{As, FILE_PAGES, PAGE, Pair, TASK_SIZE, WINDOW, WINDOW_LEN};
use crate::scene::{self, Random};

/// Layouts that are tried, and questions about each.
const LAYOUTS: usize = 400;
const QUESTIONS: usize = 60;

const SIZE: usize = 104;
/// Fields of the answer.
const VMA_START: usize = 24;
const INODE: usize = 64;
const NAME_SIZE: usize = 80;

/// A pair whose child has its maps file open.
struct Asked {
    pair: Pair,
    maps: u64,
    random: Random,
}

fn syscall(number: i64, arguments: [u64; 6]) -> Call {
    let [a, b, c, d, e, f] = arguments;
    [number as u64, a, b, c, d, e, f]
}

impl Asked {
    fn new(seed: u64) -> Asked {
        let mut pair = Pair::new(As::Root);
        scene::set(&mut pair);
        let maps = open(&mut pair, b"/proc/self/maps\0");
        Asked { pair, maps, random: Random(seed) }
    }

    /// Changes the scene here and there, on both sides; but not where questions and answers may lie.
    fn change_layout(&mut self) {
        scene::set(&mut self.pair);
        // Its first page is there: looking for a build id in a hole of shared memory is nothing to ask a host.
        self.pair.poke(scene::page(10), b"not an ELF file");
        let random = &mut self.random;
        for _ in 0..random.next() % 8 {
            let (at, pages) = (scene::page(7 + random.next() % 19), PAGE * (1 + random.next() % 4));
            let prot = random.next() % 8;
            let call = match random.next() % 4 {
                0 => syscall(libc::SYS_munmap, [at, pages, 0, 0, 0, 0]),
                1 => syscall(libc::SYS_mmap, [at, pages, prot, 0x32, u64::MAX, 0]),
                2 => syscall(libc::SYS_mmap, [at, pages, prot, 0x12, self.pair.files.all as u64, PAGE]),
                _ => syscall(libc::SYS_mprotect, [at, pages, prot, 0, 0, 0]),
            };
            let (there, here) = self.pair.call(call).expect("it lives");
            assert_eq!(there, here, "{}", scene::show(call));
        }
        let (there, here) = self.pair.windows();
        assert_eq!(there, here);
    }

    /// Puts the structure and its buffers where they go, at any rate in the pages that can be written.
    fn question(&mut self) -> (u64, [u8; SIZE + 24]) {
        let random = &mut self.random;
        let mut bytes = [0; SIZE + 24];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let size = match random.next() % 4 {
            0..3 => SIZE as u64,
            _ => {
                random.pick(&[0, 8, 23, 24, 25, 40, 80, 84, 88, 96, 103, 105, 112, 128, 4096, 4097, 1 << 32, u64::MAX])
            }
        };
        put(0, &size.to_ne_bytes());
        let unknown = if random.once_in(20) { random.pick(&[0x40, 0x80, 1 << 32, 1 << 63]) } else { 0 };
        put(8, &((random.next() & (random.next() % 0x40)) | unknown).to_ne_bytes());
        put(16, &scene::address(random).to_ne_bytes());
        let buffers = [
            scene::page(1),
            scene::page(1) + 7,
            scene::page(2),
            scene::page(4) - 10,
            scene::page(4),
            scene::page(6),
            8,
            TASK_SIZE - 4,
            1 << 63,
        ];
        for (size_at, address_at, sizes) in [
            (80, 88, [1, 5, 19, 20, 21, 22, 23, 100, 4096, 5000, u32::MAX]),
            (84, 96, [1, 4, 5, 8, 19, 20, 20, 20, 21, 32, u32::MAX]),
        ] {
            let (size, address) = match random.next() % 8 {
                0..2 => (0, 0),
                2 => (random.pick(&[0, 20]), random.pick(&[0, scene::page(1)])),
                3 => (random.pick(&sizes), random.pick(&buffers)),
                _ => (random.pick(&sizes), scene::page(1) + 512 * (address_at as u64 - 87)),
            };
            put(size_at, &size.to_ne_bytes());
            put(address_at, &address.to_ne_bytes());
        }
        if random.once_in(8) {
            put(SIZE + (random.next() % 24) as usize, &[1]);
        }
        let at = match random.next() % 8 {
            0 => random.pick(&[
                scene::page(0) + 3,
                scene::page(4) - 24,
                scene::page(4) - 104,
                scene::page(4) - 103,
                scene::page(4),
            ]),
            1 => random.pick(&[scene::page(6), 0, TASK_SIZE - 8, TASK_SIZE, 1 << 63, u64::MAX - 7]),
            _ => scene::page(0),
        };
        (at, bytes)
    }

    /// Asks both.
    ///
    /// # Errors
    ///
    /// What differs.
    fn ask(&mut self, at: u64, bytes: &[u8]) -> Result<Outcome, String> {
        let clean = [0xaa; PAGE as usize];
        for page in 0..4 {
            self.pair.poke(scene::page(page), &clean);
        }
        let room = scene::page(4).saturating_sub(at).min(bytes.len() as u64) as usize;
        if (scene::page(0)..scene::page(4)).contains(&at) {
            self.pair.poke(at, &bytes[..room]);
        }
        let ioctl = syscall(libc::SYS_ioctl, [self.maps, linux::PROCMAP_QUERY.into(), at, 0, 0, 0]);
        let there = self.pair.host.call(ioctl).expect("it lives");
        let hosted = &self.pair.hosted;
        let here = linux::procmap_query(hosted, at, || Ok(hosted.space.clone()))
            .map_or_else(|e| -i64::from(e.number()), |()| 0);
        let (mut theirs, mut ours) = (self.memory(Side::Host), self.memory(Side::Hosted));
        // Which number a file has is not said; that it has one is. Also where only part of the answer could be written.
        let from = (at.wrapping_sub(WINDOW) as usize).wrapping_add(INODE);
        for memory in [&mut theirs, &mut ours] {
            let inode = u64::from(field(memory, at, INODE) != 0);
            if let Some(field) = memory.get_mut(from..from.wrapping_add(8))
                && number(bytes) >= (INODE + 8) as u64
            {
                field.copy_from_slice(&inode.to_ne_bytes());
            }
        }
        // What is outside the window is not the same.
        let start = |memory: &[u8]| field(memory, at, VMA_START);
        let outside = |start: u64| !(WINDOW..WINDOW + WINDOW_LEN).contains(&start);
        if there != here {
            let found = if there == 0 { start(&theirs) } else { start(&ours) };
            // A named thing there, an anonymous one here.
            let other = outside(found) && [there, here].iter().all(|result| matches!(*result, 0 | LATE | LONG | FAULT));
            return if other { Ok(Outcome::Outside) } else { Err(format!("{there} there, {here} here")) };
        }
        let partly = there == FAULT && at < scene::page(4) && start(&theirs) != 0;
        if (there == 0 || partly) && outside(start(&theirs)) {
            let both = outside(start(&ours));
            return if both { Ok(Outcome::Outside) } else { Err(format!("{:x} here", start(&ours))) };
        }
        if let Some(first) = theirs.iter().zip(&ours).position(|(theirs, ours)| theirs != ours) {
            let shown = first..(first + 8).min(theirs.len());
            let (theirs, ours) = (&theirs[shown.clone()], &ours[shown]);
            return Err(format!("byte {first:#x} of the window: {theirs:x?} there, {ours:x?} here"));
        }
        let sizes = field(&theirs, at, NAME_SIZE);
        Ok(match there {
            0 if number(bytes) < SIZE as u64 => Outcome::Plain,
            0 if sizes >> 32 > 0 => Outcome::BuildId,
            0 if sizes > 0 => Outcome::Named,
            0 => Outcome::Plain,
            error => Outcome::Error(error),
        })
    }

    /// The first four pages of the window.
    fn memory(&self, side: Side) -> Vec<u8> {
        let mut memory = vec![0; 4 * PAGE as usize];
        let len = match side {
            Side::Host => self.pair.host.peek(WINDOW, &mut memory),
            Side::Hosted => self.pair.hosted.space.read(VirtAddr(WINDOW), &mut memory),
        };
        assert_eq!(len, memory.len());
        memory
    }
}

/// How a question ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Error(i64),
    /// Something outside the window is found: it is not the same.
    Outside,
    /// A VMA.
    Plain,
    /// With its name.
    Named,
    /// With its build id.
    BuildId,
}

/// Errors that depend on what is found.
const LATE: i64 = -(libc::ENOENT as i64);
const LONG: i64 = -(libc::ENAMETOOLONG as i64);
const FAULT: i64 = -(libc::EFAULT as i64);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Host,
    Hosted,
}

/// A field of the structure at `at` in a copy of the window; all ones if it is not there.
fn field(memory: &[u8], at: u64, field: usize) -> u64 {
    let offset = at
        .checked_sub(WINDOW)
        .and_then(|offset| usize::try_from(offset).ok())
        .and_then(|offset| offset.checked_add(field));
    let bytes = offset.and_then(|from| memory.get(from..from.checked_add(8)?));
    bytes.map_or(u64::MAX, |bytes| u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
}

/// The size that a structure says it has.
fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// Opens a file in the child.
fn open(pair: &mut Pair, path: &[u8]) -> u64 {
    pair.host.poke(scene::page(0), path);
    let opened = pair.host.call(syscall(libc::SYS_openat, [libc::AT_FDCWD as u64, scene::page(0), 0, 0, 0, 0]));
    let zeros = vec![0; path.len()];
    pair.host.poke(scene::page(0), &zeros);
    opened.filter(|fd| *fd >= 0).expect("a descriptor") as u64
}

/// Writes content into the file, all pages of it, on both sides.
fn fill(pair: &Pair, content: &[u8]) {
    let mut bytes = content.to_vec();
    bytes.resize((FILE_PAGES * PAGE) as usize, 0);
    let fd: RawFd = pair.files.all;
    // SAFETY: reads `bytes`.
    let written = unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), 0) };
    assert_eq!(written, bytes.len() as isize);
    let hosted = pair.hosted.files.iter().find(|(number, _)| *number == fd).expect("it has the file");
    let linux::Content::Object(object) = &hosted.1.content else { panic!("no content") };
    let object: &Arc<Object> = object;
    assert_eq!(object.write_at(0, &bytes), Ok(bytes.len()));
}

/// A file that is nearly one with a build id.
fn elf(random: &mut Random) -> Vec<u8> {
    let (class, header, segment) = random.pick(&[(1u8, 52, 32), (2, 64, 56), (2, 64, 56)]);
    let wide = class == 2;
    let mut file = vec![0; 1024];
    let put = |file: &mut Vec<u8>, at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(&mut file, 0, b"\x7fELF");
    file[4] = class;
    put(&mut file, 16, &random.pick(&[2u16, 3, 3, 1]).to_le_bytes());
    let notes = 512u64;
    let at = |narrow: usize, broad: usize| if wide { broad } else { narrow };
    let word = |number: u64| if wide { number.to_le_bytes().to_vec() } else { (number as u32).to_le_bytes().to_vec() };
    put(&mut file, at(28, 32), &word(header as u64));
    put(&mut file, at(44, 56), &random.pick(&[1u16, 2, 3, 300]).to_le_bytes());
    // The second segment has the notes, or the third.
    for number in 0..3 {
        let base = header + number * segment;
        put(&mut file, base, &random.pick(&[4u32, 4, 1]).to_le_bytes());
        let start = notes + 128 * number as u64;
        put(&mut file, base + at(4, 8), &word(random.pick(&[start, start, start, u64::MAX - 16])));
        put(&mut file, base + at(16, 32), &word(random.pick(&[36, 128, 128, 20, 17, 16, 1 << 32])));
        let mut note = start as usize;
        for _ in 0..2 {
            let len = random.pick(&[20u32, 20, 16, 1, 0, 21, 7]);
            put(&mut file, note, &random.pick(&[4u32, 4, 4, 3, 5]).to_le_bytes());
            put(&mut file, note + 4, &len.to_le_bytes());
            put(&mut file, note + 8, &random.pick(&[3u32, 3, 1]).to_le_bytes());
            put(&mut file, note + 12, random.pick(&[b"GNU\0", b"GNU\0", b"Go\0\0"]));
            put(&mut file, note + 16, &[random.next() as u8 | 1; 21]);
            note += 16 + len.next_multiple_of(4) as usize;
        }
    }
    if random.once_in(4) {
        let at = (random.next() % 700) as usize;
        file[at] = random.next() as u8;
    }
    file
}

#[test]
fn questions_about_vmas() {
    let mut asked = Asked::new(21);
    let (mut results, mut differences) = (BTreeMap::new(), Vec::new());
    for _ in 0..LAYOUTS {
        let content = if asked.random.once_in(4) { b"nothing".to_vec() } else { elf(&mut asked.random) };
        fill(&asked.pair, &content);
        asked.change_layout();
        for _ in 0..QUESTIONS {
            let (at, bytes) = asked.question();
            match asked.ask(at, &bytes) {
                Ok(result) => *results.entry(result).or_insert(0) += 1,
                Err(what) => differences.push(format!("{at:x}: {bytes:x?}: {what}")),
            }
        }
    }
    println!("{results:?}");
    let shown: Vec<&str> = differences.iter().take(10).map(String::as_str).collect();
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), shown.join("\n"));
    // Everything that can happen has happened, often.
    let errors = [libc::EFAULT, libc::E2BIG, libc::EINVAL, libc::ENOENT, libc::ENAMETOOLONG];
    let all = errors.map(|error| Outcome::Error(-i64::from(error))).into_iter();
    for outcome in all.chain([Outcome::Plain, Outcome::Named, Outcome::BuildId, Outcome::Outside]) {
        assert!(results.get(&outcome).is_some_and(|times| *times >= 30), "{outcome:?} of {results:?}");
    }
}

/// The other files about VMAs have no such request, and maps no other.
#[test]
fn only_maps_answers() {
    let mut asked = Asked::new(1);
    for (path, request) in
        [(&b"/proc/self/smaps\0"[..], linux::PROCMAP_QUERY), (b"/proc/self/smaps_rollup\0", linux::PROCMAP_QUERY)]
    {
        let fd = open(&mut asked.pair, path);
        let done = asked.pair.host.call(syscall(libc::SYS_ioctl, [fd, request.into(), scene::page(0), 0, 0, 0]));
        assert_eq!(done, Some(-i64::from(libc::ENOTTY)));
    }
    let other = asked
        .pair
        .host
        .call(syscall(libc::SYS_ioctl, [asked.maps, u64::from(linux::PROCMAP_QUERY) + 1, scene::page(0), 0, 0, 0]));
    assert_eq!(other, Some(-i64::from(libc::ENOTTY)));
}
