//! What readers of maps see, and what they cost, as rows.

use anyhow::Result;

use super::document::{Figure, Row};
use super::systems::Column;
use crate::args;
use crate::measure::{latency, tearing};

/// The rows of both programs. They run on Foldspace and on the first Linux.
pub fn rows(args: &args::Bench, _columns: &[Column]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for seen in latency::take(args)? {
        for (beside, figures) in &seen.beside {
            let words = match beside.as_str() {
                "alone" => "alone",
                "busy" => "beside two that scan another's maps",
                _ => "beside two that scan its maps",
            };
            let name = format!("maps_latency_{}_{beside}", seen.view);
            let clock = match seen.view {
                "own" => "executed by itself",
                "elapsed" => "from call to return",
                _ => "from call to return, several processors",
            };
            for (name, what, value) in
                [(name.clone(), "mean", figures.mean), (format!("{name}_p99_9"), "99.9 %", figures.p99_9)]
            {
                let row = row_of(&mut rows, &name, seen.unit, "call");
                row.work = format!("a page mapped or unmapped, {clock}, {words}: {what}");
                row.figures.insert(seen.system.to_owned(), Figure::exact((value * 10.0).round() / 10.0));
            }
        }
    }
    const SUMS: [(&str, &str); 5] = [
        ("changes", "changes of a writer"),
        ("snapshots", "snapshots of its maps, read meanwhile"),
        ("crossed", "snapshots with a change in between"),
        ("questions", "questions by PROCMAP_QUERY"),
        ("wrong", "snapshots and answers that show what never was"),
    ];
    for seen in tearing::take(args)? {
        for ((name, work), sum) in SUMS.iter().zip(seen.sums()) {
            let row = row_of(&mut rows, &format!("maps_tearing_{name}"), "count", "run");
            (*work).clone_into(&mut row.work);
            row.figures.insert(seen.system.to_owned(), Figure::exact(sum as f64));
        }
    }
    Ok(rows)
}

fn row_of<'a>(rows: &'a mut Vec<Row>, name: &str, unit: &str, per: &str) -> &'a mut Row {
    let at = rows.iter().position(|row| row.row == name).unwrap_or_else(|| {
        rows.push(Row { row: name.to_owned(), unit: unit.to_owned(), per: per.to_owned(), ..Row::default() });
        rows.len() - 1
    });
    &mut rows[at]
}
