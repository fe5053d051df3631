//! `std::fs` and `std::io`.

use crate::Outcome;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub fn test() -> Outcome {
    let directory = std::env::temp_dir().join(format!("hello-rust.{}", std::process::id()));
    fs::create_dir_all(directory.join("a/b"))?;
    content(&directory)?;
    tree(&directory)?;
    errors(&directory)?;
    fs::remove_dir_all(&directory)?;
    assert!(!directory.exists());
    println!("files");
    Ok(())
}

fn content(directory: &Path) -> Outcome {
    let path = directory.join("lines");
    let mut writer = BufWriter::new(File::create(&path)?);
    for number in 0..50_000 {
        writeln!(writer, "line {number}")?;
    }
    writer.into_inner().map_err(io::Error::from)?.sync_all()?;
    let lines = BufReader::new(File::open(&path)?).lines().collect::<io::Result<Vec<_>>>()?;
    println!("{} lines, the last is {:?}", lines.len(), lines[lines.len() - 1]);
    let mut file = OpenOptions::new().read(true).write(true).open(&path)?;
    file.seek(SeekFrom::End(-6))?;
    let mut end = String::new();
    file.read_to_string(&mut end)?;
    assert_eq!(end, "49999\n");
    file.write_all_at(b"LINE", 0)?;
    file.set_len(6)?;
    assert_eq!(fs::read_to_string(&path)?, "LINE 0");
    OpenOptions::new().append(true).open(&path)?.write_all(b" and more")?;
    assert_eq!(fs::read(&path)?, b"LINE 0 and more");
    Ok(())
}

fn tree(directory: &Path) -> Outcome {
    fs::write(directory.join("a/file"), "text")?;
    assert_eq!(fs::copy(directory.join("a/file"), directory.join("a/b/copy"))?, 4);
    fs::rename(directory.join("a/file"), directory.join("moved"))?;
    symlink("moved", directory.join("link"))?;
    assert_eq!(fs::read_to_string(directory.join("link"))?, "text");
    assert_eq!(fs::read_link(directory.join("link"))?, PathBuf::from("moved"));
    assert!(fs::symlink_metadata(directory.join("link"))?.is_symlink());
    fs::set_permissions(directory.join("moved"), fs::Permissions::from_mode(0o640))?;
    let metadata = fs::metadata(directory.join("moved"))?;
    assert_eq!((metadata.len(), metadata.permissions().mode() & 0o7777), (4, 0o640));
    assert!(metadata.modified()?.elapsed().is_ok_and(|age| age.as_secs() < 3600));
    let canonical = fs::canonicalize(directory.join("a/../link"))?;
    assert_eq!(canonical, fs::canonicalize(directory)?.join("moved"));
    let mut names = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    println!("{}", names.join(" "));
    Ok(())
}

fn errors(directory: &Path) -> Outcome {
    let kind = |result: io::Result<File>| result.err().map(|error| error.kind());
    println!(
        "{:?} {:?} {:?}",
        kind(File::open(directory.join("none"))),
        kind(File::create_new(directory.join("lines"))),
        kind(File::open(directory.join("lines/below"))),
    );
    println!("{:?}", fs::remove_dir(directory.join("a")).err().map(|error| error.kind()));
    Ok(())
}
