//! From what the user names to a program in the archive that can be executed there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use elf::ElfStream;
use elf::abi::{EM_X86_64, ET_DYN, ET_EXEC, PT_INTERP};
use elf::endian::AnyEndian;
use elf::file::Class;

use crate::archive::{Kind, Node, Tree};
use crate::images::Images;
use crate::refusal::Refusal;

/// Where a name is looked for inside `--root`, in this order; also the program's PATH.
pub const INSIDE_PATH: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Finds the program, puts it into the tree if it is not there yet, and makes sure that it can be executed. Returns
/// its path inside.
pub fn provide(name: &OsStr, root: Option<&Path>, tree: &mut Tree, images: &Images) -> Result<PathBuf> {
    let shown = name.display();
    let inside = match find(name, root, tree, images)? {
        Found::Inside(place) => place,
        Found::Host(host) => {
            let mode = fs::metadata(&host).with_context(|| format!("cannot read {shown}"))?.permissions().mode();
            let file_name = host.file_name().unwrap_or(name).to_str();
            let file_name = file_name.context("the program's name is not UTF-8")?;
            let place = tree.add(&format!("/bin/{file_name}"), Node::host(&host, mode & 0o777));
            if is_busybox(&host) {
                add_applets(tree, &host, &place)?;
            }
            place
        }
    };
    check_executable(name, &inside, tree, Depth::Program)?;
    Ok(inside)
}

enum Found {
    /// A path in the tree, without links except the last: a program may look at its own name.
    Inside(PathBuf),
    Host(PathBuf),
}

fn find(name: &OsStr, root: Option<&Path>, tree: &Tree, images: &Images) -> Result<Found> {
    let path = Path::new(name);
    let shown = name.display();
    if path.components().count() > 1 || path.is_absolute() {
        // With a root, an absolute path means the root's file, as in chroot.
        if path.is_absolute() && is_file(tree, path) {
            return Ok(Found::Inside(path.to_owned()));
        }
        if !path.exists() {
            let also = if root.is_some() { ", neither here nor in --root" } else { "" };
            return Err(Refusal::not_found(format!("{shown}: there is no such file{also}")));
        }
        if path.is_dir() {
            return Err(Refusal::cannot_execute(format!("{shown} is a directory")));
        }
        // A file of the root given by its path here keeps its place.
        let kept = root.and_then(|root| {
            let place =
                Path::new("/").join(fs::canonicalize(path).ok()?.strip_prefix(fs::canonicalize(root).ok()?).ok()?);
            is_file(tree, &place).then_some(place)
        });
        return Ok(kept.map_or_else(|| Found::Host(path.to_owned()), Found::Inside));
    }
    let in_root = INSIDE_PATH.iter().map(|dir| Path::new(dir).join(name)).find(|place| is_file(tree, place));
    if let Some(place) = in_root {
        return Ok(Found::Inside(place));
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&dirs).map(|dir| dir.join(name)).find(|file| is_executable(file));
    let ours = || name.to_str().and_then(|name| images.guest(name));
    on_path.or_else(ours).map(Found::Host).ok_or_else(|| {
        let looked = if root.is_some() { "in --root and on the PATH" } else { "on the PATH" };
        let hint = if path.is_file() { format!("; for the file here, write ./{shown}") } else { String::new() };
        Refusal::not_found(format!("{shown}: no such program {looked}{hint}"))
    })
}

fn is_file(tree: &Tree, path: &Path) -> bool {
    tree.resolve(path).is_some_and(|(_, node)| matches!(node.kind, Kind::Host(_) | Kind::Bytes(_)))
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Whether the user's program is being checked, or what it needs to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Program,
    /// The interpreter of a script. Linux follows a few more, but a script for a script is rare enough.
    Interpreter,
}

