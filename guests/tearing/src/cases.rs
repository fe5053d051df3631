//! What the writer does: for each case a ring of steps, each a single system call, and the state that each leaves.
//!
//! A letter is a page, and what it says is what may be done with it: `A` reading and writing, `B` reading, `C` nothing; a dot is a page that is not mapped.
//! Neighbours of one letter are one area.

use foldspace_guest_measure::maps::Area;

use crate::window::Window;

/// One system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// mprotect of pages `0..1` to what the letter allows.
    Protect(usize, usize, u8),
    /// mmap of pages `0..1`, in the place of whatever is there.
    Map(usize, usize, u8),
    /// munmap of pages `0..1`.
    Unmap(usize, usize),
    /// mremap of the area at a page, from so many pages to so many.
    Resize(usize, usize, usize),
    /// mremap of so many pages at a page to another one.
    Move(usize, usize, usize),
}

use Call::{Map, Move, Protect, Resize, Unmap};

/// A call, and what there is afterwards.
pub type Step = (Call, &'static str);

/// Steps that end where they began.
pub struct Case {
    pub name: &'static str,
    pub start: &'static str,
    pub steps: &'static [Step],
}

const fn case(name: &'static str, start: &'static str, steps: &'static [Step]) -> Case {
    Case { name, start, steps }
}

/// Splitting, resizing, moving, replacing, and the ten ways in which areas become one or two.
pub const CASES: [Case; 15] = [
    case("split", "AAAAAA", &[(Protect(2, 4, b'B'), "AABBAA"), (Protect(2, 4, b'A'), "AAAAAA")]),
    case(
        "resize",
        "AAAA....",
        &[
            (Resize(0, 4, 8), "AAAAAAAA"),
            (Resize(0, 8, 2), "AA......"),
            (Resize(0, 2, 3), "AAA....."),
            (Resize(0, 3, 4), "AAAA...."),
        ],
    ),
    case("remap", "AAAA......", &[(Move(0, 4, 6), "......AAAA"), (Move(6, 4, 0), "AAAA......")]),
    case(
        "remap of a middle",
        "BAAAAAAAB.....",
        &[(Move(3, 3, 10), "BAA...AAB.AAA."), (Move(10, 3, 3), "BAAAAAAAB.....")],
    ),
    case("replace", "AAAAAA", &[(Map(1, 5, b'B'), "ABBBBA"), (Map(1, 5, b'A'), "AAAAAA")]),
    case("merge both", "AABBAA", &[(Protect(2, 4, b'A'), "AAAAAA"), (Protect(2, 4, b'B'), "AABBAA")]),
    case("merge left, full", "AABBCC", &[(Protect(2, 4, b'A'), "AAAACC"), (Protect(2, 4, b'B'), "AABBCC")]),
    case("merge left, partial", "AABBBB", &[(Protect(2, 3, b'A'), "AAABBB"), (Protect(2, 3, b'B'), "AABBBB")]),
    case("merge right, full", "CCBBAA", &[(Protect(2, 4, b'A'), "CCAAAA"), (Protect(2, 4, b'B'), "CCBBAA")]),
    case("merge right, partial", "BBBBAA", &[(Protect(3, 4, b'A'), "BBBAAA"), (Protect(3, 4, b'B'), "BBBBAA")]),
    case("new, both", "AA..AA", &[(Map(2, 4, b'A'), "AAAAAA"), (Unmap(2, 4), "AA..AA")]),
    case("new, left", "AA..BB", &[(Map(2, 3, b'A'), "AAA.BB"), (Unmap(2, 3), "AA..BB")]),
    case("new, right", "BB..AA", &[(Map(3, 4, b'A'), "BB.AAA"), (Unmap(3, 4), "BB..AA")]),
    case("split below", "BBBB", &[(Protect(0, 2, b'A'), "AABB"), (Protect(0, 2, b'B'), "BBBB")]),
    case("split above", "BBBB", &[(Protect(2, 4, b'A'), "BBAA"), (Protect(2, 4, b'B'), "BBBB")]),
];

impl Case {
    /// All states that there are, each once.
    pub fn states(&self) -> Vec<&'static str> {
        let mut states = vec![self.start];
        for (_, after) in self.steps {
            if !states.contains(after) {
                states.push(after);
            }
        }
        states
    }
}

/// The areas of a state.
pub fn areas(state: &str) -> Vec<Area> {
    let (bytes, mut areas) = (state.as_bytes(), Vec::<Area>::new());
    let mut page = 0;
    while page < bytes.len() {
        let letter = bytes[page];
        let until = page + bytes[page..].iter().take_while(|other| **other == letter).count();
        let access = match letter {
            b'A' => *b"rw-p",
            b'B' => *b"r--p",
            _ => *b"---p",
        };
        if letter != b'.' {
            let at = |page: usize| Window::page(page).get() as u64;
            areas.push(Area { start: at(page), end: at(until), access, offset: 0 });
        }
        page = until;
    }
    areas
}

/// A state as letters, from the areas that somebody saw; `?` where no letter fits.
pub fn letters(areas: &[Area], pages: usize) -> String {
    let letter = |page: usize| {
        let address = Window::page(page).get() as u64;
        let found = areas.iter().find(|area| area.start <= address && address < area.end);
        match found.map(|area| &area.access) {
            None => '.',
            Some(b"rw-p") => 'A',
            Some(b"r--p") => 'B',
            Some(b"---p") => 'C',
            Some(_) => '?',
        }
    };
    let mut text = String::new();
    for page in 0..pages {
        if page > 0 && areas.iter().any(|area| area.start == Window::page(page).get() as u64) {
            text.push('|');
        }
        text.push(letter(page));
    }
    text
}

/// Pages that the window has at most.
pub const PAGES: usize = 16;
const _: () = {
    let mut at = 0;
    while at < CASES.len() {
        assert!(CASES[at].start.len() <= PAGES);
        at += 1;
    }
};

/// One past the last byte of the window.
pub fn end() -> u64 {
    Window::page(PAGES).get() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::PAGE;

    #[test]
    fn cases_end_where_they_begin() {
        for case in &CASES {
            assert_eq!(case.steps.last().map(|(_, after)| *after), Some(case.start), "{}", case.name);
            assert!(case.steps.iter().all(|(_, after)| after.len() == case.start.len()), "{}", case.name);
            assert!(case.states().len() > 1);
        }
    }

    #[test]
    fn states_are_areas_and_back() {
        let seen = areas("AAB.C");
        assert_eq!(seen.len(), 3);
        assert_eq!(letters(&seen, 5), "AA|B.|C");
        assert_eq!(seen[0].end - seen[0].start, 2 * PAGE as u64);
    }
}
