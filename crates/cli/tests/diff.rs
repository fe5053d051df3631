//! `foldspace diff`: this machine's Linux is the reference.

mod common;

use common::{foldspace, stdout};

#[test]
fn twenty_thousand_operations_are_equal() {
    let done = foldspace().args(["diff", "--seed", "20", "--ops", "20000", "--jobs", "2", "--json"]).assert();
    let text = stdout(&done);
    done.success();
    let report: serde_json::Value = serde_json::from_str(&text).expect("one JSON document");
    assert!(report["operations"].as_u64() >= Some(20_000), "{text}");
    // Sequences that do nothing would be equal, too.
    assert!(report["results"]["mmap"]["success"].as_u64() > Some(1000), "{text}");
    assert!(report["results"]["fork"]["success"].as_u64() > Some(50), "{text}");
}

#[test]
fn an_unknown_group_is_refused() {
    let done = foldspace().args(["diff", "--only", "nonsense"]).assert().failure();
    assert!(common::stderr(&done).contains("no group of calls is called nonsense"));
}

/// The same sequences as a program inside, so that the kernel's system calls are compared: with this machine's Linux, and with that in the same QEMU.
#[test]
fn a_thousand_operations_inside_are_equal() {
    for reference in [&[][..], &["--linux"]] {
        let arguments = ["diff", "--guest", "--seed", "7", "--ops", "1000", "--json"];
        let done = foldspace().args(arguments).args(reference).assert();
        let text = stdout(&done);
        assert!(done.get_output().status.success(), "{reference:?}: {text}");
        let report: serde_json::Value = serde_json::from_str(&text).expect("one JSON document");
        assert!(report["operations"].as_u64() >= Some(900), "{reference:?}: {text}");
        assert!(report["results"]["mmap"]["success"].as_u64() > Some(50), "{reference:?}: {text}");
    }
}
