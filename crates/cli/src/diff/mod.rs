//! `foldspace diff`: the same random memory calls on the kernel of this machine and on Foldspace, compared after each.

mod campaign;
mod guest;
mod report;

use std::num::NonZeroUsize;
use std::{io, thread};

use anyhow::{Context, Result, bail};
use foldspace_diff::generate::{Group, Menu, Since};
use foldspace_diff::host;

use crate::args;

/// Runs the campaign and prints what came of it. 1 if something differed that no rule explains.
pub fn diff(args: &args::Diff) -> Result<u8> {
    host::fix_addresses().context("cannot switch off random addresses (personality)")?;
    let jobs = args.jobs.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let campaign = campaign::Campaign {
        seed: args.seed,
        ops: args.ops,
        first: args.sequence.unwrap_or(0),
        // One sequence only, if it was named.
        sequences: if args.sequence.is_some() { 1 } else { u64::MAX },
        differences: args.differences,
        jobs,
        menu: menu(args)?,
    };
    let outcome = match args.guest {
        true => guest::compare_inside(args, &campaign.menu, &groups(args)?.join(","))?,
        false => campaign.run()?,
    };
    if let Some(path) = &args.program
        && let Some(found) = outcome.found.first()
    {
        std::fs::write(path, &found.program).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        report::json(&campaign, &outcome, &mut io::stdout().lock())?;
    } else {
        report::table(&campaign, &outcome);
    }
    Ok(u8::from(!outcome.found.is_empty()))
}

/// The groups of calls that were asked for, by name.
fn groups(args: &args::Diff) -> Result<Vec<&'static str>> {
    let names: Vec<&str> = Group::ALL.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = args.only.iter().chain(&args.without).find(|name| !names.contains(&name.as_str())) {
        bail!("no group of calls is called {unknown}; there are: {}", names.join(", "));
    }
    let named = |list: &[String], name: &str| list.iter().any(|group| group == name);
    // A Linux inside is an older one, and is asked by nobody beforehand.
    let by_default = |group: Group| match args.linux.is_some() {
        true => group.is_as_in_6_1(),
        false => group != Group::Names || host::names_memory(),
    };
    let wanted = |name: &str, group| match args.only.is_empty() {
        true => by_default(group) && !named(&args.without, name),
        false => named(&args.only, name) && !named(&args.without, name),
    };
    Ok(Group::ALL.into_iter().filter(|(name, group)| wanted(name, *group)).map(|(name, _)| name).collect())
}

fn menu(args: &args::Diff) -> Result<Menu> {
    let names = groups(args)?;
    let since = if args.linux.is_some() { Since::Linux6_1 } else { Since::Linux6_18 };
    let groups = Group::ALL.into_iter().filter(|(name, _)| names.contains(name)).map(|(_, group)| group);
    Ok(Menu::of(groups, since))
}
