//! What `foldspace bench` makes of figures that are there already.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{foldspace, stdout};
use serde_json::Value;

fn figures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bench.json")
}

/// `bench --from NEW --compare OLD`, of figures in which goals are missed: the status is 1.
fn compared(old: &Path, new: &Path) -> String {
    stdout(&foldspace().arg("bench").arg("--from").arg(new).arg("--compare").arg(old).assert().code(1))
}

fn row<'a>(document: &'a mut Value, name: &str) -> &'a mut Value {
    let parts = document["experiments"].as_array_mut().unwrap();
    parts.iter_mut().flat_map(|part| part["rows"].as_array_mut().unwrap()).find(|row| row["row"] == name).expect(name)
}

fn multiply(figure: &mut Value, by: f64) {
    for field in ["median", "low", "high"] {
        figure[field] = (figure[field].as_f64().unwrap() * by).into();
    }
}

#[test]
fn a_run_beside_itself_has_not_changed() {
    let text = compared(&figures(), &figures());
    assert!(text.contains("nothing changed beyond the noise"), "{text}");
    assert!(!text.contains("only in"), "{text}");
}

#[test]
fn what_became_better_and_worse_is_said_and_noise_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("new.json");
    let mut document: Value = serde_json::from_str(&fs::read_to_string(figures()).unwrap()).unwrap();
    multiply(&mut row(&mut document, "fork_512")["figures"]["foldspace"], 1.2);
    multiply(&mut row(&mut document, "getppid")["figures"]["foldspace"], 0.5);
    multiply(&mut row(&mut document, "mmap_munmap")["figures"]["foldspace"], 1.005);
    row(&mut document, "context_switch")["row"] = "a_new_row".into();
    fs::write(&new, document.to_string()).unwrap();
    let text = compared(&figures(), &new);
    let line = |row: &str| text.lines().find(|line| line.contains(&format!("{row}, foldspace, ")));
    let (fork, call) = (line("fork_512").expect("fork_512"), line("getppid").expect("getppid"));
    assert!(fork.contains("+20.0 %") && fork.contains("WORSE"), "{text}");
    assert!(call.contains("-50.0 %") && call.contains("better"), "{text}");
    assert!(line("mmap_munmap").is_none(), "half a percent is noise: {text}");
    assert!(
        text.contains("only in the old run: context_switch\n") && text.contains("only in the new run: a_new_row\n"),
        "{text}"
    );
}

#[test]
fn a_file_that_is_no_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("other.json");
    fs::write(&other, "{}").unwrap();
    foldspace().arg("bench").arg("--from").arg(figures()).arg("--compare").arg(&other).assert().code(125);
}

#[test]
fn parts_of_a_run_are_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let document: Value = serde_json::from_str(&fs::read_to_string(figures()).unwrap()).unwrap();
    let write = |name: &str, document: &Value| {
        let file = dir.path().join(name);
        fs::write(&file, document.to_string()).unwrap();
        file
    };
    let half = |which: fn(usize) -> bool| {
        let mut part = document.clone();
        let all = part["experiments"].as_array().unwrap().clone();
        let some = all.into_iter().enumerate().filter(|(at, _)| which(*at)).map(|(_, part)| part);
        part["experiments"] = some.collect();
        part
    };
    let (first, second) = (write("first.json", &half(|at| at < 3)), write("second.json", &half(|at| at >= 3)));
    let both =
        foldspace().arg("bench").arg("--from").arg(&first).arg("--from").arg(&second).arg("--json").assert().code(1);
    let both: Value = serde_json::from_str(&stdout(&both)).unwrap();
    assert_eq!(both["experiments"], document["experiments"]);
    assert_eq!(both["about"]["command"], "made up for tests; made up for tests");

    let mut elsewhere = document.clone();
    elsewhere["about"]["host"]["processor"] = "another".into();
    let other = write("other.json", &elsewhere);
    foldspace().arg("bench").arg("--from").arg(&first).arg("--from").arg(&other).assert().code(125);
}
