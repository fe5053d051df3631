//! The command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::images::Build;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Runs Linux programs on the Foldspace memory manager, in a virtual machine.
#[derive(Parser)]
#[command(name = "foldspace", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a static Linux x86-64 program
    Run(Run),
    /// Run a program, and list who maps which frame when it ends: processes, addresses, files
    Frames(Run),
    /// Experiments here and on Linux: instructions and time, beside the goals; tables, JSON, a report
    Bench(Bench),
    /// Where the instructions of a row of `bench` go, by function of the kernel
    Profile(Profile),
    /// The demonstration: fork half a gigabyte in each mode, then on Linux beside it
    Demo(Demo),
    /// Random memory calls on this machine's Linux and on Foldspace, compared after each
    Diff(Diff),
    /// A log of strace on the published reverse maps, and on Foldspace
    Replay(Replay),
    /// How the published reverse maps, and Foldspace's, grow with a chain of forks and with many children of one parent
    Reverse(Reverse),
    /// A page for a browser: processes, their VMAs, and the page tables that they share, step by step
    Explore(Explore),
    /// Everything at once inside, for minutes or hours; every byte is verified, and nothing may be lost
    Soak(Soak),
}

#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    pub machine: Machine,

    /// Run on Linux instead: the same archive, the same QEMU. Without a file, the distribution's cloud kernel, fetched
    /// by apt into a cache
    #[arg(long, value_name = "VMLINUZ", num_args = 0..=1, require_equals = true)]
    pub linux: Option<Option<PathBuf>>,

    /// A directory that becomes the root of the file system inside
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// A variable of the program's environment, `NAME=value`, or `NAME` to pass on the value it has here
    #[arg(long, value_name = "K=V")]
    pub env: Vec<OsString>,

    /// Write one JSON document about the run: the last line on the error output, or the file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub json: Option<Option<PathBuf>>,

    /// Write what `explore` shows: all processes, their VMAs and page tables, at the program's end, and at each moment that a program inside asks for
    /// (`echo LABEL >/proc/snapshot`)
    #[arg(long, value_name = "FILE", conflicts_with = "linux")]
    pub snapshot: Option<PathBuf>,

    /// Give up after so many seconds (exit status 124)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,

    /// Show the kernel's log on the error output as it is written
    #[arg(long)]
    pub log: bool,

    /// The program, a path here or inside `--root`, or a name to look for there and on the PATH; then its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Processors that the Foldspace kernel can use.
pub const MAX_PROCESSORS: u8 = 64;

/// The machine that a program runs on.
#[derive(Args, Clone)]
pub struct Machine {
    /// The machine's memory, such as 512M or 4G
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = size)]
    pub memory: u64,

    /// The number of processors: as many as this computer has (64 at most) unless said otherwise, one with `--icount`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub cpus: Option<u8>,

    /// How a process is forked
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Fork::Full)]
    pub fork: Fork,

    /// Make the clock count instructions: repeatable, one processor only
    #[arg(long)]
    pub icount: bool,

    /// Emulation in software, or the host's virtualization
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Accel::Tcg)]
    pub accel: Accel,

    /// The kernel's debug build: verifies every invariant of the memory manager at the end
    #[arg(long)]
    pub debug: bool,

    /// The Foldspace kernel to boot, instead of the one that was built with this command
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// More parameters for the kernel's command line
    #[arg(long, value_name = "TEXT")]
    pub append: Option<String>,

    /// What QEMU loads besides: for measurements, not for users.
    #[arg(skip)]
    pub plugin: Option<String>,

    /// Features that the emulated processor is not to have, by QEMU's names.
    #[arg(skip)]
    pub lacks: &'static [&'static str],
}

impl Machine {
    /// The number of processors.
    pub fn processors(&self) -> u8 {
        let of_the_host = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        match self.cpus {
            Some(count) => count,
            None if self.icount => 1,
            None => of_the_host().min(MAX_PROCESSORS.into()) as u8,
        }
    }

    /// The build of the kernel that this machine boots.
    pub fn build(&self) -> Build {
        if self.debug { Build::Debug } else { Build::Release }
    }
}

/// The modes of fork, as the kernel's command line spells them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Fork {
    /// Every table copied at fork, as Linux does
    Copy,
    /// The last level of tables shared
    Leaf,
    /// Everything below the root shared
    Full,
}

impl Fork {
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Leaf => "leaf",
            Self::Full => "full",
        }
    }
}

/// QEMU's accelerators, as QEMU spells them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Accel {
    Tcg,
    Kvm,
}

#[derive(Args)]
pub struct Bench {
    /// Experiments (fork, names, refpage, reverse, maps, applications, basic), or rows by the beginning of their names; or `maps_latency` or
    /// `maps_tearing` with tables of their own. Everything, if none is named
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// Print a JSON document instead of the tables
    #[arg(long)]
    pub json: bool,

    /// Fewer runs, and nothing that takes long: no process of 3 GiB, no tens of thousands of mappings with pages
    #[arg(long)]
    pub quick: bool,

    /// Write a report for a browser: DIR/index.html, one file that needs no network, and DIR/results.json
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,

    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,

    /// Print what became better or worse since a document of `--json`, beyond what differs from run to run
    #[arg(long, value_name = "OLD.json")]
    pub compare: Option<PathBuf>,

    /// Measure nothing: take the figures from a document of `--json`, or from several that together are one run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "quick", "repeats", "pairs", "cpus", "linux", "accel"])]
    pub from: Vec<PathBuf>,

    /// Boots of each system with instructions counted (default: 1; each boot repeats each row)
    #[arg(long, value_name = "N", value_parser = count)]
    pub repeats: Option<usize>,

