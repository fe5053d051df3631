//! The tree as a cpio archive in the "newc" format, which both kernels unpack.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cpio::newc::{self, Builder, ModeFileType};

use super::tree::{Kind, Node, Tree};

/// The format's limit: sizes have eight hexadecimal digits.
const MAX_FILE: u64 = u32::MAX as u64;

/// Writes the archive and returns its size in bytes.
pub fn write(tree: &Tree, file: &mut File) -> Result<u64> {
    let mut out = io::BufWriter::with_capacity(1 << 20, file);
    for (number, (path, node)) in (1..).zip(tree.iter()) {
        write_node(&mut out, path, node, number).with_context(|| format!("cannot pack {}", path.display()))?;
    }
    newc::trailer(&mut out)?;
    out.flush()?;
    Ok(out.get_mut().stream_position()?)
}

fn write_node(out: &mut impl Write, path: &Path, node: &Node, number: u32) -> Result<()> {
    let name = path.strip_prefix("/").unwrap_or(path).to_str().context("the name is not UTF-8")?;
    let mut header = Builder::new(name).ino(number).mode(node.mode).mtime(node.mtime).nlink(1);
    let kind = match &node.kind {
        Kind::Directory => ModeFileType::Directory,
        Kind::Host(_) | Kind::Bytes(_) => ModeFileType::Regular,
        Kind::Link(_) => ModeFileType::Symlink,
        Kind::Fifo => ModeFileType::Fifo,
        Kind::Device { major, minor } => {
            header = header.rdev_major(*major).rdev_minor(*minor);
            ModeFileType::Char
        }
    };
    let header = header.set_mode_file_type(kind);
    match &node.kind {
        Kind::Host(host) => {
            let mut content = File::open(host).with_context(|| format!("cannot read {}", host.display()))?;
            let size = content.metadata()?.len();
            if size > MAX_FILE {
                bail!("it is larger than the 4 GiB that a file in the archive can have");
            }
            let mut to = header.write(out, u32::try_from(size)?);
            let copied = io::copy(&mut content, &mut to).with_context(|| format!("cannot read {}", host.display()))?;
            if copied != size {
                bail!("{} became shorter while it was read", host.display());
            }
            to.finish()?;
        }
        Kind::Bytes(content) => write_bytes(header, out, content)?,
        Kind::Link(target) => write_bytes(header, out, target.as_os_str().as_bytes())?,
        Kind::Directory | Kind::Fifo | Kind::Device { .. } => write_bytes(header, out, &[])?,
    }
    Ok(())
}

fn write_bytes(header: Builder, out: &mut impl Write, content: &[u8]) -> Result<()> {
    let size =
        u32::try_from(content.len()).context("it is larger than the 4 GiB that a file in the archive can have")?;
    let mut to = header.write(out, size);
    to.write_all(content)?;
    to.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_written_is_read_back() {
        let mut tree = Tree::default();
        tree.add("/dir/file", Node::file(b"content\n".to_vec(), 0o640));
        tree.add("/link", Node::link("dir/file"));
        tree.add("/null", Node::device(0o666, 1, 3));
        let mut file = tempfile::tempfile().unwrap();
        let size = write(&tree, &mut file).unwrap();
        assert_eq!(size, file.metadata().unwrap().len());
        file.rewind().unwrap();

        let mut seen = Vec::new();
        loop {
            let mut reader = newc::Reader::new(&mut file).unwrap();
            let entry = reader.entry();
            if entry.is_trailer() {
                break;
            }
            let about = (entry.name().to_owned(), entry.mode(), entry.rdev_major(), entry.rdev_minor());
            let mut content = String::new();
            reader.read_to_string(&mut content).unwrap();
            reader.finish().unwrap();
            seen.push((about, content));
        }
        let entry =
            |name: &str, mode, major, minor, content: &str| ((name.to_owned(), mode, major, minor), content.to_owned());
        assert_eq!(
            seen,
            [
                entry("dir", 0o40755, 0, 0, ""),
                entry("dir/file", 0o100640, 0, 0, "content\n"),
                entry("link", 0o120777, 0, 0, "dir/file"),
                entry("null", 0o20666, 1, 3, ""),
            ]
        );
    }
}
