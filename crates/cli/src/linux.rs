//! The Linux kernel to compare with: the distribution's cloud kernel, fetched as a package and unpacked into a cache.
//! Nothing is installed and nothing needs root.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;

/// The package that depends on the current cloud kernel in Debian and its relatives.
const META_PACKAGE: &str = "linux-image-cloud-amd64";
/// What the packages of the kernels themselves start with.
const PACKAGE_PREFIX: &str = "linux-image-";
const OTHERWISE: &str = "give a kernel with --linux=VMLINUZ";

/// The kernel at `given`, or the distribution's.
pub fn kernel(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => bail!("the Linux kernel {} does not exist", path.display()),
        None => {
            let cache = cache_directory()?;
            match newest(&cache)? {
                Some(kernel) => Ok(kernel),
                None => fetch(&cache),
            }
        }
    }
}

/// `foldspace/linux` in the user's cache (XDG base directory specification).
fn cache_directory() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME says where a cache can be")?;
    let cache = base.join("foldspace/linux");
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    Ok(cache)
}

fn newest(dir: &Path) -> Result<Option<PathBuf>> {
    let mut kernels = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz-")) {
            kernels.push((fs::metadata(&path)?.modified()?, path));
        }
    }
    Ok(kernels.into_iter().max().map(|(_, path)| path))
}

fn fetch(cache: &Path) -> Result<PathBuf> {
    let progress = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new_spinner().with_message("fetching the distribution's cloud kernel with apt");
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    });
    let fetched = download(cache);
    if let Some(bar) = progress {
        bar.finish_and_clear();
    }
    fetched
}

fn download(cache: &Path) -> Result<PathBuf> {
    let package = real_package()?;
    // Beside its final place, so that the last step is a rename: two runs at once do not disturb each other.
    let work = tempfile::tempdir_in(cache).with_context(|| format!("cannot write to {}", cache.display()))?;
    tool(Command::new("apt-get").args(["-q", "download", &package]).current_dir(work.path()))?;
    let deb = only_file(work.path(), |name| name.ends_with(".deb"))?;
    let unpacked = work.path().join("unpacked");
    tool(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&unpacked))?;
    let kernel = only_file(&unpacked.join("boot"), |name| name.starts_with("vmlinuz-"))?;
    let place = cache.join(kernel.file_name().expect("a file has a name"));
    fs::rename(&kernel, &place).with_context(|| format!("cannot write to {}", cache.display()))?;
    Ok(place)
}

/// The package that has the kernel in it.
fn real_package() -> Result<String> {
    let listing = tool(Command::new("apt-cache").args(["depends", "--important", META_PACKAGE]))?;
    let depends = listing.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package = depends.map(str::to_owned).find(|package| package.starts_with(PACKAGE_PREFIX));
    package.with_context(|| format!("apt knows no package {META_PACKAGE}: run `apt-get update`, or {OTHERWISE}"))
}

fn only_file(dir: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    files
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&wanted))
        .with_context(|| format!("the package holds no kernel: {OTHERWISE}"))
}

/// Runs a tool of the distribution and returns what it printed.
fn tool(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("the distribution's kernel is fetched with {name}, which is not here: {OTHERWISE}"))?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        let reason =
            text.lines().find(|line| line.starts_with("E:")).or(text.lines().last()).unwrap_or("no reason given");
        bail!("{name} failed ({}): run `apt-get update`, or {OTHERWISE}", reason.trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
