//! What threads ask for: classes of scheduling, and nodes of memory. There is one node; what was asked for of it is checked, kept, inherited and
//! reported as on Linux.

use linux_raw_sys::general as raw;

use crate::sched::Rank;

/// A class of scheduling (sched(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Class {
    /// `SCHED_*`.
    pub policy: u32,
    /// 1 to 99 for the real-time policies, else 0.
    pub priority: u32,
    /// Children begin in the ordinary class (`SCHED_RESET_ON_FORK`).
    pub reset_on_fork: bool,
}

impl Class {
    /// Whether it is one of the real-time policies.
    pub fn is_real_time(&self) -> bool {
        matches!(self.policy, raw::SCHED_FIFO | raw::SCHED_RR)
    }

    /// What that means to the scheduler.
    pub fn rank(&self) -> Rank {
        let priority = self.priority as u8;
        match self.policy {
            raw::SCHED_FIFO => Rank::fifo(priority),
            raw::SCHED_RR => Rank::round_robin(priority),
            raw::SCHED_IDLE => Rank::BACKGROUND,
            _ => Rank::ORDINARY,
        }
    }

    /// What a child gets.
    pub fn inherited(&self) -> Class {
        if !self.reset_on_fork {
            return *self;
        }
        let ordinary = if self.is_real_time() { raw::SCHED_NORMAL } else { self.policy };
        Class { policy: ordinary, priority: 0, reset_on_fork: false }
    }
}

/// Where memory is to come from (set_mempolicy(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryPolicy {
    /// `MPOL_*`; 0: the default.
    pub mode: u32,
    /// `MPOL_F_*` that were given with it.
    pub flags: u32,
    /// Nodes as given, where the flags say that they are to be remembered so.
    pub given: u64,
    /// Nodes that there are of those.
    pub nodes: u64,
}
