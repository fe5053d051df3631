//! What is mapped in the window before each call, and the arguments that are worth trying there.

use crate::host::Call;
use crate::pair::{PAGE, Pair, TASK_SIZE, WINDOW, WINDOW_LEN};

/// Numbers that are the same in every run.
pub struct Random(pub u64);

impl Random {
    /// The next one (xorshift64*).
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// One of several.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize].clone()
    }

    /// Whether something that happens once in `n` times happens.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

/// The address of a page of the window.
pub const fn page(number: u64) -> u64 {
    WINDOW + number * PAGE
}

const PRIVATE: u64 = 0x02;
const SHARED: u64 = 0x01;
const ANONYMOUS: u64 = 0x20;
const FIXED: u64 = 0x10;

/// Where something changes in the scene.
const EDGES: [u64; 16] = [0, 4, 6, 7, 8, 10, 14, 16, 18, 20, 21, 23, 24, 400, 402, 1024];

/// Empties the window and maps the scene.
///
/// ```text
///   page  0   rw anonymous            10  shared anonymous                 21  read only, kernel: locked later
///         4   r- anonymous            14  private file                     23  hole
///         6   hole                    16  shared file                      400 grows down (2 pages)
///         7   no access               18  shared file, open for reading
///         8   x  anonymous            20  private file, past its end
/// ```
pub fn set(pair: &mut Pair) {
    pair.must([libc::SYS_munmap as u64, WINDOW, WINDOW_LEN, 0, 0, 0, 0]);
    let (all, read_only) = (pair.files.all as u64, pair.files.read_only as u64);
    let anonymous = u64::MAX;
    let areas = [
        (0, 4, 3, PRIVATE | ANONYMOUS, anonymous, 0),
        (4, 2, 1, PRIVATE | ANONYMOUS, anonymous, 0),
        (7, 1, 0, PRIVATE | ANONYMOUS, anonymous, 0),
        (8, 2, 5, PRIVATE | ANONYMOUS, anonymous, 0),
        (10, 4, 3, SHARED | ANONYMOUS, anonymous, 0),
        (14, 2, 3, PRIVATE, all, 0),
        (16, 2, 3, SHARED, all, 1),
        (18, 2, 1, SHARED, read_only, 1),
        (20, 1, 3, PRIVATE, all, 9),
        (21, 2, 1, PRIVATE | ANONYMOUS, anonymous, 0),
        (400, 2, 3, PRIVATE | ANONYMOUS | 0x100, anonymous, 0),
    ];
    for (at, pages, prot, flags, fd, offset) in areas {
        let call = [libc::SYS_mmap as u64, page(at), pages * PAGE, prot, flags | FIXED, fd, offset * PAGE];
        pair.must(call);
    }
}

/// An address: in the scene for the most part, else at one of the ends of things.
pub fn address(random: &mut Random) -> u64 {
    let base = match random.next() % 8 {
        0..6 => page(random.pick(&EDGES)),
        6 => page(random.next() % 26),
        _ => random.pick(&[
            0,
            PAGE,
            0x1_0000,
            0x4000_0000,
            0x7fff_f000,
            0x8000_0000,
            WINDOW - PAGE,
            TASK_SIZE - PAGE,
            TASK_SIZE,
            TASK_SIZE + PAGE,
            1 << 47,
            1 << 63,
            0u64.wrapping_sub(PAGE),
        ]),
    };
    match random.next() % 12 {
        0 => base.wrapping_add(1),
        1 => base.wrapping_sub(PAGE),
        2 => base.wrapping_add(PAGE),
        3 => base.wrapping_sub(1),
        _ => base,
    }
}

/// A length: some pages for the most part.
pub fn len(random: &mut Random, address: u64) -> u64 {
    match random.next() % 8 {
        0..5 => PAGE * random.pick(&[1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 14, 24, 30]),
        5 => random.pick(&[0, 1, PAGE - 1, PAGE + 1, 2 * PAGE - 1, 7 * PAGE + 5]),
        6 => {
            let base = random.pick(&[TASK_SIZE, 1 << 47, 1 << 63, 0]).wrapping_sub(address);
            random.pick(&[
                base,
                base.wrapping_sub(1),
                base.wrapping_add(1),
                base.wrapping_sub(PAGE),
                base.wrapping_add(PAGE),
            ])
        }
        _ => random.pick(&[
            512 * PAGE,
            1 << 40,
            1 << 46,
            1 << 47,
            TASK_SIZE,
            TASK_SIZE - PAGE,
            TASK_SIZE + 1,
            1 << 63,
            u64::MAX,
            u64::MAX - PAGE + 2,
            u64::MAX - PAGE + 1,
            u64::MAX - PAGE,
        ]),
    }
}

/// Whether a call changes what is mapped in `address..address + len`, as far as that is a range at all, where the process's own mappings are.
pub fn hits_own(pair: &Pair, address: u64, len: u64) -> bool {
    let start = address & !(PAGE - 1);
    match address.checked_add(len) {
        Some(end) => pair.is_own(start, end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)),
        // It wraps, and so is nothing that a call accepts; but some round first.
        None => false,
    }
}

/// How a call is printed.
pub fn show(call: Call) -> String {
    let [_, arguments @ ..] = call;
    let arguments: Vec<String> = arguments
        .iter()
        .map(|argument| match argument.checked_sub(WINDOW).filter(|offset| *offset <= WINDOW_LEN) {
            Some(offset) if offset.is_multiple_of(PAGE) => format!("page {}", offset / PAGE),
            Some(offset) => format!("page {} + {}", offset / PAGE, offset % PAGE),
            None => format!("{argument:#x}"),
        })
        .collect();
    format!("call {} ({})", call[0], arguments.join(", "))
}
