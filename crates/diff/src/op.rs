//! Operations: a memory call with its arguments as a program would give them, a load or a store, a call on a file, or the start or the end of a process.

/// One operation of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// Which process does it. If there is no such process the operation is passed over, on either side.
    pub process: u8,
    /// What it does.
    pub call: Call,
}

/// What an operation does. Numbers are those of Linux's ABI: whatever a program may pass, wrong values too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are the parameters of the system calls, by their names in the man pages")]
pub enum Call {
    /// mmap.
    Map { addr: u64, len: u64, prot: u32, flags: u32, fd: i32, offset: u64 },
    /// munmap.
    Unmap { addr: u64, len: u64 },
    /// mprotect.
    Protect { addr: u64, len: u64, prot: u32 },
    /// mremap.
    Remap { addr: u64, old_len: u64, new_len: u64, flags: u32, target: u64 },
    /// madvise.
    Advise { addr: u64, len: u64, advice: i32 },
    /// mlock.
    Lock { addr: u64, len: u64 },
    /// mlock2.
    Lock2 { addr: u64, len: u64, flags: u32 },
    /// munlock.
    Unlock { addr: u64, len: u64 },
    /// mlockall.
    LockAll { flags: u32 },
    /// munlockall.
    UnlockAll,
    /// msync.
    Sync { addr: u64, len: u64, flags: u32 },
    /// mincore. What it finds is in [`crate::Look::in_core`].
    InCore { addr: u64, len: u64 },
    /// prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, ...) with the name of that number: see [`name`].
    Name { addr: u64, len: u64, name: u8 },
    /// mseal.
    Seal { addr: u64, len: u64, flags: u64 },
    /// remap_file_pages.
    RemapPages { addr: u64, len: u64, prot: u32, page: u64, flags: u32 },
    /// memfd_create, put at the descriptor of file `file`; with `read_only` a second descriptor of it that cannot write.
    Create { file: u8, flags: u32, read_only: bool },
    /// close.
    Close { file: u8 },
    /// ftruncate.
    Truncate { file: u8, len: i64 },
    /// fallocate.
    Allocate { file: u8, mode: i32, offset: i64, len: i64 },
    /// fcntl(F_ADD_SEALS).
    AddSeals { file: u8, seals: u32 },
    /// pwrite of 8 bytes.
    WriteFile { file: u8, offset: i64, value: u64 },
    /// pread of 8 bytes; the result is followed by what was read.
    ReadFile { file: u8, offset: i64 },
    /// setrlimit of the soft limit: what the process has of that resource now, and so many bytes more; `u64::MAX` for no limit. Of RLIMIT_MEMLOCK it is
    /// just `more`, and the process gives up the right to lock more than that.
    Limit { resource: u32, more: u64 },
    /// prctl(PR_SET_MM, PR_SET_MM_MAP): the heap starts at `addr` and ends there, everything else is [`crate::window::ELSEWHERE`]; from there on there are
    /// as many bytes of data as the process has outside the window, since brk holds heap and data against a limit that counts those.
    SetHeap { addr: u64 },
    /// brk.
    Break { addr: u64 },
    /// process_madvise of two ranges of process `other`, which may be the caller.
    AdviseOther { other: u8, ranges: [(u64, u64); 2], advice: i32, flags: u32 },
    /// process_vm_readv, or process_vm_writev, of `len` bytes between `addr` and `there` in process `other`.
    Copy { other: u8, addr: u64, there: u64, len: u64, write: bool },
    /// Stores of 8 bytes, one in each of `pages` pages from `addr` on, until one faults.
    Store { addr: u64, value: u64, pages: u32 },
    /// Loads of 8 bytes, one in each of `pages` pages from `addr` on, until one faults.
    Load { addr: u64, pages: u32 },
    /// fork, if there is no process `child`.
    Fork { child: u8 },
    /// exit, and everything given back.
    Exit,
    /// Nothing: the step shows the process as others have left it.
    Look,
    /// Loads every byte that can be read: the step's content is of everything then, not only of what is in memory.
    LookDeep,
}

