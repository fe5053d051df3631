//! Workers of a serverless runtime: each request has a process of its own, forked from an interpreter that has loaded everything, or started anew.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use foldspace_guest_measure::figures::free_kib;
use foldspace_guest_measure::process::{self, Fork, Gate};
use foldspace_guest_measure::row::{Figures, Row, Settings};
use mlua::{Function, Lua};

/// The first argument of the program when it is a worker that starts anew.
pub const COLD: &str = "--cold-worker";

/// What a runtime loads before it serves: a library, and tables of it (some 16 MiB).
const PRELUDE: &str = r#"
local words = {}
for i = 1, 60000 do
  words[i] = { id = i, name = "word " .. i, weight = (i * 7919) % 1009 }
end
local by_name = {}
for _, word in ipairs(words) do by_name[word.name] = word end
function handle(request)
  local total, out = 0, {}
  for i = 1, 20 do
    local word = by_name["word " .. ((request * 131 + i * 17) % 60000 + 1)]
    total = total + word.weight
    out[#out + 1] = word.name .. "=" .. word.weight
  end
  return #table.concat(out, ";") + total
end
"#;

pub fn rows() -> Vec<Row> {
    vec![
        Row::new("pool_warm", "a request served by a worker forked from a warm interpreter", "request", warm)
            .needs_mib(128),
        Row::new(
            "pool_cold",
            "a request served by a worker started anew (fork, execve, initialisation)",
            "request",
            cold,
        )
        .needs_mib(128),
        Row::new("pool_memory", "memory that a warm worker takes once it has served a request", "worker", memory)
            .needs_mib(512)
            .in_unit("KiB"),
    ]
}

struct Interpreter {
    handle: Function,
    _lua: Lua,
}

impl Interpreter {
    fn new() -> mlua::Result<Interpreter> {
        let lua = Lua::new();
        lua.load(PRELUDE).set_name("prelude").exec()?;
        // As pools do before they fork: a collector that marks what it finds would write to everything that is shared.
        lua.gc_collect()?;
        lua.gc_stop();
        Ok(Interpreter { handle: lua.globals().get("handle")?, _lua: lua })
    }

    fn serve(&self, request: u32) -> bool {
        self.handle.call::<i64>(request).is_ok_and(|answer| answer > 0)
    }
}

fn interpreter() -> io::Result<Interpreter> {
    Interpreter::new().map_err(|error| io::Error::other(error.to_string()))
}

fn warm(settings: &Settings) -> io::Result<Figures> {
    let interpreter = interpreter()?;
    let mut runs = Vec::new();
    for request in 0..settings.effort.runs(60) as u32 {
        let start = settings.counter.now();
        match process::fork()? {
            Fork::Child => process::exit(i32::from(!interpreter.serve(request))),
            Fork::Parent(child) => {
                child.wait()?;
                runs.push((settings.counter.now() - start) as f64);
            }
        }
    }
    Ok(runs.into())
}

fn cold(settings: &Settings) -> io::Result<Figures> {
    let path = CString::new(std::env::current_exe()?.into_os_string().into_vec())?;
    let argument = CString::new(COLD)?;
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(5) {
        let start = settings.counter.now();
        match process::fork()? {
            Fork::Child => {
                let error = process::execute(&path, &[&path, &argument]);
                process::exit(error.raw_os_error().unwrap_or(1))
            }
            Fork::Parent(child) => {
                child.wait()?;
                runs.push((settings.counter.now() - start) as f64);
            }
        }
    }
    Ok(runs.into())
}

/// What a worker that starts anew does.
pub fn cold_worker() -> ExitCode {
    match interpreter() {
        Ok(interpreter) => ExitCode::from(u8::from(!interpreter.serve(1))),
        Err(_) => ExitCode::FAILURE,
    }
}

fn memory(settings: &Settings) -> io::Result<Figures> {
    const WORKERS: usize = 50;
    let interpreter = interpreter()?;
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(3) {
        let (served, end) = (Gate::new()?, Gate::new()?);
        let mut workers = Vec::new();
        let before = free_kib()?;
        for request in 0..WORKERS as u32 {
            match process::fork()? {
                Fork::Child => {
                    let right = interpreter.serve(request);
                    served.open();
                    end.pass();
                    process::exit(i32::from(!right))
                }
                Fork::Parent(worker) => workers.push(worker),
            }
        }
        (0..WORKERS).for_each(|_| served.pass());
        runs.push((before as f64 - free_kib()? as f64) / WORKERS as f64);
        (0..WORKERS).for_each(|_| end.open());
        workers.into_iter().try_for_each(process::Child::wait)?;
    }
    Ok(runs.into())
}
