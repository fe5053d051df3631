//! Memory orderings, each weakened in turn: which test of loom's notices.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::list::SOURCES;

/// Files whose atomics loom follows, those of frames included where a test of loom's has such a slot of its own; and the tests that are about them.
const EXPLORED: [(&str, &str); 6] = [
    ("frame/record.rs", "record::loom::"),
    ("space/change.rs", "change::loom::"),
    ("space/marks.rs", "marks::loom::"),
    ("table/entry.rs", "record::loom::"),
    ("vma/tree/node/mod.rs", "tree::tests::loom::"),
    ("vma/tree/version.rs", "tree::tests::loom::"),
];

/// An ordering that no test notices the lack of, and why it is there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unnoticed {
    file: String,
    /// A piece of its line.
    line: String,
    /// What it would become; anything weaker, if this is not given.
    to: Option<String>,
    pub because: String,
}

impl Unnoticed {
    /// Whether it is said of this one.
    pub fn is_of(&self, order: &Weaker) -> bool {
        self.file == order.file && order.text.contains(&self.line) && self.to.as_ref().is_none_or(|to| to == order.to)
    }
}

/// An ordering, and what it becomes.
pub struct Weaker {
    pub file: &'static str,
    tests: &'static str,
    /// From 1.
    pub line: usize,
    pub text: String,
    pub from: &'static str,
    pub to: &'static str,
    /// Where `Ordering::..` is in the file.
    at: usize,
}

impl Weaker {
    /// Why nobody notices, if that is known.
    pub fn excuse<'l>(&self, list: &'l [Unnoticed]) -> Option<&'l str> {
        let found = list.iter().find(|entry| entry.is_of(self));
        found.map(|entry| entry.because.as_str())
    }
}

/// What an ordering is weakened to, in a call that `before` ends with.
fn weaker(order: &str, before: &str) -> &'static [&'static str] {
    let last = |call: &str| before.rfind(call).map_or(0, |at| at + 1);
    let (load, store) = (last(".load("), last(".store("));
    let both = last(".swap(").max(last(".fetch_")).max(last(".compare_exchange"));
    match order {
        "AcqRel" => &["Acquire", "Release"],
        "SeqCst" if load > store.max(both) => &["Acquire", "Relaxed"],
        "SeqCst" if store > both => &["Release", "Relaxed"],
        "SeqCst" => &["AcqRel", "Relaxed"],
        _ => &["Relaxed"],
    }
}

const ORDERS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];

/// Every ordering of the files that loom explores, with what it can be weakened to.
pub fn all(root: &Path) -> Result<Vec<Weaker>> {
    let mut found = Vec::new();
    for (file, tests) in EXPLORED {
        let path = root.join(SOURCES).join(file);
        let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut start = 0;
        for (number, line) in (1..).zip(source.split_inclusive('\n')) {
            let code = line.split("//").next().unwrap_or(line);
            for (at, _) in code.match_indices("Ordering::") {
                let name = &code[at + "Ordering::".len()..];
                let Some(from) = ORDERS.into_iter().find(|order| name.starts_with(order)) else { continue };
                for to in weaker(from, &code[..at]) {
                    let text = line.trim().to_owned();
                    found.push(Weaker { file, tests, line: number, text, from, to, at: start + at });
                }
            }
            start += line.len();
        }
    }
    Ok(found)
}

