//! Steps in words.

use core::fmt::Write;

use crate::look::{Area, SIZES};
use crate::op::{NOBODY, OUTSIDE, Outcome};

/// One line for each area: that of maps, the sizes that are not 0, the flags.
pub fn show_areas(areas: &[Area]) -> String {
    let mut text = String::new();
    for area in areas {
        let access = String::from_utf8_lossy(&area.access);
        let _ = write!(text, "  {:08x}-{:08x} {access} {:08x}", area.start, area.end, area.offset);
        if area.file != 0 {
            let _ = write!(text, " inode {}", area.file);
        }
        let _ = write!(text, " {}", area.name);
        for (name, size) in SIZES.iter().zip(area.sizes).filter(|(_, size)| *size != 0) {
            let _ = write!(text, " {name} {size}");
        }
        for flag in &area.flags {
            let _ = write!(text, " {}", String::from_utf8_lossy(flag));
        }
        text.push('\n');
    }
    if areas.is_empty() {
        text.push_str("  nothing mapped\n");
    }
    text
}

/// A result in words: the value, the errno by name, the signal.
pub fn show_outcome(outcome: &Outcome) -> String {
    let mut text = match outcome.value {
        NOBODY => "no such process".to_owned(),
        OUTSIDE => "mapped outside the window".to_owned(),
        value if (-4095..0).contains(&value) => std::io::Error::from_raw_os_error(-value as i32).to_string(),
        value => format!("{value:#x}"),
    };
    if outcome.read != 0 {
        let _ = write!(text, ", read {:016x}", outcome.read);
    }
    if outcome.signal != (0, 0) {
        let _ = write!(text, ", signal {} code {}", outcome.signal.0, outcome.signal.1);
    }
    text
}
