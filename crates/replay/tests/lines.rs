//! Every form of line that strace writes, and every other text.

use foldspace_replay::strace::{Call, Damage, Event, Line, Log, Outcome, flags_of, number, parse};
use proptest::prelude::*;

fn call(text: &str) -> Call {
    match parse(text) {
        Ok((_, Line::Call(call))) => call,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn whose_line_it_is_and_when_may_stand_before_it() {
    for text in [
        "17 brk(NULL) = 0x5000",
        "[pid    17] brk(NULL)                         = 0x5000",
        "17 12:34:56 brk(NULL) = 0x5000",
        "17 12:34:56.123456 brk(NULL) = 0x5000 <0.000012>",
        "17 1700000000.123456 brk(NULL) = 0x5000",
    ] {
        let (pid, said) = parse(text).unwrap();
        assert_eq!(pid, Some(17), "{text}");
        let Line::Call(call) = said else { panic!("{text}: {said:?}") };
        assert_eq!((call.name.as_str(), call.args.as_slice()), ("brk", &["NULL".to_string()][..]), "{text}");
        assert_eq!(call.outcome, Outcome::Value(0x5000), "{text}");
    }
    assert_eq!(parse("brk(NULL) = 0x5000").unwrap().0, None);
}

#[test]
fn arguments_end_where_strings_brackets_and_paths_let_them() {
    let exec = call(r#"execve("/bin/a, b)\"", ["a", "x) = 3"], 0x7ffe /* 35 vars, (all) */) = 0"#);
    assert_eq!(exec.args, [r#""/bin/a, b)\"""#, r#"["a", "x) = 3"]"#, "0x7ffe /* 35 vars, (all) */"]);
    let map = call("mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3</tmp/odd, (name)>, 0x1000) = 0x7f0000000000");
    assert_eq!(map.args.len(), 6);
    assert_eq!(map.args[4], "3</tmp/odd, (name)>");
    let clone = call("clone3({flags=CLONE_VM|CLONE_THREAD, stack_size=0x100} => {parent_tid=[8]}, 88) = 8");
    assert_eq!(clone.args.len(), 2);
}

#[test]
fn results_are_numbers_errors_or_unknown() {
    let outcome = |result: &str| call(&format!("f() = {result}")).outcome;
    assert_eq!(outcome("-1 ENOMEM (Cannot allocate memory)"), Outcome::Error("ENOMEM".into()));
    assert_eq!(outcome("?"), Outcome::Unknown);
    assert_eq!(outcome("? ERESTARTSYS (To be restarted)"), Outcome::Unknown);
    assert_eq!(outcome("3</etc/passwd>"), Outcome::Value(3));
    assert_eq!(outcome("0x7f11"), Outcome::Value(0x7f11));
}

#[test]
fn numbers_and_flags() {
    assert_eq!(number("8192*1024"), Some(8 << 20));
    assert_eq!(number("1<<20"), Some(1 << 20));
    assert_eq!(number("010"), Some(8));
    assert_eq!(number("-1"), Some(u64::MAX));
    assert_eq!(number("18446744073709551616"), None);
    assert_eq!(number("18446744073709551615*2"), None);
    assert_eq!(flags_of("MAP_PRIVATE|MAP_FIXED").collect::<Vec<_>>(), ["MAP_PRIVATE", "MAP_FIXED"]);
}

#[test]
fn halves_of_calls_are_put_together_by_thread() {
    let mut log = Log::new();
    assert_eq!(log.line("7 vfork( <unfinished ...>"), Ok(None));
    assert!(matches!(log.line("8 brk(NULL) = 0x1000"), Ok(Some(Event::Call { pid: 8, .. }))));
    let Ok(Some(Event::Call { pid: 7, call })) = log.line("7 <... vfork resumed>)              = 8") else { panic!() };
    assert_eq!((call.name.as_str(), call.outcome), ("vfork", Outcome::Value(8)));
    assert_eq!(log.line("7 <... wait4 resumed>NULL, 0, NULL) = 8"), Err(Damage::NotBegun));
    assert_eq!(log.line("8 +++ exited with 0 +++"), Ok(Some(Event::Exited { pid: 8 })));
    assert_eq!(log.line("8 +++ killed by SIGSEGV (core dumped) +++"), Ok(Some(Event::Exited { pid: 8 })));
}

#[test]
fn a_thread_that_execs_goes_on_under_its_leaders_number() {
    let mut log = Log::new();
    assert_eq!(log.line(r#"9 execve("/bin/true", ["true"], 0x1 /* 0 vars */ <unfinished ...>"#), Ok(None));
    let superseded = log.line("7 +++ superseded by execve in pid 9 +++");
    assert_eq!(superseded, Ok(Some(Event::Superseded { pid: 7, by: 9 })));
    assert!(matches!(log.line("7 <... execve resumed>) = 0"), Ok(Some(Event::Call { pid: 7, .. }))));
}

#[test]
fn what_is_no_line_is_said_to_be_none() {
    assert_eq!(parse(""), Err(Damage::NotALine));
    assert_eq!(parse("hello"), Err(Damage::NotALine));
    assert_eq!(parse("7 mmap(NULL, 4096"), Err(Damage::OpenArguments));
    assert_eq!(parse("7 mmap(NULL, 4096)"), Err(Damage::NoResult));
    assert_eq!(parse("strace: Process 8 attached"), Ok((None, Line::Other)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read(lines in prop::collection::vec(any::<String>(), 0..8)) {
        let mut log = Log::new();
        for line in lines {
            let _ = log.line(&line);
        }
    }

    #[test]
    fn any_text_of_the_right_letters_is_read(text in r#"(\[pid )?[0-9]{0,3}\]? ?[a-z]{0,5}[(){}<>"'|,/*= 0-9x.?+-]{0,40}"#) {
        let _ = Log::new().line(&text);
    }
}