    /// Boots of each system by the clock, in turns (default: 3, with `--quick` 1, and none if only rows are named)
    #[arg(long, value_name = "N", value_parser = count_or_none)]
    pub pairs: Option<usize>,

    /// The number of processors where instructions are not counted (default: 2; `maps_latency`: 3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub cpus: Option<u8>,

    /// Emulation in software, or the host's virtualization: native times, and no instructions
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Accel::Tcg)]
    pub accel: Accel,

    /// The Linux kernel to compare with (default: the distribution's cloud kernel); beside it, the one that `./x linux` has built, if it has
    #[arg(long, value_name = "VMLINUZ")]
    pub linux: Option<PathBuf>,
}

#[derive(Args)]
pub struct Profile {
    /// A row of `bench`, such as fork_512
    #[arg(value_name = "ROW")]
    pub row: String,

    /// On Linux: the one that `./x linux` has built, or the given one
    #[arg(long, value_name = "VMLINUZ", num_args = 0..=1, require_equals = true)]
    pub linux: Option<Option<PathBuf>>,

    /// The System.map of the given Linux
    #[arg(long, value_name = "FILE", requires = "linux")]
    pub map: Option<PathBuf>,

    /// So many functions
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub lines: usize,
}

#[derive(Args)]
pub struct Demo {
    /// The Linux kernel to compare with (default: the distribution's cloud kernel)
    #[arg(long, value_name = "VMLINUZ")]
    pub linux: Option<PathBuf>,

    /// Print a JSON document instead of the table
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Diff {
    /// Which random sequences: the same number gives the same
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Operations to compare, at least
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub ops: u64,

    /// Run the sequences as a program on the Foldspace kernel, in QEMU, and compare with this machine's Linux
    #[arg(long, conflicts_with_all = ["sequence", "jobs"])]
    pub guest: bool,

    /// With `--guest`: compare with Linux in the same QEMU instead. Without a file, the distribution's cloud kernel
    #[arg(long, value_name = "VMLINUZ", num_args = 0..=1, require_equals = true, requires = "guest")]
    pub linux: Option<Option<PathBuf>>,

    /// Only the sequence of this number
    #[arg(long, value_name = "NUMBER")]
    pub sequence: Option<u64>,

    /// Pairs of Linux and Foldspace that work at the same time (default: as many as there are processors)
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,

    /// Only these groups of calls
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    pub only: Vec<String>,

    /// All groups of calls but these (names are left out anyway where this machine's Linux has none, and what has changed since Linux 6.1 with `--linux`)
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    pub without: Vec<String>,

    /// Stop after so many differences
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub differences: usize,

    /// Write the C program that shows the first difference to a file
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,

    /// Print a JSON document instead of the tables
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Replay {
    /// What `strace -f -y -e trace=memory,process -o TRACE` wrote (`./x trace -- COMMAND`)
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Pages of each new private writable area that are stored to: the log does not say
    #[arg(long, value_name = "PAGES", default_value_t = 8)]
    pub stores: u64,

    /// Memory of Foldspace, paid for as it is used
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = size)]
    pub memory: u64,

    /// Verify every invariant at the end of the log
    #[arg(long)]
    pub check: bool,

    /// Print a JSON document instead of the tables
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Reverse {
    /// Forks of the chain: each child forks, and its parent exits
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub forks: u32,

    /// Children of the one parent
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub children: u32,

    /// Memory of Foldspace, paid for as it is used
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size)]
    pub memory: u64,

    /// Print a JSON document instead of the tables
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Explore {
    /// What `./x trace -- COMMAND` or `run --snapshot FILE` wrote; without, a short scene
    #[arg(value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Where the page is written: one file that needs no network
    #[arg(short, long, value_name = "FILE", default_value = "explore.html")]
    pub output: PathBuf,

    /// Of a log: how many steps are passed over first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub first: u64,

    /// Of a log: how many steps are shown at most
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub steps: usize,

    /// Of a log: pages of each new private writable area that are stored to, which it does not say
    #[arg(long, value_name = "PAGES", default_value_t = 8)]
    pub stores: u64,
}

#[derive(Args)]
pub struct Soak {
    /// How long
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    pub minutes: f64,

    /// The number of processors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub cpus: u8,

    /// Which random decisions: the same number gives the same ones, though not at the same moments
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// The machine's memory, which is nearly full at times
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    pub memory: u64,

    /// One kind of work only
    #[arg(long, value_name = "KIND")]
    pub only: Option<String>,

    /// The kernel's release build: faster, but it does not check itself at the end
    #[arg(long)]
    pub release: bool,

    /// The Foldspace kernel to boot, instead of the one that was built with this command
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
}

/// A size in bytes: a number with K, M, G or T for powers of 1024, and nothing for MiB, as QEMU has it.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" | "KIB" => 10,
        "" | "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err("a size is a number with K, M, G or T, such as 512M".into()),
    };
    let number: u64 = digits.parse().map_err(|_| "a size is a number with K, M, G or T, such as 512M".to_owned())?;
    number
        .checked_mul(1 << shift)
        .filter(|bytes| (1 << 20..=1 << 46).contains(bytes))
        .ok_or_else(|| "a machine has 1 MiB of memory at least and 64 TiB at most".into())
}

fn count(text: &str) -> Result<usize, String> {
    count_or_none(text)?.checked_sub(1).map(|less| less + 1).ok_or_else(|| "one at least".into())
}

fn count_or_none(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count <= 100).ok_or_else(|| "a number up to 100".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a time is a number of seconds, such as 30 or 0.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_are_binary_and_bounded() {
        for (text, bytes) in [("2G", 2 << 30), ("512m", 512 << 20), ("64MiB", 64 << 20), ("128", 128 << 20)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "2X", "-1M", "1K", "99999999999T", "1.5G"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
