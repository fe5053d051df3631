//! Restore points, by the program that uses them for what they are meant for.

mod common;

use common::{System, run, stderr, stdout};

/// Both ways of executing must find the same, and no execution may see what another has left: the program checks that.
#[test]
fn a_fuzz_loop_by_restore_points_finds_what_one_by_forks_does() {
    let machine = ["--memory", "512M", "--timeout", "200"];
    let done = run(System::Foldspace, &machine, &["fuzzloop", "--mib", "16", "--executions", "300"]).assert();
    let text = format!("{}{}", stdout(&done), stderr(&done));
    assert_eq!(done.get_output().status.code(), Some(0), "{text}");
    assert!(text.contains("restore: ") && text.contains("an execution stores to "), "{text}");
}

#[test]
fn on_linux_the_loop_does_without() {
    let machine = ["--memory", "512M", "--timeout", "200"];
    let done =
        run(System::Linux, &machine, &["fuzzloop", "--mib", "1", "--executions", "30", "--way", "restore"]).assert();
    let text = format!("{}{}", stdout(&done), stderr(&done));
    assert!(text.contains("this kernel has no restore points"), "{text}");
}
