//! Threads that change their windows of one address space at random, beside a plain account of what must be in each page.

use std::io;

use foldspace_guest_measure::process::{self, Fork};

use super::{Done, Life, tried};
use crate::board::Board;
use crate::sys::{PAGE, Place, RW};

/// Pages of a window; it lies across the ends of tables.
const PAGES: usize = 700;
const THREADS: usize = 2;
/// Where the first window begins: pages before a table's end.
const BASE: usize = 0x2000_0000_0000 - 300 * PAGE;
/// From one window to the next, and from a window to the place where parts of it are moved to.
const STEP: usize = 1 << 32;

/// What a page must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Hole,
    /// Permissions, and the word that is at its start and at its end.
    Mapped(i32, u64),
}

struct Window<'a> {
    base: Place,
    pages: [Page; PAGES],
    life: Life<'a>,
    refused: u64,
}

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..THREADS {
            let spawned = std::thread::Builder::new()
                .spawn_scoped(scope, move || window(board, seed + 2 * number as u64, number));
            // No memory for a thread: there are fewer, then.
            threads.extend(spawned.ok());
        }
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}

fn window(board: &Board, seed: u64, number: usize) -> Result<(), String> {
    let base = Place(BASE + number * STEP);
    let mut window = Window { base, pages: [Page::Hole; PAGES], life: Life::new(board, seed), refused: 0 };
    let mut done = 0;
    while window.life.goes_on() {
        window.step().map_err(|failure| format!("thread {number}, step {done}: {failure}"))?;
        done += 1;
        if done % 64 == 0 {
            window.verify(0, PAGES)?;
            board.count(64, std::mem::take(&mut window.refused));
        }
    }
    window.verify(0, PAGES)
}

