//! What `run --snapshot` keeps of a run.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use common::{System, foldspace, run};
use serde_json::Value;

/// The child writes near what it executes and to its stack; the tables of the large text stay shared.
const SCRIPT: &str = "a=$(seq 1 200000); echo before >/proc/snapshot; (echo in the child >/proc/snapshot; true); echo after >/proc/snapshot";

fn snapshot(file: &Path) -> Value {
    let option = format!("--snapshot={}", file.display());
    run(System::Foldspace, &[&option], &["busybox", "sh", "-c", SCRIPT]).assert().success();
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// The frames of the tables below a root, itself included.
fn reached(tables: &BTreeMap<u64, &Value>, root: u64, into: &mut BTreeSet<u64>) {
    if !into.insert(root) {
        return;
    }
    for run in array(&tables[&root]["slots"]) {
        if matches!(run[2].as_str(), Some("table" | "object-table")) {
            (number(&run[3])..number(&run[3]) + number(&run[1])).for_each(|frame| reached(tables, frame, into));
        }
    }
}

#[test]
fn moments_hold_the_processes_and_each_table_once_with_its_references() {
    let dir = tempfile::tempdir().unwrap();
    let document = snapshot(&dir.path().join("s.json"));
    assert_eq!(document["foldspace_snapshot"], 1);
    let moments = array(&document["moments"]);
    let labels: Vec<&Value> = moments.iter().map(|moment| &moment["label"]).collect();
    assert_eq!(labels, ["before", "in the child", "after", "the program ends"]);
    assert_eq!(moments.iter().map(|moment| array(&moment["processes"]).len()).collect::<Vec<_>>(), [1, 2, 1, 1]);
    for moment in moments {
        let tables: BTreeMap<u64, &Value> =
            array(&moment["tables"]).iter().map(|table| (number(&table["frame"]), table)).collect();
        assert_eq!(tables.len(), array(&moment["tables"]).len(), "each once");
        let mut links: BTreeMap<u64, u64> = BTreeMap::new();
        for run in tables.values().flat_map(|table| array(&table["slots"])).filter(|run| run[2] == "table") {
            (number(&run[3])..number(&run[3]) + number(&run[1]))
                .for_each(|frame| *links.entry(frame).or_default() += 1);
        }
        for (frame, count) in links {
            assert_eq!(number(&tables[&frame]["refs"]), count, "references to {frame:x}");
        }
        let maps = array(&moment["processes"][0]["maps"]);
        assert!(maps.iter().any(|line| line.as_str().unwrap().ends_with("[stack]")), "{maps:?}");
    }
    let moment = &moments[1];
    let [parent, child] = array(&moment["processes"]) else { panic!("two processes") };
    assert_eq!(parent["pid"], child["parent"]);
    let tables = array(&moment["tables"]).iter().map(|table| (number(&table["frame"]), table)).collect();
    let [mut of_parent, mut of_child] = [BTreeSet::new(), BTreeSet::new()];
    reached(&tables, number(&parent["root"]), &mut of_parent);
    reached(&tables, number(&child["root"]), &mut of_child);
    assert!(of_parent.intersection(&of_child).count() > 0, "parent and child share tables");
    assert_ne!(parent["root"], child["root"]);
}

#[test]
fn nobody_keeps_what_nobody_asked_for() {
    run(System::Foldspace, &[], &["busybox", "sh", "-c", "echo x >/proc/snapshot"]).assert().success();
    foldspace().args(["run", "--linux", "--snapshot=x", "--", "true"]).assert().code(2);
}
