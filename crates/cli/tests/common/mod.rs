//! How the tests run the command. Nothing is skipped: what is missing fails the test and says so.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use snapbox::cmd::{Command, OutputAssert};

/// The two kernels that every run must look the same on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// The debug build: it checks every invariant of the memory manager at the end.
    Foldspace,
    Linux,
}

/// Defines each test twice, once for each system.
#[macro_export]
macro_rules! on_both {
    ($(fn $name:ident($system:ident: System) $body:block)*) => {
        mod foldspace {
            use super::*;
            $(#[test] fn $name() { super::$name(System::Foldspace) })*
        }
        mod linux {
            use super::*;
            $(#[test] fn $name() { super::$name(System::Linux) })*
        }
        $(fn $name($system: System) $body)*
    };
}

/// The command, without input and without variables that would change what it does.
pub fn foldspace() -> Command {
    Command::new(env!("CARGO_BIN_EXE_foldspace"))
        .env_remove("FOLDSPACE_IMAGES")
        .stdin("")
        .timeout(Duration::from_secs(600))
}

/// `foldspace run OPTIONS -- PROGRAM...` on a system.
pub fn run(system: System, options: &[&str], program: &[&str]) -> Command {
    let which = match system {
        System::Foldspace => "--debug",
        System::Linux => "--linux",
    };
    foldspace().arg("run").arg(which).args(options).arg("--").args(program)
}

/// A shell script, run by busybox.
pub fn shell(system: System, script: &str) -> Command {
    run(system, &[], &["busybox", "sh", "-c", script])
}

pub fn stdout(assert: &OutputAssert) -> String {
    String::from_utf8_lossy(&assert.get_output().stdout).into_owned()
}

pub fn stderr(assert: &OutputAssert) -> String {
    String::from_utf8_lossy(&assert.get_output().stderr).into_owned()
}
