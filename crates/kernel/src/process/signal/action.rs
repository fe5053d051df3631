//! What a program wants done with each signal.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{SigSet, Signal};
use crate::process::signal::set::DefaultAction;

/// `SIG_DFL`.
const DEFAULT: u64 = 0;
/// `SIG_IGN`.
const IGNORE: u64 = 1;

/// `struct kernel_sigaction` of x86-64, as `rt_sigaction` exchanges it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN`, or the handler's address.
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// Where the handler returns to (`SA_RESTORER`).
    pub restorer: u64,
    /// Signals blocked while the handler runs.
    pub mask: u64,
}

const _: () = assert!(size_of::<Action>() == 32);

/// The flags that Linux knows; others are cleared when an action is set (and so can be probed for).
const KNOWN_FLAGS: u64 = (raw::SA_NOCLDSTOP
    | raw::SA_NOCLDWAIT
    | raw::SA_SIGINFO
    | raw::SA_ONSTACK
    | raw::SA_RESTART
    | raw::SA_NODEFER
    | raw::SA_RESETHAND
    | raw::SA_EXPOSE_TAGBITS
    | raw::SA_RESTORER) as u64;

impl Action {
    /// Whether the default applies.
    pub fn is_default(&self) -> bool {
        self.handler == DEFAULT
    }
    /// What ignores.
    pub fn ignored() -> Action {
        Action { handler: IGNORE, ..Action::default() }
    }
    /// Whether the program asked to ignore it.
    pub fn is_ignore(&self) -> bool {
        self.handler == IGNORE
    }
    /// Whether `flag` (`SA_*`) is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }
    /// Whether `signal` would do nothing at all.
    pub fn discards(&self, signal: Signal) -> bool {
        self.is_ignore()
            || self.is_default() && matches!(signal.default_action(), DefaultAction::Ignore | DefaultAction::Continue)
    }
}

/// The actions of all signals. Shared by processes that never changed them since they forked, so a fork copies a pointer.
#[derive(Clone, Debug)]
pub struct Handlers(Arc<[Action; 64]>);

impl Handlers {
    /// Every signal does what it does by default.
    pub fn new() -> Handlers {
        Handlers(Arc::new([Action::default(); 64]))
    }

    /// What `signal` does.
    pub fn get(&self, signal: Signal) -> Action {
        self.0[signal.index()]
    }

    /// Changes it; flags unknown to Linux are dropped, and so are KILL and STOP in the mask.
    pub fn set(&mut self, signal: Signal, mut action: Action) {
        action.flags &= KNOWN_FLAGS;
        action.mask = SigSet::from_bits(action.mask).without(SigSet::UNBLOCKABLE).bits();
        Arc::make_mut(&mut self.0)[signal.index()] = action;
    }

    /// What exec does: caught signals get their default back, ignored ones stay ignored.
    pub fn reset_caught(&mut self) {
        if self.0.iter().all(|action| *action == Action::default()) {
            return;
        }
        for action in Arc::make_mut(&mut self.0) {
            let handler = if action.is_ignore() { IGNORE } else { DEFAULT };
            *action = Action { handler, ..Action::default() };
        }
    }

    /// What `CLONE_CLEAR_SIGHAND` does: the same, but also for a child that shares nothing else.
    pub fn cleared(&self) -> Handlers {
        let mut copy = self.clone();
        copy.reset_caught();
        copy
    }
}
