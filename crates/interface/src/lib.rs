//! The public interface of a library of this workspace, as text: one item a line, by `public-api` from what rustdoc knows.

use std::env;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// What `public-api` reads of rustdoc's JSON.
pub const FORMAT: u32 = rustdoc_types::FORMAT_VERSION;

/// What became of a library's interface.
pub enum Interface {
    /// The public items, sorted.
    Items(String),
    /// This compiler's rustdoc writes another version of its format than [`FORMAT`]: this one.
    OtherFormat(u32),
}

/// The public items of `package`.
///
/// # Errors
/// It cannot be documented.
pub fn interface(package: &str) -> anyhow::Result<Interface> {
    let target = target().join("interface");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["rustdoc", "--quiet", "--lib", "--package", package, "--target-dir"]).arg(&target);
    cargo.args(["--", "-Zunstable-options", "--output-format", "json", "--cap-lints", "allow"]);
    // rustdoc's JSON has no stable form yet; a stable compiler writes it when it is told that this is known.
    cargo.env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTFLAGS").current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = cargo.status().context("cargo does not start")?;
    ensure!(status.success(), "`{cargo:?}`: {status}");
    let json = target.join("doc").join(package.replace('-', "_")).with_extension("json");
    let format = format(&json)?;
    if format != FORMAT {
        return Ok(Interface::OtherFormat(format));
    }
    let interface = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(Interface::Items(interface.to_string()))
}

/// The version of the format that rustdoc has written.
fn format(json: &Path) -> anyhow::Result<u32> {
    #[derive(Deserialize)]
    struct Versioned {
        format_version: u32,
    }
    let file = File::open(json).with_context(|| format!("rustdoc has not written {}", json.display()))?;
    Ok(serde_json::from_reader::<_, Versioned>(BufReader::new(file))?.format_version)
}

/// Where what is built goes.
fn target() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A path that is not absolute is meant from where cargo was started: mostly the workspace.
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), |directory| workspace.join(directory))
}
