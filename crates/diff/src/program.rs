//! A sequence as a C program, which shows on any Linux what it does there.

use core::fmt::Write;

use crate::op::{Call, NAMES, Op};
use crate::window::FIRST_FD;

/// Before the operations.
const HEAD: &str = include_str!("sequence.c");

/// The program for `ops`; `comments` are put behind the operations of their numbers.
pub fn c_program(ops: &[Op], comments: &[(usize, String)]) -> String {
    use crate::window::{BASE, END};
    let mut text = HEAD.replace("WINDOW_BASE", &format!("{BASE:#x}")).replace("WINDOW_END", &format!("{END:#x}"));
    for (number, op) in ops.iter().enumerate() {
        let who = op.process;
        let _ = match op.call {
            Call::Fork { child } => writeln!(
                text,
                "  while (*turn < {number}) sched_yield();\n  if (me == {who}) {{\n    puts(\"{number}, process {who}: fork: process {child}\");\n    \
                 fflush(stdout);\n    int made = fork();\n    if (made == 0) {{\n      me = {child};\n    }} else {{\n      pids[{child}] = made;\n      show(0);\n      *turn = {number} + 1;\n    }}\n  }}"
            ),
            Call::Exit => writeln!(
                text,
                "  while (*turn < {number}) sched_yield();\n  if (me == {who}) {{\n    puts(\"{number}, process {who}: exit\");\n    \
                 fflush(stdout);\n    *turn = {number} + 1;\n    _exit(0);\n  }} else {{\n    usleep(20000);  // until it is gone\n  }}"
            ),
            call => {
                let call = c_call(&call);
                let shown = call.replace('\\', "\\\\").replace('"', "'");
                writeln!(text, "  STEP({number}, {who}, \"{shown}\", {call})")
            }
        };
        for (_, comment) in comments.iter().filter(|(at, _)| *at == number) {
            for line in comment.lines() {
                let _ = writeln!(text, "  // {line}");
            }
        }
    }
    let _ = writeln!(text, "  while (*turn < {}) sched_yield();\n  return 0;\n}}", ops.len());
    text
}

/// A call as a C expression.
pub fn c_call(call: &Call) -> String {
    let fd = |file: u8| FIRST_FD + file as i32;
    match *call {
        Call::Map { addr, len, prot, flags, fd, offset } => {
            format!("syscall(SYS_mmap, {addr:#x}ul, {len:#x}ul, {prot:#x}, {}, {fd}, {offset:#x}ul)", map_flags(flags))
        }
        Call::Unmap { addr, len } => format!("syscall(SYS_munmap, {addr:#x}ul, {len:#x}ul)"),
        Call::Protect { addr, len, prot } => format!("syscall(SYS_mprotect, {addr:#x}ul, {len:#x}ul, {prot:#x})"),
        Call::Remap { addr, old_len, new_len, flags, target } => {
            format!("syscall(SYS_mremap, {addr:#x}ul, {old_len:#x}ul, {new_len:#x}ul, {flags}, {target:#x}ul)")
        }
        Call::Advise { addr, len, advice } => {
            format!("syscall(SYS_madvise, {addr:#x}ul, {len:#x}ul, {})", advice_name(advice))
        }
        Call::Lock { addr, len } => format!("syscall(SYS_mlock, {addr:#x}ul, {len:#x}ul)"),
        Call::Lock2 { addr, len, flags } => format!("syscall(SYS_mlock2, {addr:#x}ul, {len:#x}ul, {flags})"),
        Call::Unlock { addr, len } => format!("syscall(SYS_munlock, {addr:#x}ul, {len:#x}ul)"),
        Call::LockAll { flags } => format!("syscall(SYS_mlockall, {flags})"),
        Call::UnlockAll => "syscall(SYS_munlockall)".to_owned(),
        Call::Sync { addr, len, flags } => format!("syscall(SYS_msync, {addr:#x}ul, {len:#x}ul, {flags})"),
        Call::InCore { addr, len } => {
            format!("syscall(SYS_mincore, {addr:#x}ul, {len:#x}ul, (unsigned char[4096]){{0}})")
        }
        Call::Name { addr, len, name } => {
            let name = match NAMES.get(name as usize) {
                None => "8ul".to_owned(),
                Some(None) => "0ul".to_owned(),
                Some(Some(name)) => format!("\"{}\"", String::from_utf8_lossy(&name[..name.len() - 1])),
            };
            format!("syscall(SYS_prctl, 0x53564d41, 0, {addr:#x}ul, {len:#x}ul, {name})")
        }
        Call::Seal { addr, len, flags } => format!("syscall(462 /* mseal */, {addr:#x}ul, {len:#x}ul, {flags}ul)"),
        Call::RemapPages { addr, len, prot, page, flags } => {
            format!("syscall(SYS_remap_file_pages, {addr:#x}ul, {len:#x}ul, {prot}ul, {page}ul, {flags:#x})")
        }
        Call::Create { file, flags, read_only } => {
            format!("create({}, \"f{file}\", {flags:#x}, {})", fd(file), read_only as u8)
        }
        Call::Close { file } => format!("close({})", fd(file)),
        Call::Truncate { file, len } => format!("ftruncate({}, {len})", fd(file)),
        Call::Allocate { file, mode, offset, len } => {
            format!("fallocate({}, {mode:#x}, {offset:#x}, {len:#x})", fd(file))
        }
        Call::AddSeals { file, seals } => format!("fcntl({}, F_ADD_SEALS, {seals:#x})", fd(file)),
        Call::WriteFile { file, offset, value } => format!("write_file({}, {offset:#x}, {value:#x}ul)", fd(file)),
        Call::ReadFile { file, offset } => format!("read_file({}, {offset:#x})", fd(file)),
        Call::Limit { resource, more } => {
            format!("limit({resource}, {more:#x}ul)")
        }
        Call::SetHeap { addr } => format!("set_heap({addr:#x}ul)"),
        Call::Break { addr } => format!("syscall(SYS_brk, {addr:#x}ul)"),
        Call::AdviseOther { other, ranges: [(a, a_len), (b, b_len)], advice, flags } => {
            let advice = advice_name(advice);
            format!("advise_other({other}, {a:#x}ul, {a_len:#x}ul, {b:#x}ul, {b_len:#x}ul, {advice}, {flags})")
        }
        Call::Copy { other, addr, there, len, write } => {
            let call = if write { "SYS_process_vm_writev" } else { "SYS_process_vm_readv" };
            format!("copy({call}, {other}, {addr:#x}ul, {there:#x}ul, {len:#x}ul)")
        }
        Call::Store { addr, value, pages } => format!("store({addr:#x}ul, {value:#x}ul, {pages})"),
        Call::Load { addr, pages } => format!("load({addr:#x}ul, {pages})"),
        Call::Fork { child } => format!("0 /* fork: process {child} */"),
        Call::Exit => "0 /* exit */".to_owned(),
        Call::Look => "0 /* look */".to_owned(),
        Call::LookDeep => "load_everything()".to_owned(),
    }
}