/// Makes sure that the kernels can execute the file at `inside`, or says in one sentence why not.
fn check_executable(name: &OsStr, inside: &Path, tree: &Tree, depth: Depth) -> Result<()> {
    let name = name.display();
    let Some((_, node)) = tree.resolve(inside) else {
        return Err(Refusal::not_found(format!("{name}: there is no such file in the archive")));
    };
    if node.mode & 0o111 == 0 {
        return Err(Refusal::cannot_execute(format!("{name} is not executable: chmod +x it first")));
    }
    let Kind::Host(host) = &node.kind else { return Ok(()) };
    let mut file = File::open(host).with_context(|| format!("cannot read {}", host.display()))?;
    let mut start = Vec::new();
    file.by_ref().take(256).read_to_end(&mut start).with_context(|| format!("cannot read {}", host.display()))?;

    if let Some(rest) = start.strip_prefix(b"#!") {
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let interpreter = line.split_whitespace().next().unwrap_or_default();
        if interpreter.is_empty() {
            return Err(Refusal::cannot_execute(format!("{name} is a script that names no interpreter")));
        }
        if !is_file(tree, Path::new(interpreter)) {
            return Err(Refusal::cannot_execute(format!(
                "{name} is a script for {interpreter}, which is not inside: give --root a directory that has it"
            )));
        }
        return match depth {
            Depth::Program => check_executable(interpreter.as_ref(), Path::new(interpreter), tree, Depth::Interpreter),
            Depth::Interpreter => Ok(()),
        };
    }
    if !start.starts_with(b"\x7fELF") {
        return Err(Refusal::cannot_execute(format!("{name} is not a program: neither an ELF file nor a script")));
    }
    let interpreter = check_elf(file).map_err(|fault| Refusal::cannot_execute(format!("{name} {fault}")))?;
    match interpreter {
        Some(path) if !is_file(tree, Path::new(&path)) => Err(Refusal::cannot_execute(format!(
            "{name} is dynamically linked and its interpreter {path} is not inside: link it statically, or give \
             --root a directory that has the interpreter and the libraries"
        ))),
        _ => Ok(()),
    }
}

/// Whether this is an ELF file for this machine; the interpreter that it asks for. The error ends a sentence that
/// begins with the program's name.
fn check_elf(file: File) -> Result<Option<String>, String> {
    let damaged = |e: elf::ParseError| format!("is not a sound ELF file: {e}");
    let mut elf = ElfStream::<AnyEndian, _>::open_stream(file).map_err(damaged)?;
    if elf.ehdr.class != Class::ELF64 {
        return Err("is a 32-bit program; only 64-bit ones (x86-64) run here".into());
    }
    if elf.ehdr.e_machine != EM_X86_64 {
        let machine = elf::to_str::e_machine_to_human_str(elf.ehdr.e_machine)
            .map_or_else(|| format!("machine {}", elf.ehdr.e_machine), str::to_owned);
        return Err(format!("is a program for another processor ({machine}); only x86-64 ones run here"));
    }
    if !matches!(elf.ehdr.e_type, ET_EXEC | ET_DYN) {
        return Err("is an ELF file but not a program: an object file or a core dump".into());
    }
    let Some(header) = elf.segments().iter().find(|header| header.p_type == PT_INTERP).copied() else {
        return Ok(None);
    };
    // A path that ends with a zero byte.
    let path = elf.segment_data(&header).map_err(damaged)?;
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    Ok(Some(String::from_utf8_lossy(path).into_owned()))
}

fn is_busybox(host: &Path) -> bool {
    fs::canonicalize(host).is_ok_and(|real| real.file_name() == Some("busybox".as_ref()))
}

/// Links each of busybox's applets to it where nothing else has the name, as `busybox --install` does, so that
/// `/bin/sh` is there for scripts and for system(3).
fn add_applets(tree: &mut Tree, host: &Path, busybox: &Path) -> Result<()> {
    let content = fs::read(host).with_context(|| format!("cannot read {}", host.display()))?;
    let Some(target) = busybox.to_str() else { return Ok(()) };
    let names = applets(&content);
    // A build without the table we know still gets what everything depends on.
    let names = if names.is_empty() { vec!["sh"] } else { names };
    for name in names {
        let taken = INSIDE_PATH.iter().any(|dir| tree.resolve(&Path::new(dir).join(name)).is_some());
        if !taken {
            tree.add_missing(&format!("/bin/{name}"), Node::link(target));
        }
    }
    Ok(())
}

/// The names in busybox's table of applets: sorted, each ended by a zero byte, the first two always `[` and `[[`, the
/// last followed by one zero byte more. Read from the file, so that nothing has to be executed on the host.
fn applets(content: &[u8]) -> Vec<&str> {
    const START: &[u8] = b"\0[\0[[\0";
    let Some(at) = content.windows(START.len()).position(|window| window == START) else { return Vec::new() };
    let names = content[at + 1..].split(|byte| *byte == 0).map_while(|name| {
        let sound = !name.is_empty() && name.iter().all(|c| c.is_ascii_alphanumeric() || b"[-_.+".contains(c));
        std::str::from_utf8(name).ok().filter(|_| sound)
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::applets;

    #[test]
    fn applets_are_read_from_the_table_and_nothing_beyond() {
        assert_eq!(applets(b"junk\0[\0[[\0ash\0x-y\0\0/bin/sh\0"), ["[", "[[", "ash", "x-y"]);
        assert!(applets(b"\x7fELF nothing of the kind").is_empty());
    }
}
