//! Writes the seeds of the corpus: `cargo run -p foldspace-fuzz --example seeds fuzz/corpus`. What fuzzing finds is added beside them.

use std::path::Path;
use std::{env, fs, io};

use foldspace::vma::{Name, VmaFlags};
use foldspace::{PageRange, VirtAddr};
use foldspace_hosted::export::{difference_to_bytes, to_bytes};
use foldspace_hosted::{Host, Permissions};

const PAGE: u64 = 4096;
const AT: u64 = 0x10_0000;

fn main() -> io::Result<()> {
    let out = env::args().nth(1).expect("where to: fuzz/corpus");
    for (target, seeds) in
        [("elf", programs()), ("cpio", archives()), ("strace", logs()), ("import", files()), ("operations", lives())]
    {
        let directory = Path::new(&out).join(target);
        fs::create_dir_all(&directory)?;
        for (name, bytes) in seeds {
            fs::write(directory.join(name), bytes)?;
        }
    }
    Ok(())
}

type Seeds = Vec<(&'static str, Vec<u8>)>;

/// Type, flags, offset, address, bytes in the file, bytes in memory.
type Segment = (u32, u32, u64, u64, u64, u64);

fn program(kind: u16, segments: &[Segment], rest: &[u8]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [kind, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [segments.first().map_or(0, |first| first.3 + 0x100), 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64, 56, segments.len() as u16, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    for &(kind, flags, offset, address, in_file, in_memory) in segments {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for word in [offset, address, address, in_file, in_memory, PAGE] {
            file.extend(word.to_le_bytes());
        }
    }
    file.extend(rest);
    file
}

fn programs() -> Seeds {
    const LOAD: u32 = 1;
    const INTERPRETER: u32 = 3;
    const STACK: u32 = 0x6474_e551;
    let fixed =
        [(LOAD, 5, 0, 0x40_0000, 0x200, 0x200), (LOAD, 6, 0x100, 0x40_1100, 0x80, 0x5000), (STACK, 6, 0, 0, 0, 0)];
    let free = [(LOAD, 5, 0, 0, 0x180, 0x180), (LOAD, 6, 0x180, 0x1180, 0x40, 0x40)];
    let name = b"/lib/ld.so\0";
    let at = 64 + 2 * 56;
    let dynamic = [(LOAD, 7, 0, 0, 0x100, 0x2000), (INTERPRETER, 4, at, at, name.len() as u64, name.len() as u64)];
    vec![
        ("fixed", program(2, &fixed, &[0x90; 0x100])),
        ("free", program(3, &free, &[0x90; 0x100])),
        ("dynamic", program(3, &dynamic, name)),
    ]
}

fn entry(name: &str, mode: u32, inode: u32, links: u32, content: &[u8]) -> Vec<u8> {
    let fields = [inode, mode, 0, 0, links, 1, content.len() as u32, 8, 1, 0, 0, name.len() as u32 + 1, 0];
    let mut entry = b"070701".to_vec();
    for field in fields {
        entry.extend(format!("{field:08x}").bytes());
    }
    entry.extend(name.bytes());
    entry.push(0);
    entry.resize(entry.len().next_multiple_of(4), 0);
    entry.extend(content);
    entry.resize(entry.len().next_multiple_of(4), 0);
    entry
}

fn archives() -> Seeds {
    let trailer = entry("TRAILER!!!", 0, 0, 1, b"");
    let tree = [
        entry(".", 0o40755, 1, 2, b""),
        entry("bin", 0o40755, 2, 2, b""),
        entry("bin/a", 0o100755, 3, 2, b""),
        entry("bin/b", 0o100755, 3, 2, b"content"),
        entry("bin/c", 0o120777, 4, 1, b"b"),
        entry("dev/null", 0o20666, 5, 1, b""),
    ];
    // The old binary format: numbers of 16 bits.
    let old: [u16; 13] = [0o070707, 1, 2, 0o100644, 0, 0, 1, 0, 0, 1, 4, 0, 3];
    let mut old: Vec<u8> = old.iter().flat_map(|half| half.to_le_bytes()).collect();
    old.extend(b"abc\0xyz\0");
    let portable = b"070707000001000002100644000000000000000001000000000000000010000040000000000003abc\0xyz".to_vec();
    vec![
        ("tree", [tree.concat(), trailer.clone()].concat()),
        ("cut", tree.concat()),
        ("empty", trailer),
        ("old", old),
        ("portable", portable),
    ]
}

fn logs() -> Seeds {
    let small = include_str!("../../replay/tests/small.trace");
    let lines: Vec<&str> = small.lines().collect();
    let part =
        |from: usize, len: usize| lines.iter().skip(from).take(len).fold(String::new(), |all, line| all + line + "\n");
    let moves = "1 mmap(NULL, 16384, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x100000\n\
        1 mremap(0x100000, 16384, 32768, MREMAP_MAYMOVE) = 0x200000\n1 fork() = 2\n2 munmap(0x200000, 4096) = 0\n\
        [pid 2] 12:00:01.5 mprotect(0x201000, 1<<12, PROT_READ) = 0 <0.1>\n2 +++ exited with 0 +++\n";
    let halves = "1 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>\n2 brk(NULL) = 0x1000\n\
        1 <... clone resumed>, child_tidptr=0x1) = 2\n2 execve(\"/bin/a\", [\"a\"], 0x1 /* 3 vars */) = 0\n\
        2 madvise(0x1000, 4096, MADV_DONTNEED) = -1 EINVAL (Invalid argument)\n";
    vec![
        ("begin", part(0, 30).into_bytes()),
        ("middle", part(30, 30).into_bytes()),
        ("moves", moves.into()),
        ("halves", halves.into()),
    ]
}

/// Files as they are (first byte 0, 1), and their bodies (2, 3).
fn files() -> Seeds {
    let host = Host::new(16 << 20).expect("an arena");
    let guest = host.guest().expect("a guest");
    guest.map(AT, 64 * PAGE, Permissions::READ_WRITE).expect("an area");
    guest.write(AT + 3 * PAGE, b"base");
    let base = guest.snapshot().expect("a snapshot");
    let (_, mark) = to_bytes(&base).expect("a file");
    let range =
        |first: u64, pages: u64| PageRange::from_len(VirtAddr(AT + first * PAGE), pages * PAGE).expect("a range");
    let space = guest.space();
    guest.write(AT + 4 * PAGE, b"more");
    space.set_name(range(10, 2), Name::new(b"named")).expect("a name");
    space.guard_install(range(20, 3)).expect("guards");
    space.protect(range(2, 4), VmaFlags::READ).expect("read only");
    space.unmap(range(40, 5)).expect("a hole");
    let later = guest.snapshot().expect("a snapshot");
    let (all, _) = to_bytes(&later).expect("a file");
    let (difference, _) = difference_to_bytes(&base, mark, &later).expect("a file");
    let with = |how: u8, bytes: &[u8]| [&[how], bytes].concat();
    vec![
        ("all", with(0, &all)),
        ("difference", with(1, &difference)),
        ("body", with(2, &body(&all))),
        ("body-difference", with(3, &body(&difference))),
    ]
}

fn body(file: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut decoder = lz4_flex::frame::FrameDecoder::new(&file[32..file.len() - 4]);
    io::Read::read_to_end(&mut decoder, &mut body).expect("what was compressed");
    body
}

fn lives() -> Seeds {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut life = |first: u8, operations: usize| {
        let mut bytes = vec![first];
        for _ in 0..operations * 16 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push((state >> 32) as u8);
        }
        bytes
    };
    vec![
        ("plain", life(0, 40)),
        ("files", life(1, 40)),
        ("starved", life(2, 12)),
        ("starved-files", life(3, 12)),
        ("short", life(0, 3)),
    ]
}