fn map_flags(flags: u32) -> String {
    let kinds = ["0", "MAP_SHARED", "MAP_PRIVATE", "MAP_SHARED_VALIDATE"];
    let mut text = match kinds.get((flags & 0xf) as usize) {
        Some(name) => (*name).to_owned(),
        None => format!("{:#x}", flags & 0xf),
    };
    const NAMED: [(u32, &str); 14] = [
        (0x10, "MAP_FIXED"),
        (0x20, "MAP_ANONYMOUS"),
        (0x40, "MAP_32BIT"),
        (0x100, "MAP_GROWSDOWN"),
        (0x800, "MAP_DENYWRITE"),
        (0x1000, "MAP_EXECUTABLE"),
        (0x2000, "MAP_LOCKED"),
        (0x4000, "MAP_NORESERVE"),
        (0x8000, "MAP_POPULATE"),
        (0x1_0000, "MAP_NONBLOCK"),
        (0x2_0000, "MAP_STACK"),
        (0x4_0000, "MAP_HUGETLB"),
        (0x8_0000, "MAP_SYNC"),
        (0x10_0000, "MAP_FIXED_NOREPLACE"),
    ];
    for (_, name) in NAMED.iter().filter(|(bit, _)| flags & bit != 0) {
        text += " | ";
        text += name;
    }
    text
}

fn advice_name(advice: i32) -> String {
    let name = match advice {
        0 => "NORMAL",
        1 => "RANDOM",
        2 => "SEQUENTIAL",
        3 => "WILLNEED",
        4 => "DONTNEED",
        8 => "FREE",
        9 => "REMOVE",
        10 => "DONTFORK",
        11 => "DOFORK",
        12 => "MERGEABLE",
        13 => "UNMERGEABLE",
        14 => "HUGEPAGE",
        15 => "NOHUGEPAGE",
        16 => "DONTDUMP",
        17 => "DODUMP",
        18 => "WIPEONFORK",
        19 => "KEEPONFORK",
        20 => "COLD",
        21 => "PAGEOUT",
        22 => "POPULATE_READ",
        23 => "POPULATE_WRITE",
        24 => "DONTNEED_LOCKED",
        102 => "GUARD_INSTALL",
        103 => "GUARD_REMOVE",
        _ => return advice.to_string(),
    };
    format!("{advice} /* MADV_{name} */")
}
