//! `foldspace run`: from the command line to the exit status.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use foldspace_wire::{Bytes, Input, Job, Report};

use crate::archive::{self, Node, Tree};
use crate::args;
use crate::frames;
use crate::images::Images;
use crate::json;
use crate::linux;
use crate::machine::{self, Ended, Machine, Sink, Streams, System};
use crate::program;
use crate::snapshot;
use crate::verdict::Verdict;

/// How long the command waits for the end of its standard input before it says that it does.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the program and returns its exit status.
pub fn run(args: &args::Run) -> Result<u8> {
    run_and(args, None)
}

/// The same, and prints afterwards who mapped which frame when the program ended. Its status is the program's.
pub fn frames(args: &args::Run) -> Result<u8> {
    run_and(args, Some(frames::print))
}

fn run_and(args: &args::Run, then: Option<fn(&Report) -> Result<()>>) -> Result<u8> {
    if then.is_some() && args.linux.is_some() {
        bail!("Linux does not say who maps which frame");
    }
    let streams = Streams::of_this_process()?;
    let task = Task {
        system: if args.linux.is_some() { System::Linux } else { System::Foldspace },
        vmlinuz: args.linux.as_ref().and_then(Option::as_deref),
        shape: &args.machine,
        root: args.root.as_deref(),
        command: &args.command,
        env: environment(&args.env)?,
        list_frames: then.is_some(),
        snapshot: args.snapshot.is_some(),
        streams: &streams,
        limit: args.timeout,
        show_log: args.log,
    };
    let ended = task.run(Box::new(io::stdout()), Box::new(io::stderr()))?;
    let verdict = Verdict::of(&ended);
    verdict.explain(&ended, &args.command[0], args.log);
    if let Some(file) = &args.snapshot {
        snapshot::write(file, &args.command, &ended.report)?;
    }
    if let Some(then) = then.filter(|_| args.json.is_none()) {
        then(&ended.report)?;
    }
    if let Some(place) = &args.json {
        json::write(place.as_deref(), &json::Document::new(task.system, &args.command, &ended, &verdict))?;
    }
    Ok(verdict.status)
}

/// One program to run, on either system.
pub struct Task<'a> {
    pub system: System,
    /// The Linux kernel to boot if the system is Linux; `None` for the distribution's.
    pub vmlinuz: Option<&'a Path>,
    pub shape: &'a args::Machine,
    pub root: Option<&'a Path>,
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// `NAME=value` each.
    pub env: Vec<Bytes>,
    /// Whether the kernel is to say who maps which frame when the program ends.
    pub list_frames: bool,
    /// Whether snapshots of all address spaces are kept.
    pub snapshot: bool,
    pub streams: &'a Streams,
    pub limit: Option<Duration>,
    pub show_log: bool,
}

impl Task<'_> {
    /// Packs the archive, boots the machine and waits for its end.
    pub fn run(&self, output: Sink, error: Sink) -> Result<Ended> {
        machine::check_accelerator(self.shape, self.system)?;
        let images = Images::find()?;
        let tree = self.tree(&images)?;
        let kernel = match (self.system, &self.shape.kernel) {
            (System::Linux, _) => linux::kernel(self.vmlinuz)?,
            (System::Foldspace, None) => images.kernel(self.shape.build())?,
            (System::Foldspace, Some(kernel)) if kernel.is_file() => kernel.clone(),
            (System::Foldspace, Some(kernel)) => bail!("the kernel {} does not exist", kernel.display()),
        };
        // A file without a name: nothing is left behind however the command ends. QEMU opens it by our descriptor.
        let mut archive = tempfile::tempfile().context("cannot make a temporary file for the archive")?;
        let size = archive::write(&tree, &mut archive)?;
        self.check_memory(size)?;
        let machine = Machine {
            shape: self.shape.clone(),
            system: self.system,
            kernel,
            archive: format!("/proc/{}/fd/{}", std::process::id(), archive.as_raw_fd()).into(),
            interactive: self.streams.interactive(),
            show_log: self.show_log,
            limit: self.limit,
        };
        machine::run(&machine, output, error)
    }

    fn tree(&self, images: &Images) -> Result<Tree> {
        let mut tree = archive::base(self.root)?;
        let exec = program::provide(&self.command[0], self.root, &mut tree, images)?;
        tree.add("/init", Node::host(&images.init()?, 0o755));
        if self.streams.stdin == Input::File {
            tree.add(Job::STDIN_PATH, Node::file(read_stdin()?, 0o600));
        }
        let bytes = |text: &OsStr| Bytes(text.as_bytes().to_vec());
        let job = Job {
            exec: bytes(exec.as_os_str()),
            argv: self.command.iter().map(|arg| bytes(arg)).collect(),
            env: self.env.clone(),
            cwd: "/".into(),
            stdin: self.streams.stdin,
            stdout: self.streams.stdout,
            stderr: self.streams.stderr,
            list_frames: self.list_frames,
            snapshot: self.snapshot,
            window: machine::window(),
        };
        tree.add(Job::PATH, Node::file(serde_json::to_vec(&job)?, 0o600));
        Ok(tree)
    }

    /// A machine that cannot even unpack its archive would end in a kernel panic; this says so in advance. The archive
    /// is there twice, packed and unpacked, beside the kernel.
    fn check_memory(&self, archive: u64) -> Result<()> {
        let kernel: u64 = match self.system {
            System::Foldspace => 32 << 20,
            System::Linux => 96 << 20,
        };
        let needed = (kernel + 2 * archive).next_multiple_of(1 << 20) >> 20;
        if self.shape.memory >> 20 < needed {
            let given = self.shape.memory >> 20;
            bail!("--memory {given}M is too little: the kernel and the {} MiB of files need {needed}M", archive >> 20);
        }
        Ok(())
    }
}

/// The program's environment: what every program expects, then what the user gave.
pub fn environment(given: &[OsString]) -> Result<Vec<Bytes>> {
    let mut env = vec![
        (OsString::from("PATH"), OsString::from(program::INSIDE_PATH.join(":"))),
        ("HOME".into(), "/root".into()),
        ("USER".into(), "root".into()),
    ];
    if io::stdout().is_terminal()
        && let Some(term) = std::env::var_os("TERM")
    {
        env.push(("TERM".into(), term));
    }
    for variable in given {
        let bytes = variable.as_bytes();
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(0) => bail!("--env {}: the name is missing", variable.display()),
            Some(at) => (OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..]).to_owned()),
            // Like other commands that take an environment: a bare name means the value it has here, if any.
            None => match std::env::var_os(variable) {
                Some(value) => (variable.as_os_str(), value),
                None => continue,
            },
        };
        env.retain(|(known, _)| known != name);
        env.push((name.to_owned(), value));
    }
    Ok(env.into_iter().map(|(name, value)| Bytes([name.as_bytes(), b"=", value.as_bytes()].concat())).collect())
}

fn read_stdin() -> Result<Vec<u8>> {
    let (done, waiting) = channel::<()>();
    // Whoever runs the command with an input that never ends shall know what it is waiting for.
    let notice = std::thread::spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("foldspace: reading standard input to its end first (</dev/null if the program needs none)");
        }
    });
    let mut content = Vec::new();
    io::stdin().read_to_end(&mut content).context("cannot read standard input")?;
    drop(done);
    let _ = notice.join();
    Ok(content)
}
