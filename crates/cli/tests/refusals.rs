//! One clear sentence for each thing that cannot be run, and the exit status that goes with it.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{foldspace, stderr};
use snapbox::cmd::Command;

/// Asserts the exit status and that the error output is this one line.
fn refuses(command: Command, status: i32, sentence: &str) {
    let done = command.assert().code(status).stdout_eq("");
    assert_eq!(stderr(&done), format!("foldspace: {sentence}\n"));
}

fn run(args: &[&str]) -> Command {
    foldspace().arg("run").args(args)
}

fn file(dir: &Path, name: &str, content: &[u8], mode: u32) -> String {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The first 64 bytes of an ELF file: class (1 or 2), machine, type.
fn elf_header(class: u8, machine: u8, kind: u8) -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1, 0]);
    header[16] = kind;
    header[18] = machine;
    header[20] = 1;
    header[if class == 2 { 52 } else { 40 }] = if class == 2 { 64 } else { 52 };
    header
}

#[test]
fn a_program_that_is_not_there() {
    refuses(run(&["no-such-program"]), 127, "no-such-program: no such program on the PATH");
    refuses(run(&["./no/such"]), 127, "./no/such: there is no such file");
    let root = tempfile::tempdir().unwrap();
    let root = root.path().to_str().unwrap();
    refuses(
        run(&["--root", root, "no-such-program"]),
        127,
        "no-such-program: no such program in --root and on the PATH",
    );
}

#[test]
fn a_file_that_is_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let text = file(dir.path(), "text", b"just text\n", 0o755);
    refuses(run(&[&text]), 126, &format!("{text} is not a program: neither an ELF file nor a script"));
    let plain = file(dir.path(), "plain", &elf_header(2, 62, 2), 0o644);
    refuses(run(&[&plain]), 126, &format!("{plain} is not executable: chmod +x it first"));
    let place = dir.path().to_str().unwrap();
    refuses(run(&[place]), 126, &format!("{place} is a directory"));
    let object = file(dir.path(), "object", &elf_header(2, 62, 1), 0o755);
    refuses(run(&[&object]), 126, &format!("{object} is an ELF file but not a program: an object file or a core dump"));
}

#[test]
fn a_program_for_another_machine() {
    let dir = tempfile::tempdir().unwrap();
    let arm = file(dir.path(), "arm", &elf_header(2, 183, 2), 0o755);
    let done = run(&[&arm]).assert().code(126);
    let said = stderr(&done);
    assert!(said.contains("is a program for another processor (") && said.lines().count() == 1, "{said}");
    let old = file(dir.path(), "old", &elf_header(1, 3, 2), 0o755);
    refuses(run(&[&old]), 126, &format!("{old} is a 32-bit program; only 64-bit ones (x86-64) run here"));
}

#[test]
fn an_interpreter_that_is_not_inside() {
    let dir = tempfile::tempdir().unwrap();
    let source = file(dir.path(), "main.c", b"int main(void) { return 0; }\n", 0o644);
    let dynamic = dir.path().join("dynamic");
    Command::new("gcc").args(["-o", dynamic.to_str().unwrap(), &source]).assert().success();
    let dynamic = dynamic.to_str().unwrap();
    let sentence = format!(
        "{dynamic} is dynamically linked and its interpreter /lib64/ld-linux-x86-64.so.2 is not inside: link it \
         statically, or give --root a directory that has the interpreter and the libraries"
    );
    refuses(run(&[dynamic]), 126, &sentence);
    let script = file(dir.path(), "script", b"#!/usr/bin/env python3\n", 0o755);
    let sentence =
        format!("{script} is a script for /usr/bin/env, which is not inside: give --root a directory that has it");
    refuses(run(&[&script]), 126, &sentence);
}

#[test]
fn a_machine_that_cannot_be() {
    for which in [&["--memory", "8M"][..], &["--memory", "16M", "--linux"]] {
        let done = run(which).args(["--", "busybox", "true"]).assert().code(125);
        let said = stderr(&done);
        assert!(said.contains("M is too little: the kernel and the ") && said.lines().count() == 1, "{said}");
    }
    let both = run(&["--icount", "--cpus", "2", "--", "busybox", "true"]);
    refuses(both, 125, "--icount counts the instructions of one processor: it cannot be used with --cpus 2");
    let many = run(&["--cpus", "65", "--", "busybox", "true"]);
    refuses(many, 125, "--cpus 65: the kernel can use 64 processors");
    let both = run(&["--icount", "--accel", "kvm", "--", "busybox", "true"]);
    refuses(both, 125, "--icount needs emulation in software: it cannot be used with --accel kvm");
    let none = run(&["--kernel", "/no/kernel", "--", "busybox", "true"]);
    refuses(none, 125, "the kernel /no/kernel does not exist");
    let none = run(&["--linux=/no/vmlinuz", "--", "busybox", "true"]);
    refuses(none, 125, "the Linux kernel /no/vmlinuz does not exist");
}

#[test]
fn a_kernel_that_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let text = file(dir.path(), "text", b"no kernel\n", 0o644);
    let done = run(&["--kernel", &text, "--", "busybox", "true"]).assert().code(125);
    assert!(stderr(&done).starts_with("foldspace: busybox: QEMU could not run the machine: "), "{}", stderr(&done));
}

#[test]
fn no_qemu() {
    let dir = tempfile::tempdir().unwrap();
    let busybox = Command::new("sh").args(["-c", "command -v busybox"]).assert().success();
    let busybox = String::from_utf8(busybox.get_output().stdout.clone()).unwrap();
    let sentence = "qemu-system-x86_64 is not installed: `apt-get install qemu-system-x86` on Debian, or the package \
                    of your distribution";
    refuses(run(&["--", busybox.trim(), "true"]).env("PATH", dir.path()), 125, sentence);
}

/// Where there is a KVM that works there is nothing to refuse; the program must then run.
#[test]
fn virtualization_works_or_is_refused() {
    let done = run(&["--accel", "kvm", "--linux", "--timeout", "120", "--", "busybox", "echo", "ran"]).assert();
    let said = stderr(&done);
    match done.get_output().status.code() {
        Some(0) => assert_eq!(common::stdout(&done), "ran\n"),
        Some(125) => assert!(said.contains("use --accel tcg") && said.lines().count() == 1, "{said}"),
        other => panic!("status {other:?}: {said}"),
    }
}
