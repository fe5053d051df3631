//! `foldspace bench`.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::goals::{Goals, Met};
use super::guest::{Measurement, Time};
use super::latency;
use super::table::{self, maybe, number, ratio};
use super::tearing;
use crate::args;
use crate::images::Images;
use crate::linux;
use crate::machine::System;

const PROGRAM: &str = "bench-basic";

/// Room for the largest row, a process of 3 GiB, while the pages of the row before may still wait to be freed; and
/// without it.
const MEMORY: u64 = 5 << 30;
const QUICK_MEMORY: u64 = 2 << 30;

/// A line of the measuring program.
#[derive(Deserialize)]
struct Line {
    row: String,
    work: String,
    unit: String,
    per: String,
    /// Missing if the row was skipped.
    value: Option<f64>,
    skipped: Option<String>,
}

/// A row with what is known of it from both systems.
#[derive(Serialize)]
struct Row {
    row: String,
    work: String,
    unit: String,
    per: String,
    linux: Option<f64>,
    foldspace: Option<f64>,
    /// Why there is no value.
    skipped: Option<String>,
    goal: Option<String>,
    /// What Linux 7.2 takes, where there is a goal.
    linux_7_2: Option<f64>,
    met: Option<bool>,
}

/// Measures, prints, and returns 1 if a goal is missed or a row could not be measured.
pub fn bench(args: &args::Bench) -> Result<u8> {
    if args.rows == [latency::ROW] {
        return latency::latency(args);
    }
    if args.rows == [tearing::ROW] {
        return tearing::tearing(args);
    }
    let goals = Goals::load()?;
    let names = chosen(&args.rows, &all_rows()?, &goals)?;
    let vmlinuz = linux::kernel(args.linux.as_deref())?;
    let mut command: Vec<OsString> = vec![PROGRAM.into()];
    command.extend(args.quick.then(|| "--quick".into()));
    command.extend(names.iter().map(OsString::from));
    let take = |system| {
        Measurement {
            system,
            vmlinuz: Some(&vmlinuz),
            memory: if args.quick { QUICK_MEMORY } else { MEMORY },
            time: Time::Instructions,
            command: &command,
            lines: names.len() as u64,
        }
        .take::<Line>()
    };
    let rows = combine(take(System::Foldspace)?, &take(System::Linux)?, &goals);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print(&rows);
    }
    let failed = rows.iter().any(|row| row.met == Some(false) || (row.foldspace.is_none() && !args.quick));
    Ok(u8::from(failed))
}

/// The names of all rows. The program is one of ours and runs on the host as well.
fn all_rows() -> Result<Vec<String>> {
    let program = Images::find()?.guest(PROGRAM).with_context(|| format!("{PROGRAM} is not built: run `./x build`"))?;
    let listed = Command::new(&program).arg("--list").output();
    let listed = listed.with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8(listed.stdout).context("a row's name is not UTF-8")?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// The rows that start with one of the given names, and those that their goals refer to; all rows without names.
fn chosen(given: &[String], all: &[String], goals: &Goals) -> Result<Vec<String>> {
    if given.is_empty() {
        return Ok(all.to_vec());
    }
    if let Some(unknown) = given.iter().find(|name| !all.iter().any(|row| row.starts_with(*name))) {
        bail!(
            "no row is called {unknown}; there are: {}, and by themselves {} and {}",
            all.join(", "),
            latency::ROW,
            tearing::ROW
        );
    }
    let direct = |row: &String| given.iter().any(|name| row.starts_with(name));
    let referred: Vec<&str> =
        all.iter().filter(|row| direct(row)).filter_map(|row| goals.of(row)).flat_map(|goal| goal.others()).collect();
    Ok(all.iter().filter(|row| direct(row) || referred.contains(&row.as_str())).cloned().collect())
}

fn combine(ours: Vec<Line>, theirs: &[Line], goals: &Goals) -> Vec<Row> {
    let values: Vec<(String, Option<f64>)> = ours.iter().map(|line| (line.row.clone(), line.value)).collect();
    let measured = |name: &str| values.iter().find(|(row, _)| row == name).and_then(|(_, value)| *value);
    ours.into_iter()
        .map(|line| {
            let goal = goals.of(&line.row);
            let met = goal.zip(line.value).map(|(goal, value)| goal.judge(value, measured));
            Row {
                linux: theirs.iter().find(|other| other.row == line.row).and_then(|other| other.value),
                goal: goal.map(|goal| goal.words()),
                linux_7_2: goal.and_then(|goal| goal.linux),
                met: match met {
                    Some(Met::Yes) => Some(true),
                    Some(Met::No) => Some(false),
                    Some(Met::Unknown) | None => None,
                },
                row: line.row,
                work: line.work,
                unit: line.unit,
                per: line.per,
                foldspace: line.value,
                skipped: line.skipped,
            }
        })
        .collect()
}

fn print(rows: &[Row]) {
    let mut table = table::with_header(["work", "Linux", "Foldspace", "ratio", "Linux 7.2", "goal", ""]);
    for row in rows {
        let mut unit = if row.unit == "instructions" { String::new() } else { format!(", {}", row.unit) };
        if row.per != "call" {
            unit.push_str(&format!(", per {}", row.per));
        }
        let verdict = match row.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None if row.goal.is_some() => "not decided",
            None => "",
        };
        table.add_row([
            format!("{}{unit}", row.work),
            maybe(row.linux),
            maybe(row.foldspace),
            ratio(row.linux, row.foldspace),
            row.linux_7_2.map(number).unwrap_or_default(),
            row.goal.clone().unwrap_or_default(),
            verdict.to_owned(),
        ]);
    }
    println!("{table}");
    for row in rows {
        if let Some(reason) = &row.skipped {
            println!("{}: {reason}", row.row);
        }
    }
    let count = |met| rows.iter().filter(|row| row.met == Some(met)).count();
    println!("Guest instructions unless a unit is given. Goals met: {}, missed: {}.", count(true), count(false));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(row: &str, value: Option<f64>) -> Line {
        let text = |text: &str| text.to_owned();
        let skipped = value.is_none().then(|| text("too large"));
        Line { row: text(row), work: text(row), unit: text("instructions"), per: text("call"), value, skipped }
    }

    #[test]
    fn rows_of_both_systems_meet_their_goals_or_not() {
        let goals = Goals::load().unwrap();
        let ours =
            [("fork_4", Some(9000.0)), ("fork_512", Some(9500.0)), ("fork_3072", None), ("munmap_256", Some(251.0))];
        let theirs = [line("munmap_256", Some(700.0)), line("fork_4", Some(90_000.0))];
        let rows = combine(ours.map(|(row, value)| line(row, value)).into(), &theirs, &goals);
        assert_eq!(rows.iter().map(|row| row.met).collect::<Vec<_>>(), [None, None, None, Some(false)]);
        assert_eq!(rows.iter().map(|row| row.linux).collect::<Vec<_>>(), [Some(90_000.0), None, None, Some(700.0)]);
    }

    #[test]
    fn rows_are_chosen_by_their_beginning_with_what_they_are_compared_with() {
        let goals = Goals::load().unwrap();
        let all = ["fork_4", "fork_512", "fork_3072", "getppid"].map(str::to_owned);
        assert_eq!(chosen(&["fork_51".into()], &all, &goals).unwrap(), ["fork_4", "fork_512", "fork_3072"]);
        assert_eq!(chosen(&["get".into()], &all, &goals).unwrap(), ["getppid"]);
        assert!(chosen(&["none".into()], &all, &goals).is_err());
    }
}
