//! Where the kernels and the programs that run inside were built to.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The directory of the kernels and guest programs: the variable `FOLDSPACE_IMAGES`, or `images` beside the directory
/// that this command was built into (`target/images` for `target/release/foldspace`).
pub struct Images(PathBuf);

impl Images {
    pub fn find() -> Result<Self> {
        if let Some(dir) = std::env::var_os("FOLDSPACE_IMAGES") {
            return Ok(Self(dir.into()));
        }
        let exe = std::env::current_exe().context("cannot find out where this command is")?;
        let found = exe.ancestors().skip(2).take(2).map(|dir| dir.join("images")).find(|dir| dir.is_dir());
        found.map(Self).context(
            "the kernel and the programs that run inside are not built: run `./x build`, \
             or set FOLDSPACE_IMAGES to the directory that has them",
        )
    }

    /// The Foldspace kernel.
    pub fn kernel(&self, debug: Build) -> Result<PathBuf> {
        match debug {
            Build::Release => self.file("foldspace-kernel"),
            Build::Debug => self.file("foldspace-kernel-debug"),
        }
    }

    /// The first process.
    pub fn init(&self) -> Result<PathBuf> {
        self.file("init")
    }

    /// The lean Linux, if `./x linux` has built one.
    pub fn lean_linux(&self) -> Option<PathBuf> {
        self.file("vmlinuz-lean").ok()
    }

    /// A program of ours that runs inside, if there is one of that name.
    pub fn guest(&self, name: &str) -> Option<PathBuf> {
        self.file(name)
            .ok()
            .filter(|_| !name.starts_with("foldspace-kernel") && !name.starts_with("vmlinuz") && name != "init")
    }

    /// A file of the directory.
    pub fn file(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        if !path.is_file() {
            bail!("{} is missing: run `./x build`", path.display());
        }
        Ok(path)
    }
}

/// The two builds of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Build {
    Release,
    /// Verifies the memory manager's invariants at the end of a run.
    Debug,
}