/// The files with all of them inside. One is on if its number, its place in the list from 1, is.
pub fn mutated(root: &Path, orders: &[Weaker]) -> Result<BTreeMap<&'static str, String>> {
    let mut files = BTreeMap::new();
    for (file, _) in EXPLORED {
        let source = fs::read_to_string(root.join(SOURCES).join(file))?;
        let (mut out, mut from) = (String::new(), 0);
        let mut sites: BTreeMap<usize, Vec<(usize, &Weaker)>> = BTreeMap::new();
        for (number, order) in (1..).zip(orders).filter(|(_, order)| order.file == file) {
            sites.entry(order.at).or_default().push((number, order));
        }
        for (at, mutants) in sites {
            let before = &source[from..at];
            let fence = before.strip_suffix("fence(");
            out += fence.map_or(before, |before| before);
            let choices: Vec<_> =
                mutants.iter().map(|(number, order)| format!("({number}, Ordering::{})", order.to)).collect();
            let kept = mutants[0].1.from;
            let call = if fence.is_some() { "fence" } else { "order" };
            out += &format!("crate::sync::mutants::{call}(Ordering::{kept}, &[{}]", choices.join(", "));
            // A fence has its own closing bracket.
            if fence.is_none() {
                out.push(')');
            }
            from = at + "Ordering::".len() + kept.len();
        }
        files.insert(file, out + &source[from..]);
    }
    Ok(files)
}

/// What the copy has beside the sources.
pub const SWITCH: &str = r#"
#[allow(missing_docs)]
pub mod mutants {
    extern crate std;
    use core::sync::atomic::Ordering;
    use std::sync::OnceLock;

    fn is_on(number: u32) -> bool {
        static ON: OnceLock<u32> = OnceLock::new();
        *ON.get_or_init(|| std::env::var("FOLDSPACE_MUTANT").ok().and_then(|on| on.parse().ok()).unwrap_or(0)) == number
    }

    /// The ordering, or the weaker one that is on.
    pub fn order(kept: Ordering, weaker: &[(u32, Ordering)]) -> Ordering {
        weaker.iter().find(|(number, _)| is_on(*number)).map_or(kept, |(_, order)| *order)
    }

    pub fn fence(kept: Ordering, weaker: &[(u32, Ordering)]) {
        if !weaker.iter().any(|(number, _)| is_on(*number)) {
            super::watched::fence(kept);
        }
    }
}
"#;

/// Builds loom's tests of a copy, and returns the program.
pub fn build(copy: &Path, target: &Path) -> Result<std::path::PathBuf> {
    let target = target.join("mutants/loom");
    eprintln!("building the tests of loom with all weaker orderings inside");
    let output = Command::new("cargo")
        .args(["test", "-q", "--lib", "--no-run", "--message-format=json", "-p", "foldspace", "--target-dir"])
        .arg(&target)
        .current_dir(copy)
        .env("RUSTFLAGS", "--cfg foldspace_loom --cap-lints allow")
        .stderr(std::process::Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the weaker orderings cannot be built");
    let text = String::from_utf8_lossy(&output.stdout);
    let program = text.lines().rev().find_map(|line| line.split("\"executable\":\"").nth(1)?.split('"').next());
    Ok(program.context("cargo names no program")?.into())
}

/// How one was noticed.
pub struct Noticed {
    pub by: String,
    pub seconds: f64,
}

impl Weaker {
    /// Runs the tests that are about it, with it on: `number` is its place in the list.
    pub fn explore(&self, program: &Path, number: usize) -> Result<Option<Noticed>> {
        run(program, self.tests, number)
    }
}

/// Runs all tests with nothing weakened.
pub fn explore_as_it_is(program: &Path) -> Result<Option<Noticed>> {
    run(program, "loom::", 0)
}

fn run(program: &Path, tests: &str, number: usize) -> Result<Option<Noticed>> {
    let began = Instant::now();
    let output = Command::new("timeout")
        .arg("300")
        .arg(program)
        .args([tests, "--test-threads", "2"])
        .env("FOLDSPACE_MUTANT", number.to_string())
        .env("RUST_BACKTRACE", "0")
        .output()
        .context("the tests do not start")?;
    let seconds = began.elapsed().as_secs_f64();
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // The list of those that failed is the last thing that is said.
    let failed = text.rsplit("failures:\n").next().unwrap_or("");
    let by: Vec<_> = failed
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.split_once("loom::"))
        .map(|(_, name)| name)
        .filter(|name| !name.contains("::"))
        .map(|name| name.replace('_', " "))
        .collect();
    ensure!(!by.is_empty(), "the tests of loom ended with {}: {text}", output.status);
    Ok(Some(Noticed { by: by.join("; "), seconds }))
}
