//! Takes each check and lock of the manager away in turn, and shows which model notices.
//!
//! All mutations go into one copy of the sources, each behind a switch, so there is one build.

mod list;
mod orders;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use comfy_table::{ContentArrangement, Table};

use list::{Mutation, SOURCES};

/// Takes each check and lock of the memory manager away in turn, and shows which model notices.
#[derive(Parser)]
struct Args {
    /// Mutations whose names contain one of these; all, if there is none.
    names: Vec<String>,
    /// Weakens each memory ordering of what loom explores, instead: names are those of files.
    #[arg(long)]
    orders: bool,
    /// Asks `foldspace diff` instead of the models: so many operations beside this machine's Linux for each mutation. It has one thread, and notices what shows
    /// without another.
    #[arg(long, value_name = "OPERATIONS")]
    diff: Option<u64>,
    /// Where the copy of the sources and what is built from it goes.
    #[arg(long)]
    target: PathBuf,
    /// Mutants that are explored at once.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Seconds that a round may take. A mutant that nothing was noticed of until then is not caught.
    #[arg(long, default_value_t = 300)]
    patience: u64,
}

/// Whose cases are explored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    /// Those of the model that is there for the mutation.
    Its,
    All,
}

/// Schedules of each case, and which cases, one round after the other until something is noticed.
const ROUNDS: [(&str, Only); 3] = [("72", Only::Its), ("600", Only::Its), ("36", Only::All)];

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if args.orders {
        return weaken(&args);
    }
    let mutations = list::mutations()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let copy = args.target.join("mutants/source");
    copy_sources(&root, &copy)?;
    for (file, text) in list::mutated(&root, &mutations)? {
        fs::write(copy.join(SOURCES).join(file), text)?;
    }
    let switch = copy.join(SOURCES).join("sync.rs");
    fs::write(&switch, fs::read_to_string(&switch)? + SWITCH)?;
    if let Some(operations) = args.diff {
        return compare(&args, &mutations, &copy, operations);
    }
    let models = build(&copy, &args.target)?;
    ensure!(explore(&models, 0, ("36", None), args.patience)?.is_none(), "the models fail without any mutation");
    let chosen = |mutation: &Mutation| {
        args.names.is_empty() || args.names.iter().any(|name| mutation.name.contains(name.as_str()))
    };
    let queue: Mutex<VecDeque<(usize, &Mutation)>> =
        Mutex::new((1..).zip(&mutations).filter(|(_, mutation)| chosen(mutation)).collect());
    let found: Mutex<Vec<(usize, Option<Caught>)>> = Mutex::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let Some((number, mutation)) = queue.lock().expect("no worker panics").pop_front() else {
                            return Ok(());
                        };
                        let mut caught = None;
                        for (schedules, model) in ROUNDS {
                            let only = (model == Only::Its).then_some(mutation.model.as_str());
                            caught = explore(&models, number, (schedules, only), args.patience)?;
                            if caught.is_some() {
                                break;
                            }
                        }
                        eprintln!("{}: {}", mutation.name, caught.as_ref().map_or("NOT CAUGHT", |caught| &caught.by));
                        found.lock().expect("no worker panics").push((number, caught));
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    let mut found = found.into_inner()?;
    found.sort_by_key(|(number, _)| *number);
    println!("{}", table(&mutations, &found));
    let missed = found.iter().filter(|(_, caught)| caught.is_none()).count();
    println!("{} mutations, {missed} not caught", found.len());
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Has `foldspace diff` notice each mutation, or not.
fn compare(args: &Args, mutations: &[Mutation], copy: &Path, operations: u64) -> Result<ExitCode> {
    eprintln!("building the command with all mutations inside");
    let target = args.target.join("mutants/diff");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "-q", "--release", "-p", "foldspace-cli", "--target-dir"]).arg(&target).current_dir(copy);
    ensure!(cargo.env("RUSTFLAGS", "--cap-lints allow").status()?.success(), "the mutants cannot be built");
    let program = target.join("release/foldspace");
    let run = |number: usize| -> Result<(&str, f64)> {
        let began = Instant::now();
        let mut diff = Command::new(&program);
        diff.args(["diff", "--seed", "20", "--jobs", &args.jobs.to_string(), "--ops", &operations.to_string()]);
        diff.env("FOLDSPACE_MUTANT", number.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut diff = diff.spawn().context("the command does not start")?;
        let noticed = match ended(&mut diff, began, args.patience)? {
            Some(status) if status.success() => "no",
            Some(_) => "yes",
            None => "yes: it does not end",
        };
        Ok((noticed, began.elapsed().as_secs_f64()))
    };
    ensure!(run(0)?.0 == "no", "something differs without any mutation");
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["mutation", "without it that", "noticed", "seconds"]);
    let mut tried = 0;
    for (number, mutation) in (1..).zip(mutations) {
        if !args.names.is_empty() && !args.names.iter().any(|name| mutation.name.contains(name.as_str())) {
            continue;
        }
        let (noticed, seconds) = run(number)?;
        eprintln!("{}: {noticed}", mutation.name);
        tried += 1;
        table.add_row([&*mutation.name, &*mutation.breaks, noticed, &format!("{seconds:.1}")]);
    }
    println!("{table}");
    println!("{tried} mutations, {operations} operations each");
    Ok(ExitCode::SUCCESS)
}

