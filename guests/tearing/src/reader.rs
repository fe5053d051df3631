//! A reader: takes snapshots of the writer's window in pieces of every size, asks questions, and compares with the states that there are.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use foldspace_guest_measure::maps::{Area, Maps, areas, areas_in};

use crate::board::{Board, COUNTS, Count};
use crate::cases::{self, Case, PAGES};
use crate::window::Window;

/// Bytes that are read at a time, in turns.
pub const PIECES: [usize; 5] = [1, 7, 64, 1000, 1 << 16];

/// How the text is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// One open file, from its first byte on.
    OneFile,
    /// Each piece from a file that is opened for it, at the offset where the last one ended: what a kernel does that takes a new version for each read.
    /// The test must find it out.
    NewFiles,
}

/// What is wrong with a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A state, by its number.
    State(usize),
    Gap,
    Twice,
    Mixture,
}

/// All that a reader knows of a case.
pub struct Reader<'a> {
    board: &'a Board,
    number: usize,
    states: Vec<Vec<Area>>,
    counts: [u64; COUNTS],
    shown: usize,
}

impl<'a> Reader<'a> {
    pub fn new(board: &'a Board, number: usize, case: &Case) -> Reader<'a> {
        let states = case.states().into_iter().map(cases::areas).collect();
        Reader { board, number, states, counts: [0; COUNTS], shown: 0 }
    }

    /// Reads until the case is over, when the writer may have gone.
    pub fn read(self, writer: i32, method: Method) -> Result<(), String> {
        let board = self.board;
        let outcome = self.read_on(writer, method);
        if board.is_over() { Ok(()) } else { outcome }
    }

    fn read_on(mut self, writer: i32, method: Method) -> Result<(), String> {
        let mut maps = Maps::of(&writer.to_string()).map_err(|error| format!("maps of the writer: {error}"))?;
        let has_questions = maps.query(0).is_ok();
        let mut turn = self.number;
        while !self.board.is_over() {
            let piece = PIECES[turn % PIECES.len()];
            let before = self.board.changes();
            let text = match method {
                Method::OneFile => maps.read_while(piece, is_past_window).map(<[u8]>::to_vec),
                Method::NewFiles => in_new_files(writer, piece),
            };
            let text = text.map_err(|error| format!("reading {piece} bytes at a time: {error}"))?;
            if self.board.is_over() {
                break;
            }
            let crossed = self.board.changes() != before;
            self.snapshot(&text, piece);
            self.counts[Count::Crossed as usize] += u64::from(crossed);
            if has_questions {
                for page in 0..PAGES {
                    self.question(&maps, page)?;
                }
            }
            turn += 1;
            self.board.report(self.number, &self.counts);
        }
        Ok(())
    }

    fn count(&mut self, what: Count) {
        self.counts[what as usize] += 1;
    }

    fn snapshot(&mut self, text: &[u8], piece: usize) {
        // The last line may be one of which only a part was read.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let seen = areas_in(&text[..whole], Window::page(0).get() as u64..cases::end());
        self.count(Count::Snapshots);
        let seen = match seen {
            Ok(seen) => seen,
            Err(torn) => {
                self.count(Count::Mixtures);
                self.show(&format!("{piece} bytes at a time: {torn}"));
                return;
            }
        };
        match judge(&seen, &self.states) {
            Verdict::State(state) => {
                self.counts[Count::States as usize] |= 1 << state;
                return;
            }
            Verdict::Gap => self.count(Count::Gaps),
            Verdict::Twice => self.count(Count::Twice),
            Verdict::Mixture => self.count(Count::Mixtures),
        }
        self.show(&format!("{piece} bytes at a time: {}", cases::letters(&seen, PAGES)));
    }

    /// What is asked about a page is answered with what one of the states has there.
    fn question(&mut self, maps: &Maps, page: usize) -> Result<(), String> {
        let address = Window::page(page).get() as u64;
        let answer = maps.query(address).map_err(|error| format!("a question: {error}"))?;
        let inside = answer.filter(|area| area.start < cases::end());
        self.count(Count::Questions);
        let right = |state: &Vec<Area>| state.iter().find(|area| area.end > address) == inside.as_ref();
        if !self.states.iter().any(right) {
            self.count(Count::Wrong);
            self.show(&format!("asked about page {page}: {inside:x?}"));
        }
        Ok(())
    }

    /// Shows the first few that are wrong.
    fn show(&mut self, what: &str) {
        if self.shown < 3 {
            eprintln!("reader {}: {what}", self.number);
        }
        self.shown += 1;
    }
}

/// Which state it is, or what is wrong with it.
pub fn judge(seen: &[Area], states: &[Vec<Area>]) -> Verdict {
    if let Some(state) = states.iter().position(|state| state == seen) {
        return Verdict::State(state);
    }
    if seen.windows(2).any(|two| two[1].start < two[0].end) {
        return Verdict::Twice;
    }
    let has = |areas: &[Area], page: usize| {
        let address = Window::page(page).get() as u64;
        areas.iter().any(|area| area.start <= address && address < area.end)
    };
    let gap = (0..PAGES).any(|page| !has(seen, page) && states.iter().all(|state| has(state, page)));
    if gap { Verdict::Gap } else { Verdict::Mixture }
}

/// Whether there is still something of the window to come; what begins above it is the last line of interest.
fn is_past_window(text: &[u8]) -> bool {
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    // Lines are short: the last one begins within this.
    let tail = &text[whole.saturating_sub(200)..whole];
    let last = tail[..tail.len().saturating_sub(1)].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    !areas(&tail[last..]).any(|area| area.is_ok_and(|area| area.start >= cases::end()))
}

fn in_new_files(writer: i32, piece: usize) -> io::Result<Vec<u8>> {
    let (mut text, mut part) = (Vec::new(), vec![0; piece]);
    loop {
        let got = File::open(format!("/proc/{writer}/maps"))?.read_at(&mut part, text.len() as u64)?;
        text.extend_from_slice(&part[..got]);
        if got == 0 || !is_past_window(&text) {
            return Ok(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_mistake_is_known() {
        let states = [cases::areas("AABBAA"), cases::areas("AAAAAA")];
        let judged = |seen: &[Area]| judge(seen, &states);
        assert_eq!(judged(&cases::areas("AAAAAA")), Verdict::State(1));
        assert_eq!(judged(&cases::areas("AA..AA")), Verdict::Gap);
        assert_eq!(judged(&cases::areas("AABBBB")), Verdict::Mixture);
        let mut twice = cases::areas("AAAAAA");
        twice.extend(cases::areas("....AA"));
        assert_eq!(judged(&twice), Verdict::Twice);
        // An area in two where the states have one.
        let mut cut = cases::areas("AAA...");
        cut.extend(cases::areas("...AAA"));
        assert_eq!(judged(&cut), Verdict::Mixture);
    }
}
