//! Random system calls: the machine goes on, and loses no memory. The debug kernel checks the whole of the memory manager
//! at the end.

mod common;

use common::{System, run, stdout};

/// Runs `fuzz` with these options; what it finds it prints, and a kernel that panics or hangs ends the run otherwise.
fn fuzz(options: &[&str]) {
    let machine = ["--memory", "512M", "--timeout", "500"];
    let done = run(System::Foldspace, &machine, &[&["fuzz"], options].concat()).assert();
    assert_eq!(done.get_output().status.code(), Some(0), "{}{}", stdout(&done), common::stderr(&done));
    // It did something: most children make most of their calls.
    let calls: u64 = stdout(&done)
        .lines()
        .find_map(|line| line.split_once(" calls by ")?.0.parse().ok())
        .unwrap_or_else(|| panic!("no calls are reported: {}", stdout(&done)));
    let asked: u64 = options[options.len() - 1].parse().unwrap();
    assert!(calls > asked / 4, "{calls} of {asked} calls");
}

#[test]
fn random_calls_about_memory() {
    fuzz(&["--seed", "1", "--memory-only", "--calls", "20000"]);
}

#[test]
fn random_calls_of_every_number() {
    fuzz(&["--seed", "2", "--calls", "20000"]);
}
