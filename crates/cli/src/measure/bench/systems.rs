//! The columns: each system, and each way to run it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::document::{Host, SystemFacts};
use super::experiment::Variant;
use crate::args::{self, Accel};
use crate::images::Images;
use crate::linux;
use crate::machine::{LINUX_PARAMETERS, System};

/// A system, and how the measuring programs are called on it.
#[derive(Clone)]
pub struct Column {
    pub name: &'static str,
    pub system: System,
    /// The kernel, where it is Linux.
    pub vmlinuz: Option<PathBuf>,
    /// What the programs are told besides.
    pub arguments: &'static [&'static str],
    /// Which experiments have it; all, if none is said.
    pub variant: Option<Variant>,
}

impl Column {
    fn plain(name: &'static str, system: System, vmlinuz: Option<PathBuf>) -> Self {
        Self { name, system, vmlinuz, arguments: &[], variant: None }
    }

    /// All there are: Foldspace, the given Linux or the distribution's, the lean one if `./x linux` has built it, and the variants.
    pub fn all(args: &args::Bench) -> Result<Vec<Self>> {
        let linux = linux::kernel(args.linux.as_deref())?;
        let lean = Images::find()?.lean_linux().filter(|lean| *lean != linux);
        let mut all = vec![
            Self::plain("foldspace", System::Foldspace, None),
            Self::plain("linux", System::Linux, Some(linux.clone())),
        ];
        all.extend(lean.map(|lean| Self::plain("lean", System::Linux, Some(lean))));
        for (name, arguments, variant) in
            [("copy", &["--mode", "copy"], Variant::Copy), ("leaf", &["--mode", "leaf"], Variant::Leaf)]
        {
            all.push(Self { arguments, variant: Some(variant), ..Self::plain(name, System::Foldspace, None) });
        }
        let huge = Self::plain("huge", System::Linux, Some(linux));
        all.push(Self { arguments: &["--huge"], variant: Some(Variant::Huge), ..huge });
        Ok(all)
    }

    /// The command that runs a program in this column.
    pub fn command(&self, program: &str, more: &[&str]) -> Vec<OsString> {
        [program].iter().chain(self.arguments).chain(more).map(OsString::from).collect()
    }

    /// What a reader wants to know of it.
    pub fn facts(&self) -> Result<SystemFacts> {
        let version = match &self.vmlinuz {
            None => format!("Foldspace {}", env!("CARGO_PKG_VERSION")),
            Some(path) => version_of(path)?,
        };
        // Debian's kernels have the number of their interface in their names, and say later which one they are.
        let number = version.split_once("Debian ").map_or(version.as_str(), |(_, debian)| debian);
        let number = number.split([' ', '-']).next().unwrap_or_default();
        let (title, build) = match self.name {
            "foldspace" => ("Foldspace".to_owned(), "fork shares all tables"),
            "copy" => ("Foldspace, copy".to_owned(), "the programs ask for forks that copy every table, as Linux does"),
            "leaf" => {
                ("Foldspace, leaf".to_owned(), "the programs ask for forks that share the tables of the last level")
            }
            "lean" => (
                format!("Linux {number}, lean"),
                "linux/lean.config: names, userfaultfd, no mitigations, nothing that the experiments do not need",
            ),
            "huge" => (format!("Linux {number}, huge pages"), "the same kernel, with memory that asks for huge pages"),
            _ => (format!("Linux {number}"), "the distribution's, or the one given; huge pages off for the programs"),
        };
        Ok(SystemFacts {
            name: self.name.to_owned(),
            title,
            version,
            command_line: match self.system {
                System::Linux => format!("{LINUX_PARAMETERS} quiet"),
                System::Foldspace => "foldspace.fork=full foldspace.check=0".to_owned(),
            },
            build: build.to_owned(),
            configuration: if self.name == "lean" { options(LEAN) } else { String::new() },
        })
    }
}

/// What `./x linux` builds.
const LEAN: &str = include_str!("../../../../../linux/lean.config");

/// The lines of a configuration that say something.
fn options(text: &str) -> String {
    text.lines().filter(|line| line.starts_with("CONFIG_")).collect::<Vec<_>>().join(" ")
}

/// The version that a bzImage says of itself (Linux, Documentation/arch/x86/boot.rst: `kernel_version`, counted from 0x200).
fn version_of(vmlinuz: &Path) -> Result<String> {
    const FIELD: usize = 0x20e;
    let image = fs::read(vmlinuz).with_context(|| format!("cannot read {}", vmlinuz.display()))?;
    let text = image.get(FIELD..FIELD + 2).and_then(|field| {
        let at = usize::from(u16::from_le_bytes([field[0], field[1]])) + 0x200;
        image.get(at..)?.split(|byte| *byte == 0).next()
    });
    Ok(text.map_or_else(|| "of unknown version".to_owned(), |text| String::from_utf8_lossy(text).into_owned()))
}

/// The computer that this runs on.
pub fn host() -> Host {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let memory: u64 =
        field(&read("/proc/meminfo"), "MemTotal").split(' ').next().unwrap_or_default().parse().unwrap_or(0);
    Host {
        processor: field(&read("/proc/cpuinfo"), "model name"),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: memory / 1024,
        system: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        load: read("/proc/loadavg").split(' ').next().unwrap_or_default().parse().unwrap_or(0.0),
    }
}

/// The first line that a program prints; nothing if it cannot.
fn line_of(command: &mut Command) -> Option<String> {
    let done = command.output().ok().filter(|done| done.status.success())?;
    String::from_utf8_lossy(&done.stdout).lines().next().map(str::to_owned)
}

pub fn qemu_version() -> String {
    line_of(Command::new("qemu-system-x86_64").arg("--version")).unwrap_or_default()
}

/// The commit that this directory is at.
pub fn commit() -> Option<String> {
    line_of(Command::new("git").args(["describe", "--always", "--dirty"]))
}

pub fn date() -> String {
    line_of(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M"])).unwrap_or_default()
}

impl Accel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcg => "tcg",
            Self::Kvm => "kvm",
        }
    }
}
