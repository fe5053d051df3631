//! Signal numbers and sets of them.

use core::fmt;

/// A signal: 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

macro_rules! signals {
    ($($name:ident = $number:literal,)*) => {
        #[allow(dead_code, reason = "the list is the uapi's (asm/signal.h), not what is used today")]
        impl Signal {
            $(#[doc = concat!("`SIG", stringify!($name), "`.")] pub const $name: Signal = Signal($number);)*
        }
    };
}

signals! {
    HUP = 1, INT = 2, QUIT = 3, ILL = 4, TRAP = 5, ABRT = 6, BUS = 7, FPE = 8, KILL = 9, USR1 = 10, SEGV = 11, USR2 = 12,
    PIPE = 13, ALRM = 14, TERM = 15, STKFLT = 16, CHLD = 17, CONT = 18, STOP = 19, TSTP = 20, TTIN = 21, TTOU = 22, URG = 23,
    XCPU = 24, XFSZ = 25, VTALRM = 26, PROF = 27, WINCH = 28, IO = 29, PWR = 30, SYS = 31,
}

/// First real-time signal: those queue, the others are merely on or off.
const FIRST_REAL_TIME: u8 = 32;

/// What happens when a signal arrives that the program said nothing about (signal(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultAction {
    /// The process ends.
    Terminate,
    /// The process ends and would leave a core file.
    Core,
    /// Nothing.
    Ignore,
    /// The process stops.
    Stop,
    /// The process goes on.
    Continue,
}

impl Signal {
    /// `None` unless `1 <= number <= 64`.
    pub const fn new(number: u64) -> Option<Signal> {
        if number >= 1 && number <= 64 { Some(Signal(number as u8)) } else { None }
    }

    /// The number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Index in a table of all signals.
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// Whether several instances can wait at once.
    pub const fn queues(self) -> bool {
        self.0 >= FIRST_REAL_TIME
    }

    /// What it does by default.
    pub const fn default_action(self) -> DefaultAction {
        match self {
            Signal::CHLD | Signal::URG | Signal::WINCH => DefaultAction::Ignore,
            Signal::CONT => DefaultAction::Continue,
            Signal::STOP | Signal::TSTP | Signal::TTIN | Signal::TTOU => DefaultAction::Stop,
            Signal::QUIT
            | Signal::ILL
            | Signal::TRAP
            | Signal::ABRT
            | Signal::BUS
            | Signal::FPE
            | Signal::SEGV
            | Signal::XCPU
            | Signal::XFSZ
            | Signal::SYS => DefaultAction::Core,
            _ => DefaultAction::Terminate,
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signal {}", self.0)
    }
}

/// A set of signals, as `sigset_t` has it: signal `n` is bit `n - 1`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub struct SigSet(u64);

impl SigSet {
    /// None.
    pub const EMPTY: SigSet = SigSet(0);
    /// Those that can be neither blocked, nor caught, nor ignored.
    pub const UNBLOCKABLE: SigSet = SigSet::EMPTY.with(Signal::KILL).with(Signal::STOP);
    /// Those that stop a process by default.
    pub const STOPPING: SigSet =
        SigSet::EMPTY.with(Signal::STOP).with(Signal::TSTP).with(Signal::TTIN).with(Signal::TTOU);
    /// Those that the running instruction causes; they are delivered before all others.
    pub const SYNCHRONOUS: SigSet = SigSet::EMPTY
        .with(Signal::SEGV)
        .with(Signal::BUS)
        .with(Signal::ILL)
        .with(Signal::TRAP)
        .with(Signal::FPE)
        .with(Signal::SYS);

    /// From a program's `sigset_t`.
    pub const fn from_bits(bits: u64) -> SigSet {
        SigSet(bits)
    }
    /// As `sigset_t`.
    pub const fn bits(self) -> u64 {
        self.0
    }
    /// Whether there is none in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Whether `signal` is in it.
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & (1 << signal.index()) != 0
    }
    /// And `signal`.
    #[must_use]
    pub const fn with(self, signal: Signal) -> SigSet {
        SigSet(self.0 | 1 << signal.index())
    }
    /// In either.
    #[must_use]
    pub const fn union(self, other: SigSet) -> SigSet {
        SigSet(self.0 | other.0)
    }
    /// In both.
    #[must_use]
    pub const fn intersection(self, other: SigSet) -> SigSet {
        SigSet(self.0 & other.0)
    }
    /// In this one and not in `other`.
    #[must_use]
    pub const fn without(self, other: SigSet) -> SigSet {
        SigSet(self.0 & !other.0)
    }
    /// The one to deliver first: synchronous ones, then the lowest number (Linux's `next_signal`).
    pub fn first(self) -> Option<Signal> {
        let candidates = match self.0 & SigSet::SYNCHRONOUS.0 {
            0 => self.0,
            synchronous => synchronous,
        };
        Signal::new(u64::from(candidates.trailing_zeros()) + 1)
    }
}
