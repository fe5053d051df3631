//! `ioctl`.

use linux_raw_sys::ioctl as request;

use super::content_file;
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::inode::Kind;
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// ioctl(2): what applies to every file here, the rest by the file.
pub fn ioctl(task: &Task, fd: i32, number: u32, argument: u64) -> SysResult {
    let file = content_file(task, fd)?;
    match number {
        request::FIOCLEX => task.files.lock().set_at_exec(fd, AtExec::Close)?,
        request::FIONCLEX => task.files.lock().set_at_exec(fd, AtExec::Keep)?,
        request::FIONBIO => {
            let on: i32 = uaccess::read(argument)?;
            let mut flags = file.flags();
            flags.set(OpenFlags::NON_BLOCKING, on != 0);
            file.set_flags(flags);
        }
        request::FIOASYNC => {
            let on: i32 = uaccess::read(argument)?;
            if !matches!(file.inode().kind, Kind::Socket | Kind::Fifo(_) | Kind::Character(_)) {
                return Err(Errno::ENOTTY);
            }
            let mut flags = file.flags();
            flags.set(OpenFlags::ASYNC, on != 0);
            file.set_flags(flags);
        }
        // The size of a directory in blocks, or a file's map: ENOTTY, as where a file system has none.
        _ => return file.body.ioctl(task, &file, number, argument),
    }
    Ok::<usize, Errno>(0)
}
