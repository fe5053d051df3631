//! Two runs beside each other: what became better or worse, beyond what differs from run to run.

use super::document::{Clock, Document, Figure, Row};
use crate::measure::table::{self, number};

/// Instructions of the same kernel differ by less than that, wherever the figures of a run lie close together.
const COUNTED_NOISE: f64 = 0.01;
/// Times do not; their spreads must not even touch.
const WALL_NOISE: f64 = 0.10;
/// Rows in percent lie around nothing: there so many points.
const POINTS_NOISE: f64 = 1.0;

/// What has become of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Better,
    Worse,
    Same,
}

/// A text for a terminal.
pub fn compare(old: &Document, new: &Document) -> String {
    let mut table = table::with_header(["row", "old", "new", "change", ""]);
    let (mut same, mut only_old, mut only_new) = (0, Vec::new(), Vec::new());
    for row in new.rows() {
        let Some(before) = old.row(&row.row) else {
            only_new.push(row.row.as_str());
            continue;
        };
        for (clock, unit) in [(Clock::Counted, row.unit.as_str()), (Clock::Wall, "ns")] {
            for (column, figure) in row.by(clock) {
                let Some(earlier) = before.by(clock).get(column) else { continue };
                let change = changed(earlier, figure, clock, row);
                if change == Change::Same {
                    same += 1;
                    continue;
                }
                table.add_row([
                    format!("{}, {column}, {unit}", row.row),
                    number(earlier.median),
                    number(figure.median),
                    in_words(earlier.median, figure.median, row),
                    if change == Change::Better { "better" } else { "WORSE" }.to_owned(),
                ]);
            }
        }
    }
    only_old.extend(old.rows().map(|row| row.row.as_str()).filter(|name| new.row(name).is_none()));
    let mut text = format!("{} ({}) beside {} ({})\n", new.about.date, version(new), old.about.date, version(old));
    if table.is_empty() {
        text += "nothing changed beyond the noise\n";
    } else {
        text += &format!("{table}\n");
    }
    text += &format!(
        "{same} figures are the same, to {} % counted and {} % by the clock, or within their spreads\n",
        COUNTED_NOISE * 100.0,
        WALL_NOISE * 100.0
    );
    for (rows, which) in [(only_old, "old"), (only_new, "new")] {
        if !rows.is_empty() {
            text += &format!("only in the {which} run: {}\n", rows.join(", "));
        }
    }
    text
}

fn version(document: &Document) -> &str {
    document.about.commit.as_deref().unwrap_or(&document.about.version)
}

/// How far apart two medians are.
fn in_words(old: f64, new: f64, row: &Row) -> String {
    if row.unit == "%" {
        format!("{:+.1} points", new - old)
    } else if old == 0.0 {
        table::NONE.to_owned()
    } else {
        format!("{:+.1} %", (new / old - 1.0) * 100.0)
    }
}

/// Worse and better only where the two spreads do not touch, and the medians lie apart.
fn changed(old: &Figure, new: &Figure, clock: Clock, row: &Row) -> Change {
    let noise = if clock == Clock::Wall || row.unit == "ns" { WALL_NOISE } else { COUNTED_NOISE };
    let least = if row.unit == "%" { POINTS_NOISE } else { old.median.abs() * noise };
    let apart = (new.median - old.median).abs() > least;
    let touching = new.low <= old.high && old.low <= new.high;
    // Of instructions some runs have an interrupt in them: there the medians decide where the spread is wide.
    if !apart || (touching && noise == WALL_NOISE) {
        return Change::Same;
    }
    let more_is_better = clock == Clock::Counted && row.more_is_better();
    if (new.median > old.median) == more_is_better { Change::Better } else { Change::Worse }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_the_noise_is_the_same() {
        let row = Row { unit: "instructions".to_owned(), ..Row::default() };
        let figure = |median: f64, low, high| Figure { median, low, high, runs: 3 };
        let (old, close) = (figure(1000.0, 990.0, 1010.0), figure(1005.0, 1000.0, 1010.0));
        assert_eq!(changed(&old, &close, Clock::Counted, &row), Change::Same);
        assert_eq!(changed(&old, &figure(1020.0, 1000.0, 1030.0), Clock::Counted, &row), Change::Worse);
        assert_eq!(changed(&old, &figure(900.0, 880.0, 910.0), Clock::Counted, &row), Change::Better);
        // Half as much again, but the spreads touch.
        assert_eq!(changed(&old, &figure(1500.0, 1000.0, 2000.0), Clock::Wall, &row), Change::Same);
        assert_eq!(changed(&old, &figure(1500.0, 1400.0, 2000.0), Clock::Wall, &row), Change::Worse);
    }

    #[test]
    fn percent_are_compared_by_points() {
        let row = Row { unit: "%".to_owned(), ..Row::default() };
        let changed = |old, new| changed(&Figure::exact(old), &Figure::exact(new), Clock::Counted, &row);
        assert_eq!((changed(0.0, 0.9), changed(0.0, 1.1)), (Change::Same, Change::Worse));
        assert_eq!(
            (in_words(0.0, 1.1, &row), in_words(0.0, 1.1, &Row::default())),
            ("+1.1 points".to_owned(), "–".to_owned())
        );
    }

    #[test]
    fn more_executions_a_second_are_better() {
        let row = Row { unit: "executions a second".to_owned(), ..Row::default() };
        assert_eq!(changed(&Figure::exact(10.0), &Figure::exact(20.0), Clock::Counted, &row), Change::Better);
    }
}