/// Weakens each memory ordering in turn.
fn weaken(args: &Args) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let (orders, unnoticed) = (orders::all(&root)?, list::unnoticed()?);
    let copy = args.target.join("mutants/orders");
    copy_sources(&root, &copy)?;
    for (file, text) in orders::mutated(&root, &orders)? {
        fs::write(copy.join(SOURCES).join(file), text)?;
    }
    let switch = copy.join(SOURCES).join("sync.rs");
    fs::write(&switch, fs::read_to_string(&switch)? + orders::SWITCH)?;
    let program = orders::build(&copy, &args.target)?;
    ensure!(orders::explore_as_it_is(&program)?.is_none(), "the tests of loom fail with all orderings as they are");
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["where", "ordering", "weakened to", "noticed by", "seconds"]);
    let (mut tried, mut missed) = (0, 0);
    for (number, order) in (1..).zip(&orders) {
        if !args.names.is_empty() && !args.names.iter().any(|name| order.file.contains(name.as_str())) {
            continue;
        }
        let noticed = order.explore(&program, number)?;
        tried += 1;
        let (by, seconds) = match (&noticed, order.excuse(&unnoticed)) {
            (Some(noticed), _) => (noticed.by.clone(), format!("{:.1}", noticed.seconds)),
            (None, Some(because)) => (format!("nothing: {because}"), String::new()),
            (None, None) => {
                missed += 1;
                ("NOT NOTICED".into(), String::new())
            }
        };
        eprintln!("{}:{} {} to {}: {by}", order.file, order.line, order.from, order.to);
        let place = format!("`{}`: `{}`", order.file, order.text.replace('|', "\\|"));
        table.add_row([place, order.from.into(), order.to.into(), by, seconds]);
    }
    println!("{table}");
    println!("{tried} weaker orderings, {missed} not noticed");
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a copy has beside the sources: the number of the mutation that is on.
const SWITCH: &str = r#"
#[allow(missing_docs)]
pub mod mutants {
    extern crate std;
    use std::sync::OnceLock;

    pub fn is_on(number: u32) -> bool {
        static ON: OnceLock<u32> = OnceLock::new();
        *ON.get_or_init(|| std::env::var("FOLDSPACE_MUTANT").ok().and_then(|on| on.parse().ok()).unwrap_or(0)) == number
    }
}
"#;

/// Copies what is built; a file that has not changed stays as it is, so that it is not built again.
fn copy_sources(root: &Path, copy: &Path) -> Result<()> {
    fs::create_dir_all(copy)?;
    for entry in ["Cargo.toml", "Cargo.lock", "crates", "linux"] {
        copy_tree(&root.join(entry), &copy.join(entry)).with_context(|| format!("{entry} cannot be copied"))?;
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    let content = fs::read(from)?;
    if fs::read(to).ok().as_ref() != Some(&content) {
        fs::write(to, content)?;
    }
    Ok(())
}

fn build(copy: &Path, target: &Path) -> Result<PathBuf> {
    let target = target.join("mutants/target");
    eprintln!("building the manager with all mutations inside");
    let built = Command::new("cargo")
        .args([
            "build",
            "-q",
            "--profile",
            "models",
            "-p",
            "foldspace-models",
            "--bin",
            "foldspace-models",
            "--target-dir",
        ])
        .arg(&target)
        .current_dir(copy)
        .env("RUSTFLAGS", "--cfg foldspace_shuttle --cap-lints allow")
        .status()?;
    ensure!(built.success(), "the mutants cannot be built");
    Ok(target.join("models/foldspace-models"))
}

/// How a mutation was noticed.
struct Caught {
    by: String,
    schedules: String,
    seconds: f64,
    what: String,
}

/// How a program has ended; `None` if that took more than `patience` seconds, and it was killed.
fn ended(child: &mut Child, began: Instant, patience: u64) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() > Duration::from_secs(patience) {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs the models, or one, with a mutation on.
fn explore(
    models: &Path,
    number: usize,
    (schedules, only): (&str, Option<&str>),
    patience: u64,
) -> Result<Option<Caught>> {
    let began = Instant::now();
    let mut child = Command::new(models)
        .args(["--iterations", schedules])
        .args(only)
        .env("FOLDSPACE_MUTANT", number.to_string())
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("the models do not start")?;
    let mut output = child.stdout.take().context("it was piped")?;
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut output, &mut text).map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let status = ended(&mut child, began, patience)?;
    let text = reader.join().expect("reading does not panic")?;
    let seconds = began.elapsed().as_secs_f64();
    let Some(status) = status.filter(|status| !status.success()) else { return Ok(None) };
    // FAILED model case n (...), scheduler, after n schedules, s s: what
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("FAILED ")) else {
        if status.code().is_some() {
            bail!("the models ended with {status}: {text}");
        }
        // A check failed while another was being reported.
        let by = format!("{}, which ended with {status}", only.unwrap_or("some model"));
        return Ok(Some(Caught { by, schedules: String::new(), seconds, what: status.to_string() }));
    };
    let by = line.split(" (").next().unwrap_or(line).to_owned();
    let after = line.split(", after ").nth(1).unwrap_or("");
    let schedules = after.split(' ').next().unwrap_or("").to_owned();
    let what = after.split(" s: ").nth(1).unwrap_or("").trim_end_matches(':').to_owned();
    Ok(Some(Caught { by, schedules, seconds, what }))
}

fn table(mutations: &[Mutation], found: &[(usize, Option<Caught>)]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["mutation", "without it that", "caught by", "schedules", "seconds", "as"]);
    for (number, caught) in found {
        let mutation = &mutations[number - 1];
        let row = match caught {
            Some(Caught { by, schedules, seconds, what }) => {
                let what: String = what.chars().take(90).collect();
                [by.clone(), schedules.clone(), format!("{seconds:.1}"), what.replace('|', "/")]
            }
            None => ["NOT CAUGHT".into(), String::new(), String::new(), String::new()],
        };
        table.add_row([mutation.name.clone(), mutation.breaks.clone()].into_iter().chain(row));
    }
    table
}
