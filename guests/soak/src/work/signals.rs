//! Timers, threads that signal each other, and a handler of SIGSEGV that makes pages writable as they are written to.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Done, Life, tried};
use crate::board::Board;
use crate::sys::{self, PAGE, Place, RW};

const PAGES: usize = 256;
const BARRIER: Place = Place(0x2300_0000_0000);

static ALARMS: AtomicU64 = AtomicU64::new(0);
static PINGS: AtomicU64 = AtomicU64::new(0);
static STORES: AtomicU64 = AtomicU64::new(0);
/// The handler could not do its work.
static REFUSED: AtomicU64 = AtomicU64::new(0);

extern "C" fn alarm(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn ping(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    PINGS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn store(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let page = sys::fault_page(info);
    let inside = (BARRIER.0..BARRIER.page(PAGES).0).contains(&page.0);
    if !inside {
        println!("signals: a store to {:#x}, which is nobody's", page.0);
        foldspace_guest_measure::process::exit(1);
    }
    match page.protect(1, RW) {
        Ok(()) => STORES.fetch_add(1, Ordering::Relaxed),
        // Again, until there is memory.
        Err(_) => REFUSED.fetch_add(1, Ordering::Relaxed),
    };
}

pub fn work(board: &Board, seed: u64) -> Result<(), String> {
    let mut life = Life::new(board, seed);
    sys::handle(libc::SIGALRM, alarm);
    sys::handle(libc::SIGUSR1, ping);
    sys::handle(libc::SIGSEGV, store);
    if tried("mmap", BARRIER.map(PAGES, RW))? == Done::Refused {
        return Ok(());
    }
    sys::alarm_every(3000);
    let (other, over) = (AtomicI32::new(0), AtomicBool::new(false));
    let outcome = std::thread::scope(|scope| {
        // The other thread waits to be signalled.
        let answer = || {
            other.store(sys::thread_id(), Ordering::Release);
            while !over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        if std::thread::Builder::new().spawn_scoped(scope, answer).is_err() {
            return Ok(());
        }
        let outcome = rounds(&mut life, &other);
        over.store(true, Ordering::Release);
        outcome
    });
    sys::alarm_every(0);
    outcome
}

fn rounds(life: &mut Life<'_>, other: &AtomicI32) -> Result<(), String> {
    let (mut sent, mut words) = (0, [0; PAGES]);
    while life.goes_on() {
        // A round of a collector with a write barrier: all is protected, and each page that is written to is noticed once.
        if tried("mprotect", BARRIER.protect(PAGES, libc::PROT_READ))? == Done::Refused {
            continue;
        }
        let before = STORES.load(Ordering::Relaxed);
        let mut touched = std::collections::BTreeSet::new();
        for _ in 0..40 {
            let page = life.roll(PAGES);
            words[page] = life.random.next_number();
            Place(BARRIER.page(page).0 + PAGE / 2).store(words[page]);
            touched.insert(page);
        }
        let noticed = STORES.load(Ordering::Relaxed) - before;
        if noticed != touched.len() as u64 {
            return Err(format!("{} pages were written to, {noticed} were noticed", touched.len()));
        }
        let wrong = (0..PAGES).find(|page| Place(BARRIER.page(*page).0 + PAGE / 2).load() != words[*page]);
        if let Some(page) = wrong {
            return Err(format!("page {page} has lost what was stored"));
        }
        // A signal to the other thread arrives, soon enough; one that is not handled yet swallows the next.
        let thread = other.load(Ordering::Acquire);
        if thread > 0 {
            let (pings, begin) = (PINGS.load(Ordering::Relaxed), Instant::now());
            sys::signal_thread(thread, libc::SIGUSR1);
            while PINGS.load(Ordering::Relaxed) == pings {
                if begin.elapsed() > Duration::from_secs(60) {
                    return Err(format!("signal {sent} does not arrive"));
                }
                std::thread::yield_now();
            }
            sent += 1;
        }
    }
    life.board.count(sent + ALARMS.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed));
    Ok(())
}