/// Kinds of operations, for counting.
pub const KINDS: [&str; 34] = [
    "mmap",
    "munmap",
    "mprotect",
    "mremap",
    "madvise",
    "mlock",
    "mlock2",
    "munlock",
    "mlockall",
    "munlockall",
    "msync",
    "mincore",
    "prctl name",
    "mseal",
    "remap_file_pages",
    "memfd_create",
    "close",
    "ftruncate",
    "fallocate",
    "add seals",
    "pwrite",
    "pread",
    "setrlimit",
    "store",
    "load",
    "fork",
    "exit",
    "look",
    "look deep",
    "brk",
    "prctl heap",
    "process_madvise",
    "process_vm_*",
    "(passed over)",
];

/// Index of operations that were passed over in [`KINDS`].
pub const PASSED_OVER: usize = 33;

impl Call {
    /// Index in [`KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Call::Map { .. } => 0,
            Call::Unmap { .. } => 1,
            Call::Protect { .. } => 2,
            Call::Remap { .. } => 3,
            Call::Advise { .. } => 4,
            Call::Lock { .. } => 5,
            Call::Lock2 { .. } => 6,
            Call::Unlock { .. } => 7,
            Call::LockAll { .. } => 8,
            Call::UnlockAll => 9,
            Call::Sync { .. } => 10,
            Call::InCore { .. } => 11,
            Call::Name { .. } => 12,
            Call::Seal { .. } => 13,
            Call::RemapPages { .. } => 14,
            Call::Create { .. } => 15,
            Call::Close { .. } => 16,
            Call::Truncate { .. } => 17,
            Call::Allocate { .. } => 18,
            Call::AddSeals { .. } => 19,
            Call::WriteFile { .. } => 20,
            Call::ReadFile { .. } => 21,
            Call::Limit { .. } => 22,
            Call::Store { .. } => 23,
            Call::Load { .. } => 24,
            Call::Fork { .. } => 25,
            Call::Exit => 26,
            Call::Look => 27,
            Call::LookDeep => 28,
            Call::Break { .. } => 29,
            Call::SetHeap { .. } => 30,
            Call::AdviseOther { .. } => 31,
            Call::Copy { .. } => 32,
        }
    }
}

/// The names that [`Call::Name`] gives, each with its NUL; `None` is the null pointer. Out of range: an unreadable pointer.
pub const NAMES: [Option<&[u8]>; 7] = [
    None,
    Some(b"heap\0"),
    Some(b"stack of 2\0"),
    Some(b"\0"),
    Some(b"bad[name\0"),
    Some(b"0123456789012345678901234567890123456789012345678901234567890123456789012345678\0"),
    Some(b"01234567890123456789012345678901234567890123456789012345678901234567890123456789\0"),
];

/// What an operation came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The result, or minus the errno. Of stores and loads: how many were done.
    pub value: i64,
    /// What was read: by pread, or by loads (a hash).
    pub read: u64,
    /// Signal that ended a store or load, and its `si_code`; 0 if none did.
    pub signal: (i32, i32),
}

/// [`Outcome::value`] of an operation whose process does not exist.
pub const NOBODY: i64 = i64::MIN;

/// [`Outcome::value`] of mmap and mremap where the mapping came to lie outside the window: it was unmapped again. Of brk where the heap is outside.
pub const OUTSIDE: i64 = i64::MIN + 1;

/// Adds `word` to a hash of words.
#[inline]
pub fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// Offsets in a page of the words that make up [`crate::Look::content`] of it; stores go to them too.
pub const SAMPLES: [u64; 4] = [0, 8, 2048, 4088];

/// `struct prctl_mm_map` with the heap at `addr`, and `data` bytes of data: eleven addresses, the end of the code (there must be some) the second, that of
/// the data the fourth, the heap's the two behind it; no auxiliary vector, no executable.
pub fn heap_at(addr: u64, data: u64) -> [u64; 13] {
    let mut map = [crate::window::ELSEWHERE; 13];
    map[1] += 1;
    map[3] += data;
    map[4..6].fill(addr);
    map[11..].copy_from_slice(&[0, u64::from(u32::MAX) << 32]);
    map
}