impl Window<'_> {
    fn step(&mut self) -> Result<(), String> {
        let most = if self.life.roll(16) == 0 { 600 } else { 12 };
        let from = self.life.roll(PAGES);
        let pages = (1 + self.life.roll(most)).min(PAGES - from);
        let at = self.base.page(from);
        let whole = self.pages[from..from + pages].iter().all(|page| *page != Page::Hole);
        match self.life.roll(14) {
            0 | 1 => {
                let protection = if self.life.roll(4) == 0 { libc::PROT_READ } else { RW };
                let mapped = at.map(pages, protection);
                self.note("mmap", mapped, from, pages, |_| Page::Mapped(protection, 0))
            }
            2 => self.note("munmap", at.unmap(pages), from, pages, |_| Page::Hole),
            3 | 4 if whole => {
                let protection = [RW, libc::PROT_READ, libc::PROT_NONE][self.life.roll(3)];
                let with = |page| if let Page::Mapped(_, word) = page { Page::Mapped(protection, word) } else { page };
                self.note("mprotect", at.protect(pages, protection), from, pages, with)
            }
            5 if whole => {
                let zero = |page| if let Page::Mapped(access, _) = page { Page::Mapped(access, 0) } else { page };
                self.note("MADV_DONTNEED", at.advise(pages, libc::MADV_DONTNEED), from, pages, zero)
            }
            6 if whole => {
                let advice = [libc::MADV_RANDOM, libc::MADV_NORMAL, libc::MADV_DONTDUMP, libc::MADV_DODUMP];
                let advised = at.advise(pages, advice[self.life.roll(4)]);
                self.note("madvise", advised, from, pages, |page| page)
            }
            7 | 8 => self.move_there_and_back(from, pages),
            9 => self.shrink(from, pages),
            10 if self.life.roll(8) == 0 => self.look_from_a_child(),
            _ => {
                for page in from..from + pages.min(8) {
                    self.write(page);
                }
                self.verify(from, pages)
            }
        }
    }

    /// What a call must have done, or nothing if it was refused.
    fn note(
        &mut self,
        what: &str,
        result: io::Result<()>,
        from: usize,
        pages: usize,
        change: impl Fn(Page) -> Page,
    ) -> Result<(), String> {
        match tried(what, result)? {
            Done::Yes => self.pages[from..from + pages].iter_mut().for_each(|page| *page = change(*page)),
            Done::Refused => self.refused += 1,
        }
        self.verify(from, pages)
    }

    fn write(&mut self, page: usize) {
        if let Page::Mapped(RW, word) = &mut self.pages[page] {
            *word = self.life.random.next_number();
            let at = self.base.page(page);
            at.store(*word);
            Place(at.0 + PAGE - 8).store(*word);
        }
    }

    /// mremap of pages of one kind to a place far away, at once or askew, and back.
    fn move_there_and_back(&mut self, from: usize, pages: usize) -> Result<(), String> {
        let Page::Mapped(access, _) = self.pages[from] else { return Ok(()) };
        let like = |page: &&Page| matches!(page, Page::Mapped(other, _) if *other == access);
        let pages = self.pages[from..from + pages].iter().take_while(like).count();
        let (here, there) = (self.base.page(from), Place(self.base.0 + STEP / 2 + self.life.roll(3) * 5 * PAGE));
        let moved = match here.move_to(pages, there, pages, 0) {
            // Areas that differ in more than their permissions, which is all that is noted here.
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ok(()),
            other => other,
        };
        if tried("mremap away", moved)? == Done::Refused {
            self.refused += 1;
            self.forget_what_went(from, pages);
            return self.verify(from, pages);
        }
        let right = (0..pages).all(|page| access & libc::PROT_READ == 0 || self.is_at(from + page, there.page(page)));
        if !right {
            return Err(format!("{pages} pages from {from} on are not what they were after mremap"));
        }
        // Back, or away for good if there is no memory for that.
        if tried("mremap back", there.move_to(pages, here, pages, 0))? == Done::Refused {
            self.refused += 1;
            tried("munmap", there.unmap(pages))?;
            self.forget_what_went(from, pages);
        }
        self.verify(from, pages)
    }

    /// Pages that are areas of several kinds move area by area: those before the one that was refused are where they were to go (`mremap(2)`).
    fn forget_what_went(&mut self, from: usize, pages: usize) {
        for page in from..from + pages {
            if !self.base.page(page).is_mapped() {
                self.pages[page] = Page::Hole;
            }
        }
    }

    /// mremap that shortens, and makes longer again.
    fn shrink(&mut self, from: usize, pages: usize) -> Result<(), String> {
        let Page::Mapped(access, _) = self.pages[from] else { return Ok(()) };
        let like = |page: &&Page| matches!(page, Page::Mapped(other, _) if *other == access);
        let pages = self.pages[from..from + pages].iter().take_while(like).count();
        if pages < 2 {
            return Ok(());
        }
        let left = 1 + self.life.roll(pages - 1);
        let at = self.base.page(from);
        self.note("mremap shorter", at.resize(pages, left), from + left, pages - left, |_| Page::Hole)?;
        if self.pages[from + left] == Page::Hole {
            let grown = match at.resize(left, pages) {
                // It must be one area for that, and need not be.
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ok(()),
                other => other,
            };
            self.note("mremap longer", grown, from + left, pages - left, |_| Page::Mapped(access, 0))?;
        }
        Ok(())
    }

    /// A child sees just this, and what it writes is its own.
    fn look_from_a_child(&mut self) -> Result<(), String> {
        match process::fork() {
            Ok(Fork::Child) => {
                let mut right = self.verify(0, PAGES).is_ok();
                for page in (0..PAGES).step_by(5) {
                    self.write(page);
                }
                right &= self.verify(0, PAGES).is_ok();
                process::exit(i32::from(!right))
            }
            Ok(Fork::Parent(child)) => {
                let (_, end) = crate::sys::wait_for(child.pid());
                match end {
                    crate::sys::End::Exited(0) => self.verify(0, PAGES),
                    crate::sys::End::Killed(libc::SIGKILL) if self.life.board.is_scarce() => Ok(()),
                    other => Err(format!("a child that looks at the window ended with {other:?}")),
                }
            }
            Err(error) => tried("fork", Err(error)).map(|_| self.refused += 1),
        }
    }

    fn is_at(&self, page: usize, at: Place) -> bool {
        let Page::Mapped(_, word) = self.pages[page] else { return false };
        at.load() == word && Place(at.0 + PAGE - 8).load() == word
    }

    fn verify(&self, from: usize, pages: usize) -> Result<(), String> {
        for page in from..from + pages {
            if let Page::Mapped(access, word) = self.pages[page]
                && access & libc::PROT_READ != 0
                && !self.is_at(page, self.base.page(page))
            {
                let at = self.base.page(page);
                return Err(format!(
                    "page {page} has {:#x} and {:#x}, not {word:#x}",
                    at.load(),
                    Place(at.0 + PAGE - 8).load()
                ));
            }
        }
        Ok(())
    }
}
