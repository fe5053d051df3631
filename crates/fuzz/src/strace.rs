//! Logs: any text is read, and both sides of a replay hold their invariants after it.

use foldspace_replay::{Options, Replay};

/// Lines of one log at most.
const LINES: usize = 60;

pub(crate) fn strace(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut replay = Replay::new(Options { memory: 32 << 20, sample: 16, ..Options::default() }).expect("a replay");
    for line in text.lines().take(LINES) {
        // Out of memory is an answer: a heap may be said to have terabytes.
        if replay.line(line).is_err() {
            return;
        }
    }
    replay.check().expect("in order");
    replay.finish().expect("a report");
}
