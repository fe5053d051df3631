//! Tables for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

/// What stands for a figure that is not there.
pub const NONE: &str = "–";

/// A table whose columns, except the first, are numbers.
pub fn with_header<const N: usize>(header: [&str; N]) -> Table {
    with_header_of(&header.map(str::to_owned))
}

/// The same with as many columns as there are.
pub fn with_header_of(header: &[String]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A number with thousands separated, and a decimal where it says something.
pub fn number(value: f64) -> String {
    let decimals = if value.fract() != 0.0 && value.abs() < 100.0 { 1 } else { 0 };
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// The same for a figure that may be missing.
pub fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), number)
}

/// How many times less the second is than the first.
pub fn ratio(much: Option<f64>, little: Option<f64>) -> String {
    match (much, little) {
        (Some(much), Some(little)) if little > 0.0 => {
            let ratio = much / little;
            if ratio >= 100.0 { format!("{} ×", number(ratio.round())) } else { format!("{ratio:.1} ×") }
        }
        _ => NONE.to_owned(),
    }
}

/// Nanoseconds in a unit that fits.
pub fn time(ns: f64) -> String {
    match ns {
        1e9.. => format!("{:.2} s", ns / 1e9),
        1e6.. => format!("{:.2} ms", ns / 1e6),
        1e3.. => format!("{:.2} µs", ns / 1e3),
        _ => format!("{ns:.0} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let seen = [0.0, 7.25, 529.0, 529.4, 3640.0, 14_900_000.0, -1200.0].map(number);
        assert_eq!(seen, ["0", "7.2", "529", "529", "3,640", "14,900,000", "-1,200"]);
    }

    #[test]
    fn ratios_say_how_much_less() {
        assert_eq!(ratio(Some(3000.0), Some(1500.0)), "2.0 ×");
        assert_eq!(ratio(Some(15_000_000.0), Some(10_000.0)), "1,500 ×");
        assert_eq!(ratio(Some(1.0), Some(0.0)), NONE);
        assert_eq!(ratio(None, Some(1.0)), NONE);
    }

    #[test]
    fn times_have_units() {
        assert_eq!([12.0, 1500.0, 2.5e6, 3e9].map(time), ["12 ns", "1.50 µs", "2.50 ms", "3.00 s"]);
    }
}
