//! `foldspace explore`: a page on which one sees who shares which page tables, step by step.

mod moments;
mod record;
mod scene;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result};
use foldspace_classic::Operation;
use foldspace_replay::strace::Log;
use foldspace_replay::{Manager, Stores, Translator};

use crate::args;
use crate::snapshot::Snapshot;
use record::{Recorder, Recording};

const PAGE: &str = include_str!("page.html");
/// Where the page has its data.
const DATA: &str = "/*DATA*/null";

/// Memory of the machine in this process, paid for as it is used.
const MEMORY: u64 = 4 << 30;

/// Writes the page.
pub fn explore(args: &args::Explore) -> Result<u8> {
    let recording = match &args.input {
        None => scene::recording()?,
        Some(path) => from_file(path, args)?,
    };
    let steps = recording.steps.len();
    fs::write(&args.output, page(&recording)?).with_context(|| format!("cannot write {}", args.output.display()))?;
    eprintln!("foldspace: {steps} steps in {}", args.output.display());
    Ok(0)
}

/// A log of strace, or a guest's snapshot.
fn from_file(path: &Path, args: &args::Explore) -> Result<Recording> {
    let name = path.display();
    let cannot_read = || format!("cannot read {name}");
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let mut input = BufReader::new(file);
    if Snapshot::begins_like(input.fill_buf().with_context(cannot_read)?) {
        let mut text = Vec::new();
        input.read_to_end(&mut text).with_context(cannot_read)?;
        return Ok(moments::recording(&Snapshot::parse(&text).with_context(|| format!("{name}"))?));
    }
    let mut log = Log::new();
    let mut translator = Translator::new(Stores { per_area: args.stores, ..Stores::default() });
    let mut recorder = Recorder::new(Manager::new(MEMORY)?, args.first, args.steps);
    let (mut number, mut line) = (0, Vec::new());
    while !recorder.is_full() {
        line.clear();
        // Bytes: a path in a log may be anything.
        if input.read_until(b'\n', &mut line).with_context(cannot_read)? == 0 {
            let rest = translator.finish();
            recorder.take(&rest.operations)?;
            break;
        }
        number += 1;
        // What was damaged, `replay` names.
        if let Ok(Some(event)) = log.line(&String::from_utf8_lossy(&line)) {
            recorder.take(&translator.event(number, event).operations)?;
        }
    }
    recorder.finish(&format!("{name}"))
}

fn page(recording: &Recording) -> Result<String> {
    // Inside a script nothing may look like its end.
    let data = serde_json::to_string(recording)?.replace("</", "<\\/");
    Ok(PAGE.replacen(DATA, &data, 1))
}

/// In a few words.
fn words(operation: &Operation) -> String {
    match operation {
        Operation::Start { process } => format!("P{} starts, empty", process.0),
        Operation::Map { process, area, backing, .. } => {
            let what = match backing {
                foldspace_classic::Backing::Anonymous => "memory".to_owned(),
                foldspace_classic::Backing::File { file, .. } => format!("file {file}"),
            };
            format!("P{} maps {} of {what}", process.0, size(area.pages()))
        }
        Operation::Unmap { process, area } => format!("P{} unmaps {}", process.0, size(area.pages())),
        Operation::Change { process, area, .. } => format!("P{} protects {}", process.0, size(area.pages())),
        Operation::Move { process, from, .. } => format!("P{} moves {}", process.0, size(from.pages())),
        Operation::Grow { process, pages, .. } => format!("P{} grows an area by {}", process.0, size(*pages)),
        Operation::Store { process, .. } => format!("P{} stores", process.0),
        Operation::Discard { process, area } => format!("P{} discards {}", process.0, size(area.pages())),
        Operation::Fork { parent, child } => format!("P{} forks P{}", parent.0, child.0),
        Operation::Exit { process } => format!("P{} exits", process.0),
    }
}

fn size(pages: u64) -> String {
    match pages * 4 {
        kib if kib.is_multiple_of(1 << 20) => format!("{} GiB", kib >> 20),
        kib if kib.is_multiple_of(1 << 10) => format!("{} MiB", kib >> 10),
        kib => format!("{kib} KiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scene_shows_what_the_design_says() {
        let recording = scene::recording().unwrap();
        let step = |what: &str| recording.steps.iter().find(|step| step.what.starts_with(what)).expect(what);
        let fork = step("P1 forks P2");
        assert_eq!(fork.tables_added, 1, "a fork makes one root");
        assert_eq!(fork.pages_added, 0);
        let first = step("P2 stores to a page");
        assert_eq!((first.tables_added, first.pages_added), (3, 1), "the path to the page, a table for each level");
        assert!(page(&recording).unwrap().contains("P1 forks P2"));
    }

    #[test]
    fn data_cannot_end_the_script() {
        let mut recording = scene::recording().unwrap();
        recording.source = "</script><b>".to_owned();
        assert!(!page(&recording).unwrap().contains("</script><b>"));
    }
}
