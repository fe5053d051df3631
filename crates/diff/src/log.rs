//! Steps as lines of text, for those that come out of another machine.
//!
//! ```text
//!   sequence NUMBER
//!   VALUE TAB READ TAB SIGNAL TAB CODE [TAB CONTENT TAB look]        one line for each operation
//! ```
//!
//! A look is `=` if it is that of the last line with one; else its areas, each ended by a semicolon, a tab, and a digit of 0 or 1 for each page.

use core::fmt::Write;

use crate::look::{Area, Look, SIZES, Step};
use crate::op::Outcome;

/// Appends the line of `step`; `last` is what was written before it.
pub fn write_step(step: &Step, last: &mut Option<Look>, out: &mut String) {
    let Outcome { value, read, signal: (signal, code) } = step.outcome;
    // Writing into a string cannot fail.
    let _ = write!(out, "{value}\t{read:x}\t{signal}\t{code}");
    if let Some(look) = &step.look {
        let _ = write!(out, "\t{:x}\t", look.content);
        if last.as_ref().is_some_and(|last| last.areas == look.areas && last.in_core == look.in_core) {
            out.push('=');
        } else {
            look.areas.iter().for_each(|area| write_area(area, out));
            out.push('\t');
            out.extend(look.in_core.iter().map(|page| if *page { '1' } else { '0' }));
            *last = Some(look.clone());
        }
    }
    out.push('\n');
}

fn write_area(area: &Area, out: &mut String) {
    let access = String::from_utf8_lossy(&area.access);
    let _ = write!(out, "{:x},{:x},{access},{:x},{}", area.start, area.end, area.offset, area.file);
    for size in area.sizes {
        let _ = write!(out, ",{size}");
    }
    out.push(',');
    area.flags.iter().flatten().for_each(|letter| out.push(char::from(*letter)));
    let _ = write!(out, ",{};", area.name);
}

/// The step of a line that [`write_step`] made, or `None` if none did.
pub fn read_step(line: &str, last: &mut Option<Look>) -> Option<Step> {
    let mut fields = line.split('\t');
    let outcome = Outcome {
        value: fields.next()?.parse().ok()?,
        read: u64::from_str_radix(fields.next()?, 16).ok()?,
        signal: (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?),
    };
    let Some(content) = fields.next() else { return Some(Step { outcome, look: None }) };
    let content = u64::from_str_radix(content, 16).ok()?;
    let mut look = match fields.next()? {
        "=" => last.clone()?,
        areas => Look {
            areas: areas.split_terminator(';').map(read_area).collect::<Option<_>>()?,
            in_core: fields.next()?.bytes().map(|page| page == b'1').collect(),
            content,
        },
    };
    look.content = content;
    *last = Some(look.clone());
    Some(Step { outcome, look: Some(look) })
}

fn read_area(text: &str) -> Option<Area> {
    let mut fields = text.splitn(7 + SIZES.len(), ',');
    let hexadecimal = |text: Option<&str>| u64::from_str_radix(text?, 16).ok();
    let mut area = Area {
        start: hexadecimal(fields.next())?,
        end: hexadecimal(fields.next())?,
        access: fields.next()?.as_bytes().try_into().ok()?,
        offset: hexadecimal(fields.next())?,
        file: fields.next()?.parse().ok()?,
        ..Area::default()
    };
    for size in &mut area.sizes {
        *size = fields.next()?.parse().ok()?;
    }
    area.flags = fields.next()?.as_bytes().chunks_exact(2).filter_map(|flag| flag.try_into().ok()).collect();
    area.name = fields.next()?.to_owned();
    Some(area)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let area = Area {
            start: 0x4000_0000,
            end: 0x4000_2000,
            access: *b"rw-p",
            offset: 0x1000,
            file: 2,
            name: "/memfd:f0 (deleted)".to_owned(),
            sizes: [8, 4, 4, 0],
            flags: vec![*b"me", *b"rd"],
        };
        let look = Look {
            areas: vec![area.clone(), Area { access: *b"---s", ..Area::default() }],
            in_core: vec![true, false],
            content: 7,
        };
        let outcome = Outcome { value: -22, read: 0xfeed, signal: (11, 1) };
        let steps = [
            Step { outcome, look: Some(look.clone()) },
            Step { outcome: Outcome::default(), look: None },
            Step { outcome, look: Some(Look { content: 8, ..look.clone() }) },
            Step { outcome, look: Some(Look::default()) },
        ];
        let (mut text, mut last) = (String::new(), None);
        steps.iter().for_each(|step| write_step(step, &mut last, &mut text));
        assert!(text.lines().nth(2).is_some_and(|line| line.ends_with("\t8\t=")), "{text}");
        let mut last = None;
        let read: Vec<Step> = text.lines().map(|line| read_step(line, &mut last).expect("a step")).collect();
        assert_eq!(read, steps);
    }
}
