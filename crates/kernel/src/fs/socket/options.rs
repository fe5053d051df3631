//! What a socket was told by `setsockopt`: what makes a difference here, and what is kept only to be told again.

use alloc::collections::BTreeMap;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::net;

use super::Manner;
use crate::fs::File;
use crate::sync::Mutex;
use crate::time::monotonic_ns;

/// Options of one socket.
#[derive(Default)]
pub struct Options {
    /// Nanoseconds that a read waits at most (`SO_RCVTIMEO`); 0 for any time.
    pub receive_timeout: AtomicU64,
    /// Nanoseconds that a write waits at most (`SO_SNDTIMEO`); 0 for any time.
    pub send_timeout: AtomicU64,
    /// `SO_PASSCRED`.
    pub wants_credentials: AtomicBool,
    /// Others, by level and number.
    kept: Mutex<BTreeMap<(u32, u32), i32>>,
}

impl Options {
    /// How a plain read is done.
    pub fn receiving(&self, file: &File) -> Manner {
        Manner { deadline: deadline(&self.receive_timeout), non_blocking: file.non_blocking(), ..Manner::default() }
    }

    /// How a plain write is done.
    pub fn sending(&self, file: &File) -> Manner {
        Manner { deadline: deadline(&self.send_timeout), non_blocking: file.non_blocking(), ..Manner::default() }
    }

    /// Whether closing breaks the connection off (`SO_LINGER` with no time).
    pub fn ends_at_once(&self) -> bool {
        self.kept(net::SOL_SOCKET, net::SO_LINGER) == Some(0)
    }

    /// Keeps a value.
    pub fn keep(&self, level: u32, option: u32, value: i32) {
        self.kept.lock().insert((level, option), value);
    }

    /// A value that was kept.
    pub fn kept(&self, level: u32, option: u32) -> Option<i32> {
        self.kept.lock().get(&(level, option)).copied()
    }
}

fn deadline(timeout: &AtomicU64) -> Option<u64> {
    match timeout.load(Ordering::Relaxed) {
        0 => None,
        timeout => Some(monotonic_ns().saturating_add(timeout)),
    }
}
