//! Does random memory calls on the kernel that it runs on, and prints what came of each: one line an operation, as the crate
//! `foldspace-diff` writes them. `foldspace diff --guest` reads them.
//!
//! `diff-calls [--seed S] [--ops N] [--only GROUP,...] [--since 6.1|6.18]`

use std::io::{self, Write};
use std::process::ExitCode;

use foldspace_diff::generate::{Group, Menu, Since, sequence};
use foldspace_diff::{Helper, host, write_step};
use lexopt::prelude::*;

struct Arguments {
    seed: u64,
    ops: u64,
    groups: Vec<Group>,
    since: Since,
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    let groups = Group::ALL.into_iter().map(|(_, group)| group).collect();
    let mut arguments = Arguments { seed: 1, ops: 1000, groups, since: Since::Linux6_18 };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seed") => arguments.seed = parser.value()?.parse()?,
            Long("ops") => arguments.ops = parser.value()?.parse()?,
            Long("since") => {
                arguments.since = match &*parser.value()?.string()? {
                    "6.1" => Since::Linux6_1,
                    _ => Since::Linux6_18,
                };
            }
            Long("only") => {
                let names = parser.value()?.string()?;
                let wanted = |name: &str| names.split(',').any(|wanted| wanted == name);
                arguments.groups =
                    Group::ALL.into_iter().filter(|(name, _)| wanted(name)).map(|(_, group)| group).collect();
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let done = arguments().map_err(|error| error.to_string()).and_then(|arguments| run(&arguments));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("diff-calls: {reason}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    // Where there are no random addresses there is nothing to switch off, and perhaps no call for it.
    let _ = host::fix_addresses();
    let mut helper = Helper::start().map_err(|error| error.to_string())?;
    let menu = Menu::of(arguments.groups.iter().copied(), arguments.since);
    let (mut ops, mut number) = (0, 0);
    while ops < arguments.ops {
        let wanted = sequence(arguments.seed, number, &menu);
        helper.begin(&wanted).map_err(|error| error.to_string())?;
        let (steps, crash) = helper.finish().map_err(|error| error.to_string())?;
        let mut text = format!("sequence {number}\n");
        let mut last = None;
        steps.iter().for_each(|step| write_step(step, &mut last, &mut text));
        if let Some(crash) = crash {
            text += &format!("crash {:#x}\n", crash.status);
        }
        io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())?;
        ops += wanted.len() as u64;
        number += 1;
    }
    Ok(())
}
