//! The command line.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use comfy_table::{ContentArrangement, Table};

use crate::explore::{Effort, Tally, explore_case, replay};
use crate::models::{MODELS, Model};

/// Explores the interleavings of the memory manager's concurrent protocols.
#[derive(Parser)]
struct Args {
    /// Models whose names contain one of these; all, if there is none.
    names: Vec<String>,
    /// Schedules of each case: a sixth of them random, a sixth by PCT, the rest with one preemption, at points at equal distances (all points, if
    /// there are fewer).
    #[arg(long, env = "FOLDSPACE_SCHEDULES", default_value_t = 72)]
    iterations: usize,
    /// Where random schedules begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the case of this number, of one model.
    #[arg(long)]
    case: Option<usize>,
    /// Runs one schedule, as it was printed when it failed.
    #[arg(long, requires = "case")]
    replay: Option<String>,
    /// Names the models and what each explores.
    #[arg(long)]
    list: bool,
}

pub fn main() -> ExitCode {
    let args = Args::parse();
    // What panicked is said below, with the case; shuttle's own hook prints the schedule.
    std::panic::set_hook(Box::new(|panic| {
        if let Some(location) = panic.location() {
            eprintln!("at {location}");
        }
    }));
    let chosen: Vec<&Model> = MODELS
        .iter()
        .filter(|model| args.names.is_empty() || args.names.iter().any(|name| model.name.contains(name.as_str())))
        .collect();
    if chosen.is_empty() {
        eprintln!("no model has such a name: `--list` names them");
        return ExitCode::FAILURE;
    }
    if args.list {
        for model in chosen {
            println!("{:<12} {}", model.name, model.about);
        }
        return ExitCode::SUCCESS;
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["model", "cases", "threads", "schedules", "steps", "outcomes", "seconds"]);
    let all_began = Instant::now();
    let mut schedules = 0;
    for model in chosen {
        let began = Instant::now();
        let mut tally = Tally::default();
        let cases = (model.cases)();
        for (number, case) in
            cases.iter().enumerate().filter(|(number, _)| args.case.is_none_or(|only| only == *number))
        {
            let each = args.iterations.div_ceil(model.share);
            let (systematic, random) = (each * 2 / 3, each.div_ceil(6));
            let effort = Effort { systematic, random, seed: args.seed + number as u64 };
            let explored = match &args.replay {
                Some(schedule) => replay(case, schedule),
                None => explore_case(case, effort, &mut tally),
            };
            if let Err(failure) = explored {
                println!(
                    "FAILED {} case {number} ({case}), {}, after {} schedules, {:.1} s: {}",
                    model.name,
                    failure.scheduler,
                    schedules + tally.schedules,
                    all_began.elapsed().as_secs_f64(),
                    failure.what
                );
                return ExitCode::FAILURE;
            }
        }
        schedules += tally.schedules;
        let threads = cases.iter().map(|case| case.actors.len()).max().unwrap_or(0);
        table.add_row([
            model.name.to_string(),
            cases.len().to_string(),
            threads.to_string(),
            tally.schedules.to_string(),
            tally.steps.to_string(),
            format!("{} of {}", tally.seen, tally.serial),
            format!("{:.1}", began.elapsed().as_secs_f64()),
        ]);
    }
    println!("{table}");
    ExitCode::SUCCESS
}
