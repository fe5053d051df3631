//! `foldspace bench`: experiments on Foldspace and on Linux, their figures, and what is made of them.
//!
//! ```text
//!   experiments.toml ─┐            ┌─ rows.rs      programs of guests/, counted and by the clock
//!   goals.toml ───────┼─ mod.rs ───┼─ maps.rs      readers of maps           ──►  Document  ──►  table, JSON, report, results
//!   the command line ─┘            └─ reverse.rs   reverse maps, in this process
//! ```

mod compare;
mod document;
mod experiment;
mod judge;
mod maps;
mod print;
mod report;
mod results;
mod reverse;
mod rows;
mod systems;
mod words;

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{latency, tearing};
use crate::args;
use document::{About, Document, Part, SCHEMA};
use experiment::{Experiment, Experiments, Program};
use rows::{Chosen, Effort};

pub use rows::names;
use systems::Column;

use super::goals::Goals;

/// Measures, or reads what was measured, and prints; 1 if a goal is missed or a row could not be measured.
pub fn bench(args: &args::Bench) -> Result<u8> {
    let wants_tables = args.report.is_none() && args.results.is_none() && args.compare.is_none();
    if args.names == [latency::ROW] && wants_tables {
        return latency::latency(args);
    }
    if args.names == [tearing::ROW] && wants_tables {
        return tearing::tearing(args);
    }
    let experiments = Experiments::load()?;
    // Before anything takes long.
    let old = args.compare.as_deref().map(read).transpose()?;
    let document = match &args.from[..] {
        [] => take(args, &experiments)?,
        [first, others @ ..] => {
            let mut document = read(first)?;
            for file in others {
                document.merge(read(file)?).with_context(|| file.display().to_string())?;
            }
            document
        }
    };
    if let Some(dir) = &args.report {
        report::write(dir, &document, &experiments)?;
    }
    if let Some(file) = &args.results {
        fs::write(file, results::page(&document, &experiments)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&document)?);
    } else if let Some(old) = &old {
        print!("{}", compare::compare(old, &document));
    } else {
        print::print(&document, &experiments);
    }
    let quick = document.about.effort == "quick";
    let failed = document.rows().any(|row| row.met == Some(false) || (judge::is_missing(row) && !quick));
    Ok(u8::from(failed))
}

fn read(file: &std::path::Path) -> Result<Document> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Document::parse(&text).with_context(|| file.display().to_string())
}

fn take(args: &args::Bench, experiments: &Experiments) -> Result<Document> {
    let started = Instant::now();
    let host = systems::host();
    let goals = Goals::load()?;
    let chosen = Selection::of(&args.names, experiments, &goals)?;
    let effort = Effort {
        quick: args.quick,
        repeats: args.repeats.unwrap_or(1),
        // Whoever asks for single rows wants a figure soon.
        pairs: args.pairs.unwrap_or(if chosen.whole { if args.quick { 1 } else { 3 } } else { 0 }),
        cpus: args.cpus.unwrap_or(2),
        accel: args.accel,
    };
    let columns = Column::all(args)?;
    let mut parts: Vec<Part> = Vec::new();
    for program in [Program::Basic, Program::Applications] {
        let rows = chosen.of_program(program);
        if rows.rows.is_empty() {
            continue;
        }
        for row in rows::measure(&rows, &columns, effort)? {
            let of = rows.rows.iter().find(|(name, _)| *name == row.row).map_or("", |(_, experiment)| &experiment.name);
            part(&mut parts, of).rows.push(row);
        }
    }
    if chosen.has("maps") && chosen.whole {
        part(&mut parts, "maps").rows.extend(maps::rows(args, &columns)?);
    }
    if chosen.has("reverse") {
        part(&mut parts, "reverse").rows.extend(reverse::rows()?);
    }
    let position = |name: &str| experiments.experiment.iter().position(|experiment| experiment.name == name);
    parts.sort_by_key(|part| position(&part.experiment));
    judge::derive(&mut parts, experiments);
    judge::judge(&mut parts, &goals);
    let used = |column: &&Column| {
        parts.iter().flat_map(|part| &part.rows).any(|row| {
            row.figures.contains_key(column.name)
                || row.wall.contains_key(column.name)
                || row.skipped.contains_key(column.name)
        })
    };
    let systems = columns.iter().filter(used).map(Column::facts).collect::<Result<_>>()?;
    let about = About {
        date: systems::date(),
        command: std::iter::once("./x".to_owned()).chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" "),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: systems::commit(),
        qemu: systems::qemu_version(),
        accel: effort.accel.name().to_owned(),
        host,
        effort: if args.quick { "quick" } else { "full" }.to_owned(),
        repeats: effort.repeats,
        pairs: effort.pairs,
        cpus: effort.cpus,
        seconds: started.elapsed().as_secs_f64().round(),
    };
    Ok(Document { schema: SCHEMA, about, systems, experiments: parts })
}

