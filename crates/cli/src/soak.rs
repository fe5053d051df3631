//! `foldspace soak`: everything at once inside, for a long time, on the kernel that checks itself at the end.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use anyhow::Result;

use crate::args::{self, Accel, Fork, Machine};
use crate::machine::{Streams, System};
use crate::run::{Task, environment};
use crate::verdict::Verdict;

const PROGRAM: &str = "soak";

/// What a run may take beside the time that is asked for: to boot, to let all come to their ends, to check everything.
const AROUND: Duration = Duration::from_secs(600);

/// Runs it; 0 if nothing was wrong and nothing is lost.
pub fn soak(args: &args::Soak) -> Result<u8> {
    let length = Duration::from_secs_f64(args.minutes * 60.0);
    let shape = Machine {
        memory: args.memory,
        cpus: Some(args.cpus),
        fork: Fork::Full,
        icount: false,
        accel: Accel::Tcg,
        debug: !args.release,
        kernel: args.kernel.clone(),
        append: None,
        plugin: None,
        lacks: &[],
    };
    let mut command: Vec<OsString> =
        [PROGRAM, "--seconds", &length.as_secs().max(1).to_string(), "--seed", &args.seed.to_string()]
            .map(Into::into)
            .into();
    if let Some(kind) = &args.only {
        command.extend(["--only".into(), kind.into()]);
    }
    let task = Task {
        system: System::Foldspace,
        vmlinuz: None,
        shape: &shape,
        root: None,
        command: &command,
        env: environment(&[])?,
        list_frames: false,
        snapshot: false,
        streams: &Streams::CAPTURED,
        limit: Some(length + AROUND),
        show_log: false,
    };
    let ended = task.run(Box::new(io::stdout()), Box::new(io::stderr()))?;
    let verdict = Verdict::of(&ended);
    verdict.explain(&ended, &command[0], false);
    if verdict.status == 0 {
        let checked = if args.release { "" } else { "; every invariant of the memory manager holds" };
        println!(
            "soak: {} s on {} processors, seed {}: nothing wrong, nothing lost{checked}",
            length.as_secs(),
            args.cpus,
            args.seed
        );
    }
    Ok(verdict.status)
}
