//! What a program sees, and what its user sees of it.

mod common;

use common::{System, run, shell, stderr, stdout};
use snapbox::Data;

on_both! {
    fn output_is_exact_and_the_two_streams_are_apart(system: System) {
        let script = r"printf 'a\000\r\n\377\n'; echo problem >&2; printf 'no newline'";
        shell(system, script)
            .assert()
            .success()
            .stdout_eq(Data::binary(*b"a\0\r\n\xff\nno newline"))
            .stderr_eq("problem\n");
    }

    fn the_exit_status_is_the_programs(system: System) {
        for status in [0, 1, 42, 255] {
            run(system, &[], &["busybox", "sh", "-c", &format!("exit {status}")]).assert().code(status);
        }
    }

    fn a_signal_is_128_and_its_number(system: System) {
        shell(system, "kill -9 $$").assert().code(137);
        shell(system, "kill -TERM $$").assert().code(143);
    }

    fn who_takes_all_memory_is_ended_and_nobody_else(system: System) {
        let script = r#"sleep 1000 & awk 'BEGIN { s = "0123456789abcdef"; while (1) s = s s }'; echo $?; kill $! && echo sleeper lives"#;
        let done = run(system, &["--memory", "256M"], &["busybox", "sh", "-c", script]).assert().success();
        assert!(stdout(&done).ends_with("137\nsleeper lives\n"), "{}", stdout(&done));
    }

    fn arguments_arrive_as_they_are(system: System) {
        let args = ["printf", "<%s>", "two words", "", "*", "-v", "--", "ü"];
        run(system, &[], &[&["busybox"], &args[..]].concat()).assert().success().stdout_eq("<two words><><*><-v><--><ü>");
    }

    fn input_is_the_commands(system: System) {
        let input: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        let done = run(system, &[], &["busybox", "cat"]).stdin(Data::binary(input.clone())).assert().success();
        assert!(done.get_output().stdout == input, "{} of {} bytes", done.get_output().stdout.len(), input.len());
        run(system, &[], &["busybox", "wc", "-c"]).assert().success().stdout_eq("0\n");
    }

    fn the_environment_is_the_usual_and_what_is_given(system: System) {
        let done = run(system, &["--env", "A=1=2", "--env", "HOME=/tmp", "--env", "PASSED"], &["busybox", "env"])
            .env("PASSED", "on")
            .env("HIDDEN", "yes")
            .assert()
            .success();
        let mut lines: Vec<String> = stdout(&done).lines().map(str::to_owned).collect();
        lines.sort();
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        assert_eq!(lines, ["A=1=2", "HOME=/tmp", "PASSED=on", path, "USER=root"]);
    }

    fn much_output_arrives_whole(system: System) {
        let done = run(system, &[], &["busybox", "seq", "1", "60000"]).assert().success();
        let expected: String = (1..=60_000).map(|n| format!("{n}\n")).collect();
        assert!(stdout(&done) == expected, "{} of {} bytes arrived", stdout(&done).len(), expected.len());
    }

    fn a_pipe_is_no_terminal(system: System) {
        shell(system, "test -t 0 || test -t 1 || test -t 2 || echo none").assert().success().stdout_eq("none\n");
    }

    fn the_shells_names_are_there(system: System) {
        let script = "ls -d /tmp /proc/self /dev/null; echo 'echo from a script' > /tmp/s; sh /tmp/s; id -un";
        shell(system, script).assert().success().stdout_eq("/dev/null\n/proc/self\n/tmp\nfrom a script\nroot\n");
    }

    fn what_is_left_running_does_not_keep_the_run_alive(system: System) {
        shell(system, "sleep 1000 & (sleep 1000 &) ; echo done").assert().success().stdout_eq("done\n");
    }

    fn a_root_brings_its_programs_and_files(system: System) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        std::os::unix::fs::symlink("usr/bin", root.path().join("bin")).unwrap();
        std::fs::copy(which("busybox"), root.path().join("usr/bin/busybox")).unwrap();
        std::os::unix::fs::symlink("busybox", root.path().join("usr/bin/sh")).unwrap();
        std::fs::write(root.path().join("usr/bin/hello"), "#!/bin/sh\necho hello $1 from $0\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(root.path().join("usr/bin/hello"), mode).unwrap();
        let root = root.path().to_str().unwrap();
        run(system, &["--root", root], &["hello", "you"]).assert().success().stdout_eq("hello you from /usr/bin/hello\n");
        run(system, &["--root", root], &["/bin/sh", "-c", "echo $0"]).assert().success().stdout_eq("/bin/sh\n");
    }

    fn a_document_tells_about_the_run(system: System) {
        let done = run(system, &["--json"], &["busybox", "sh", "-c", "echo e >&2; exit 3"]).assert().code(3);
        let all = stderr(&done);
        let last = all.lines().last().expect("a document");
        let document: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(document["exit"], 3);
        assert_eq!(document["status"], 3);
        assert_eq!(document["signal"], serde_json::Value::Null);
        assert!(document["program_ns"].as_u64().unwrap() > 0);
        assert!(all.starts_with("e\n"), "{all}");
        if system == System::Foldspace {
            let frames = &document["frames"];
            assert!(frames["total"].as_u64() > frames["free_at_boot_end"].as_u64());
            assert!(frames["free_at_end"].as_u64() > Some(0));
        }
    }

    fn a_run_that_takes_too_long_is_stopped(system: System) {
        let done = run(system, &["--timeout", "20"], &["busybox", "sh", "-c", "echo on; sleep 1000"]).assert().code(124);
        assert_eq!(stdout(&done), "on\n");
        assert!(stderr(&done).ends_with("s (--timeout)\n"), "{}", stderr(&done));
    }

    fn counting_is_repeatable(system: System) {
        let count = || {
            let done = run(system, &["--icount", "--json"], &["busybox", "true"]).assert().success();
            let all = stderr(&done);
            let document: serde_json::Value = serde_json::from_str(all.lines().last().unwrap()).unwrap();
            document["program_ns"].as_f64().unwrap()
        };
        let (first, second) = (count(), count());
        assert!((first - second).abs() < first * 0.05, "{first} and {second} instructions");
    }
}

/// A wild access, and system calls that do not exist: SIGSEGV and ENOSYS inside, a line each for the user.
#[test]
fn what_a_program_does_wrong_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("wild.c");
    let text = "#include <unistd.h>\n#include <sys/syscall.h>\n\
        int main(void) { for (int i = 0; i < 3; i++) syscall(9999); *(volatile int *)0x1234 = 1; return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let program = dir.path().join("wild");
    let (source, program) = (source.to_str().unwrap(), program.to_str().unwrap());
    snapbox::cmd::Command::new("gcc").args(["-static", "-o", program, source]).assert().success();
    let said = stderr(&run(System::Foldspace, &[], &[program]).assert().code(139).stdout_eq(""));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].starts_with("foldspace: wild[") && lines[0].contains("wild write at 0x1234"), "{said}");
    assert_eq!(lines[1], "foldspace: wild made system call 9999 (no name), which Foldspace does not have");
}

fn which(program: &str) -> std::path::PathBuf {
    let dirs = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&dirs).map(|dir| dir.join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{program} is missing: install busybox-static"))
}

#[test]
fn a_reader_that_goes_ends_the_run() {
    let command =
        format!("{} run --linux -- busybox yes | head -n 1; echo ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_foldspace"));
    snapbox::cmd::Command::new("bash").args(["-c", &command]).stdin("").assert().success().stdout_eq("y\n141\n");
}
