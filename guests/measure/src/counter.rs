//! What is counted: guest instructions, or time.

/// A counter that only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// The processor's time-stamp counter. Under QEMU's `-icount shift=0` it advances by one per guest instruction;
    /// elsewhere it is a count of clock ticks and says nothing about instructions.
    Instructions,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    Nanoseconds,
}

impl Counter {
    /// The present count.
    #[inline(always)]
    pub fn now(self) -> u64 {
        match self {
            // SAFETY: reads a register that every x86-64 processor has; user mode may read it on the kernels that
            // this runs on, and where it may not the program ends with SIGSEGV, which is no undefined behaviour.
            Counter::Instructions => unsafe { core::arch::x86_64::_rdtsc() },
            Counter::Nanoseconds => nanoseconds(),
        }
    }

    /// The name of one unit, as reports show it.
    pub fn unit(self) -> &'static str {
        match self {
            Counter::Instructions => "instructions",
            Counter::Nanoseconds => "ns",
        }
    }

    /// What `work` costs, with its result.
    #[inline(always)]
    pub fn measure<T>(self, work: impl FnOnce() -> T) -> (u64, T) {
        let start = self.now();
        let result = work();
        (self.now() - start, result)
    }
}

/// Time that this thread has been executed, in nanoseconds: what others did meanwhile does not count. Under `-icount` a nanosecond is an instruction.
#[inline(always)]
pub fn own_time() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn nanoseconds() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the result.
    unsafe { libc::clock_gettime(which, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
