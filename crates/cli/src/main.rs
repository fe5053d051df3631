//! The command `foldspace`: see `docs/using.md`.

mod archive;
mod args;
mod diff;
mod explore;
mod frames;
mod images;
mod json;
mod linux;
mod machine;
mod measure;
mod program;
mod refusal;
mod replay;
mod reverse;
mod run;
mod snapshot;
mod soak;
mod verdict;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::refusal::Refusal;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(run) => run::run(&run),
        Command::Frames(run) => run::frames(&run),
        Command::Bench(bench) => measure::bench(&bench),
        Command::Profile(profile) => measure::profile(&profile),
        Command::Demo(demo) => measure::demo(&demo),
        Command::Diff(arguments) => diff::diff(&arguments),
        Command::Explore(arguments) => explore::explore(&arguments),
        Command::Replay(arguments) => replay::replay(&arguments),
        Command::Reverse(arguments) => reverse::reverse(&arguments),
        Command::Soak(arguments) => soak::soak(&arguments),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("foldspace: {error:#}");
            ExitCode::from(error.downcast_ref::<Refusal>().map_or(refusal::OUR_FAULT, Refusal::status))
        }
    }
}
