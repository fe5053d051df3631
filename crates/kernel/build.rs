//! Tells the linker how the image is laid out. What the compiler must be told cannot be said here; the whole command is
//!
//! ```text
//! cargo build -p foldspace-kernel --profile kernel --target x86_64-unknown-linux-gnu --config 'build.rustflags=["-Crelocation-model=static","-Ccode-model=kernel","-Cno-redzone=yes","-Cforce-frame-pointers=yes","-Cforce-unwind-tables=no"]'
//! ```
//!
//! (`--profile kernel-debug` for one with assertions), and the image is `target/x86_64-unknown-linux-gnu/kernel/foldspace-kernel`.
//! The target is the host's: there is no bare-metal target to install.

use std::env;
use std::path::Path;

fn main() {
    let directory = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let script = Path::new(&directory).join("link.ld");
    println!("cargo::rerun-if-changed={}", script.display());
    println!("cargo::rerun-if-changed=build.rs");
    let script = format!("-Wl,-T,{}", script.display());
    for argument in [
        "-nostdlib",
        "-nostartfiles",
        "-static",
        "-no-pie",
        &script,
        "-Wl,--gc-sections",
        "-Wl,--build-id=none",
        "-Wl,-z,max-page-size=4096",
        "-Wl,-z,norelro",
    ] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
