//! `docs/syscalls.md` says of each system call whether it is here: the kernel's own tables must say the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What handles each call, as the kernel's sources have it.
fn handlers(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            handlers(&path, found);
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for row in source.split("(Sysno::").skip(1) {
            let Some((name, handler)) = row.split_once(',') else { continue };
            let handler = handler.split(",\n").next().unwrap_or_default().trim();
            found.insert(name.to_owned(), handler.to_owned());
        }
    }
}

/// A handler that does nothing but refuse.
fn only_refuses(handler: &str) -> bool {
    handler.starts_with("|_| Err(Errno::ENOSYS)") || handler.starts_with("|_| Err(Errno::EPERM)")
}

#[test]
fn the_table_of_system_calls_is_true() {
    let mut found = BTreeMap::new();
    handlers(&repository().join("crates/kernel/src/syscall"), &mut found);
    let text = fs::read_to_string(repository().join("docs/syscalls.md")).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(2)
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() >= 140, "the table has only {} rows", rows.len());
    for row in rows {
        let (name, state, note) = (row[1], row[3], row[4]);
        let handler = found.get(name);
        let there = handler.is_some_and(|handler| !only_refuses(handler));
        match state {
            "works" => assert!(there && note.is_empty(), "{name} is said to work: {handler:?}"),
            "partly" => assert!(there && !note.is_empty(), "{name} is said to work in part: {handler:?}"),
            "absent" => assert!(!there && !note.is_empty(), "{name} is said to be absent: {handler:?}"),
            other => panic!("{name} is {other}"),
        }
    }
}