fn part<'a>(parts: &'a mut Vec<Part>, experiment: &str) -> &'a mut Part {
    let at = parts.iter().position(|part| part.experiment == experiment).unwrap_or_else(|| {
        parts.push(Part { experiment: experiment.to_owned(), rows: Vec::new() });
        parts.len() - 1
    });
    &mut parts[at]
}

/// What is measured.
struct Selection<'a> {
    experiments: Vec<&'a Experiment>,
    rows: Vec<(Program, String, &'a Experiment)>,
    /// Experiments, and not single rows.
    whole: bool,
}

impl<'a> Selection<'a> {
    /// Experiments by their names and rows by the beginning of theirs; everything without names.
    fn of(given: &[String], experiments: &'a Experiments, goals: &Goals) -> Result<Self> {
        let mut all = Vec::new();
        for program in [Program::Basic, Program::Applications] {
            if !experiments.experiment.iter().any(|experiment| experiment.program == program) {
                continue;
            }
            let names = program.guest().map(rows::names).transpose()?.unwrap_or_default();
            experiments.cover(program, &names)?;
            for name in names {
                let of = experiments.experiment.iter().find(|e| e.program == program && e.has(&name));
                all.extend(of.map(|experiment| (program, name, experiment)));
            }
        }
        select(given, experiments, all, goals)
    }

    fn of_program(&self, program: Program) -> Chosen<'a> {
        let of = self.rows.iter().filter(|(of, ..)| *of == program);
        Chosen { program, rows: of.map(|(_, row, experiment)| (row.clone(), *experiment)).collect() }
    }

    fn has(&self, experiment: &str) -> bool {
        self.experiments.iter().any(|chosen| chosen.name == experiment)
    }
}

fn select<'a>(
    given: &[String],
    experiments: &'a Experiments,
    all: Vec<(Program, String, &'a Experiment)>,
    goals: &Goals,
) -> Result<Selection<'a>> {
    let whole: Vec<&Experiment> = experiments
        .experiment
        .iter()
        .filter(|experiment| given.is_empty() || given.contains(&experiment.name))
        .collect();
    let beginnings: Vec<&String> = given.iter().filter(|name| experiments.named(name).is_none()).collect();
    if let Some(unknown) = beginnings.iter().find(|name| !all.iter().any(|(_, row, _)| row.starts_with(**name))) {
        let names: Vec<&str> = experiments.experiment.iter().map(|experiment| experiment.name.as_str()).collect();
        let rows: Vec<&str> = all.iter().map(|(_, row, _)| row.as_str()).collect();
        bail!(
            "no experiment is called {unknown}, and no row begins so; there are the experiments {}, {} and {} by themselves, and the rows {}",
            names.join(", "),
            latency::ROW,
            tearing::ROW,
            rows.join(", ")
        );
    }
    let direct = |row: &str, of: &Experiment| {
        whole.iter().any(|experiment| experiment.name == of.name)
            || beginnings.iter().any(|name| row.starts_with(*name))
    };
    let referred: Vec<String> = all
        .iter()
        .filter(|(_, row, of)| direct(row, of))
        .filter_map(|(_, row, _)| goals.of(row))
        .flat_map(|goal| goal.others())
        .map(str::to_owned)
        .collect();
    let rows = all.into_iter().filter(|(_, row, of)| direct(row, of) || referred.contains(row)).collect();
    Ok(Selection { whole: !whole.is_empty(), experiments: whole, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(given: &[&str]) -> Result<Vec<String>> {
        let (experiments, goals) = (Experiments::load()?, Goals::load()?);
        let all = ["fork_4", "fork_512", "fork_3072", "getppid"].map(|row| {
            let of = experiments.experiment.iter().find(|experiment| experiment.has(row)).expect("it is in one");
            (Program::Basic, row.to_owned(), of)
        });
        let given: Vec<String> = given.iter().map(|name| (*name).to_owned()).collect();
        let selection = select(&given, &experiments, all.into(), &goals)?;
        Ok(selection.rows.into_iter().map(|(_, row, _)| row).collect())
    }

    #[test]
    fn experiments_are_chosen_by_name_and_rows_by_their_beginning_with_what_they_are_compared_with() {
        assert_eq!(chosen(&["fork_51"]).unwrap(), ["fork_4", "fork_512", "fork_3072"]);
        assert_eq!(chosen(&["get"]).unwrap(), ["getppid"]);
        assert_eq!(chosen(&["basic", "fork_4"]).unwrap(), ["fork_4", "getppid"]);
        assert_eq!(chosen(&[]).unwrap().len(), 4);
        assert!(chosen(&["none"]).is_err());
    }
}
