//! What a campaign found, for people and for programs.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use foldspace_diff::KINDS;
use foldspace_diff::compare::RULES;
use serde::Serialize;

use super::campaign::{Campaign, Outcome};
use crate::measure::table::{self, number};

/// Results from here on are signals.
const SIGNALS: i64 = 1000;

/// The errors that memory calls give.
const ERRNOS: [(i64, &str); 15] = [
    (1, "EPERM"),
    (4, "EINTR"),
    (9, "EBADF"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (19, "ENODEV"),
    (22, "EINVAL"),
    (27, "EFBIG"),
    (38, "ENOSYS"),
    (75, "EOVERFLOW"),
    (95, "EOPNOTSUPP"),
];

/// Operations by kind and result, rules, differences, throughput.
pub fn table(campaign: &Campaign, outcome: &Outcome) {
    let mut table = table::with_header(["operation", "done", "succeeded", "failed, or ended by a signal"]);
    for (kind, results) in by_kind(outcome) {
        let done: u64 = results.values().sum();
        let failed: Vec<String> = results
            .iter()
            .filter(|(result, _)| **result != 0)
            .map(|(result, count)| format!("{} {}", name_of(*result), count_of(*count)))
            .collect();
        let succeeded = results.get(&0).copied().unwrap_or(0);
        table.add_row([KINDS[kind].to_owned(), count_of(done), count_of(succeeded), failed.join(", ")]);
    }
    println!("{table}");
    let mut rules = table::with_header(["known difference", "times", "why"]);
    rules.set_content_arrangement(comfy_table::ContentArrangement::Dynamic).set_width(130);
    for ((name, reason), count) in RULES.iter().zip(outcome.counts.rules) {
        let reason: Vec<&str> = reason.split_whitespace().collect();
        rules.add_row([(*name).to_owned(), count_of(count), reason.join(" ")]);
    }
    println!("{rules}");
    for found in &outcome.found {
        println!("\nDifferent, seed {}, {}", campaign.seed, found.text());
    }
    if let Some(found) = outcome.found.first() {
        println!("The first as a C program:\n\n{}", found.program);
    }
    let counts = &outcome.counts;
    println!(
        "{} operations in {} sequences, compared after each; {} sequences left as a rule says; {} differences that no rule explains.",
        count_of(counts.ops),
        count_of(counts.sequences),
        count_of(counts.parted),
        outcome.found.len()
    );
    println!(
        "{:.1} s with {} jobs: {} operations a second.",
        seconds(outcome),
        campaign.jobs,
        count_of(throughput(outcome) as u64)
    );
}

/// The same as one document.
pub fn json(campaign: &Campaign, outcome: &Outcome, out: &mut impl Write) -> Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        seed: u64,
        jobs: usize,
        operations: u64,
        sequences: u64,
        parted: u64,
        results: BTreeMap<&'a str, BTreeMap<String, u64>>,
        rules: BTreeMap<&'a str, u64>,
        differences: Vec<Difference<'a>>,
        seconds: f64,
        operations_per_second: f64,
    }
    #[derive(Serialize)]
    struct Difference<'a> {
        sequence: u64,
        text: String,
        program: &'a str,
    }
    let counts = &outcome.counts;
    let document = Document {
        seed: campaign.seed,
        jobs: campaign.jobs,
        operations: counts.ops,
        sequences: counts.sequences,
        parted: counts.parted,
        results: by_kind(outcome)
            .into_iter()
            .map(|(kind, results)| {
                (KINDS[kind], results.into_iter().map(|(result, count)| (name_of(result), count)).collect())
            })
            .collect(),
        rules: RULES.iter().zip(counts.rules).map(|((name, _), count)| (*name, count)).collect(),
        differences: outcome
            .found
            .iter()
            .map(|found| Difference { sequence: found.sequence, text: found.text(), program: &found.program })
            .collect(),
        seconds: seconds(outcome),
        operations_per_second: throughput(outcome),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)?;
    Ok(())
}

fn by_kind(outcome: &Outcome) -> BTreeMap<usize, BTreeMap<i64, u64>> {
    let mut kinds: BTreeMap<usize, BTreeMap<i64, u64>> = BTreeMap::new();
    for ((kind, result), count) in &outcome.counts.outcomes {
        kinds.entry(*kind).or_default().insert(*result, *count);
    }
    kinds
}

fn name_of(result: i64) -> String {
    match result {
        0 => "success".to_owned(),
        signal if signal == SIGNALS + 11 => "SIGSEGV".to_owned(),
        signal if signal == SIGNALS + 7 => "SIGBUS".to_owned(),
        signal if signal >= SIGNALS => format!("signal {}", signal - SIGNALS),
        errno => ERRNOS
            .iter()
            .find(|(number, _)| *number == errno)
            .map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned()),
    }
}

fn count_of(count: u64) -> String {
    number(count as f64)
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.elapsed.as_secs_f64()
}

fn throughput(outcome: &Outcome) -> f64 {
    outcome.counts.ops as f64 / seconds(outcome).max(1e-9)
}
