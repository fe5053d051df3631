//! What processes have used: `getrusage`, `times`, the fourth argument of `wait4`.

use linux_raw_sys::general as raw;

/// Clock ticks a second, as programs see them (`USER_HZ`).
pub const TICKS_PER_SECOND: u64 = 100;

const NANOS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;

/// Resources used by one or more threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds in user mode.
    pub user_ns: u64,
    /// Nanoseconds in the kernel on its behalf.
    pub system_ns: u64,
    /// Page faults.
    pub faults: u64,
    /// Times that it waited.
    pub voluntary_switches: u64,
    /// Times that it was made to yield.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            faults: self.faults + other.faults,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
        }
    }

    /// User time in clock ticks.
    pub fn user_ticks(&self) -> u64 {
        self.user_ns / NANOS_PER_TICK
    }

    /// System time in clock ticks.
    pub fn system_ticks(&self) -> u64 {
        self.system_ns / NANOS_PER_TICK
    }

    /// As `getrusage` reports it; `max_resident_kib` is what only a live process knows.
    pub fn to_record(self, max_resident_kib: u64) -> Record {
        let mut words = [0; 18];
        words[0] = (self.user_ns / 1_000_000_000) as i64;
        words[1] = (self.user_ns % 1_000_000_000 / 1000) as i64;
        words[2] = (self.system_ns / 1_000_000_000) as i64;
        words[3] = (self.system_ns % 1_000_000_000 / 1000) as i64;
        words[4] = max_resident_kib as i64;
        words[8] = self.faults as i64;
        words[16] = self.voluntary_switches as i64;
        words[17] = self.involuntary_switches as i64;
        words
    }
}

/// `struct rusage`: utime (seconds, microseconds), stime, maxrss, ixrss, idrss, isrss, minflt, majflt, nswap, inblock, oublock,
/// msgsnd, msgrcv, nsignals, nvcsw, nivcsw.
pub type Record = [i64; 18];

const _: () = assert!(size_of::<Record>() == size_of::<raw::rusage>());
