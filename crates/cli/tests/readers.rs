//! Readers of maps beside writers, on several processors; and everything at once.

mod common;

use common::{System, foldspace, run, stderr, stdout};

/// Runs `tearing` for a short time on each case.
fn tearing(cpus: &str, options: &[&str]) -> (Option<i32>, String) {
    let machine = ["--cpus", cpus, "--memory", "512M", "--timeout", "300"];
    let done = run(System::Foldspace, &machine, &[&["tearing", "--seconds", "0.7"], options].concat()).assert();
    (done.get_output().status.code(), format!("{}{}", stdout(&done), stderr(&done)))
}

#[test]
fn every_snapshot_is_a_state_on_two_processors() {
    let (status, text) = tearing("2", &[]);
    assert_eq!(status, Some(0), "{text}");
}

#[test]
fn every_snapshot_is_a_state_on_four_processors() {
    let (status, text) = tearing("4", &[]);
    assert_eq!(status, Some(0), "{text}");
}

/// Who takes a new version for each read sees what never was, and the test says so.
#[test]
fn a_new_version_for_each_read_is_noticed() {
    let (status, text) = tearing("2", &["--new-files", "--case", "split", "--case", "merge both", "--case", "remap"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(!text.contains("too little"), "{text}");
}

/// The command itself: the debug kernel, which checks everything at the end.
#[test]
fn a_short_soak() {
    let done = foldspace().args(["soak", "--minutes", "0.3", "--cpus", "4"]).assert();
    assert_eq!(done.get_output().status.code(), Some(0), "{}{}", stdout(&done), stderr(&done));
    assert!(stdout(&done).contains("nothing wrong, nothing lost"), "{}", stdout(&done));
}
