//! Texts about one process or thread. Formats are those of Linux's `fs/proc/array.c` and `base.c`.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use foldspace::{AddressSpace, VirtAddr};
use linux_raw_sys::general as raw;

use super::node::ProcessFile;
use super::status;
use super::system::Text;
use crate::errno::Errno;
use crate::fs::File;
use crate::fs::fdtable::AtExec;
use crate::fs::mount::{Mount, MountNamespace};
use crate::fs::pidfd::PidFd;
use crate::fs::tty;
use crate::process::pid_namespace::PidNamespace;
use crate::process::time_namespace::{Counter, shown};
use crate::process::usage::TICKS_PER_SECOND;
use crate::process::user_namespace::Ids;
use crate::process::{Task, oom, tree};
use crate::sched;

/// Most bytes of arguments or environment that are shown: user memory must not fill the kernel's heap.
const STRINGS_MAX: u64 = 256 * 1024;

/// Appends a text about `task`, with the numbers of `namespace`.
pub fn text(
    file: ProcessFile,
    task: &Arc<Task>,
    namespace: &Arc<PidNamespace>,
    out: &mut Vec<u8>,
) -> Result<(), Errno> {
    match file {
        ProcessFile::Status => status::status(task, namespace, out),
        ProcessFile::Stat => stat(task, namespace, out),
        ProcessFile::Statm => task.space().statm(out),
        ProcessFile::Cmdline => {
            let (start, end) = task.space().layout().args;
            strings(&task.space(), start, end, out)?;
        }
        ProcessFile::Environ => {
            let (start, end) = task.space().layout().env;
            strings(&task.space(), start, end, out)?;
        }
        ProcessFile::Auxv => auxiliary_vector(&task.space(), out),
        ProcessFile::Comm => {
            out.extend_from_slice(&task.comm());
            out.push(b'\n');
        }
        ProcessFile::Limits => limits(task, out),
        ProcessFile::Mounts => mounts(task, out)?,
        ProcessFile::Mountinfo => mount_info(task, out)?,
        ProcessFile::OomScore => Text(out).put(format_args!("{}\n", oom::score(&task.process))),
        ProcessFile::OomScoreAdj => {
            let adjustment = task.process.oom_score_adjustment.load(Ordering::Relaxed);
            Text(out).put(format_args!("{adjustment}\n"));
        }
        ProcessFile::UidMap => id_map(task, Ids::Users, out),
        ProcessFile::GidMap => id_map(task, Ids::Groups, out),
        ProcessFile::Setgroups => {
            let denies = task.credentials().user_namespace.denies_groups();
            out.extend_from_slice(if denies { b"deny\n" } else { b"allow\n" });
        }
        ProcessFile::TimensOffsets => {
            let namespace = task.namespaces.lock().time_for_children.clone();
            for (clock, seconds, nanos) in namespace.offsets() {
                Text(out).put(format_args!("{clock:<10} {seconds:>10} {nanos:>9}\n"));
            }
        }
        ProcessFile::Wchan => out.push(b'0'),
        ProcessFile::Personality => {
            Text(out).put(format_args!("{:08x}\n", task.process.personality.load(Ordering::Relaxed)));
        }
        ProcessFile::Children => {
            for child in tree::children(task) {
                Text(out).put(format_args!("{} ", namespace.number_of(child)));
            }
        }
        ProcessFile::Cgroup => out.extend_from_slice(b"0::/\n"),
        // Opened as bodies of their own.
        ProcessFile::Maps | ProcessFile::Smaps | ProcessFile::SmapsRollup | ProcessFile::Pagemap | ProcessFile::Mem => {
            return Err(Errno::EINVAL);
        }
    }
    Ok(())
}

/// `/proc/PID/uid_map` and `gid_map`.
fn id_map(task: &Task, ids: Ids, out: &mut Vec<u8>) {
    let reader = sched::with_current(|task| task.credentials().user_namespace);
    for [first, outside, count] in task.credentials().user_namespace.lines(ids, &reader) {
        Text(out).put(format_args!("{first:>10} {outside:>10} {count:>10}\n"));
    }
}

/// The letter of a task's state.
pub fn state_letter(task: &Task) -> char {
    if task.is_leader() && tree::is_zombie(task.pid) || task.trace.lock().ended.is_some() {
        'Z'
    } else {
        task.state_letter()
    }
}

fn strings(space: &AddressSpace, start: VirtAddr, end: VirtAddr, out: &mut Vec<u8>) -> Result<(), Errno> {
    let len = end.get().saturating_sub(start.get()).min(STRINGS_MAX);
    let mut at = 0;
    let mut chunk = [0; 256];
    while at < len {
        let want = (len - at).min(chunk.len() as u64) as usize;
        let got = space.read(VirtAddr(start.get() + at), &mut chunk[..want]);
        out.try_reserve(got).map_err(|_| Errno::ENOMEM)?;
        out.extend_from_slice(&chunk[..got]);
        at += got as u64;
        if got < want {
            break;
        }
    }
    Ok(())
}

/// What the program was given above its environment when it began.
pub fn auxiliary_vector(space: &AddressSpace, out: &mut Vec<u8>) {
    /// More words than there are on any stack that was begun with.
    const MOST: u64 = 1 << 21;
    let start = space.layout().start_stack.get();
    let word = |index: u64| {
        let mut bytes = [0; 8];
        (space.read(VirtAddr(start + index * 8), &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
    };
    let Some(arguments) = word(0).filter(|&count| count < MOST) else { return };
    let mut at = 1 + arguments + 1;
    while word(at).is_some_and(|pointer| pointer != 0) && at < MOST {
        at += 1;
    }
    loop {
        at += 1;
        let (Some(key), Some(value)) = (word(at), word(at + 1)) else { return };
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&value.to_le_bytes());
        at += 1;
        if key == 0 {
            return;
        }
    }
}

fn stat(task: &Arc<Task>, namespace: &PidNamespace, out: &mut Vec<u8>) {
    let process = &task.process;
    let space = task.space();
    let usage = space.usage();
    let layout = space.layout();
    let times = process.usage();
    let terminal = tty::controlling(process.sid());
    let limit = process.limits.lock().soft(raw::RLIMIT_RSS);
    let (blocked, pending) = {
        let signals = task.signals.lock();
        (signals.blocked.bits(), signals.pending.set().bits())
    };
    let (ignored, caught) = status::handled(task);
    let resident = usage.resident_anon + usage.resident_file + usage.resident_shared;
    let mut text = Text(out);
    text.put(format_args!("{} (", namespace.number_of(task.pid)));
    text.bytes(&task.comm());
    let (tty_number, foreground) = match terminal {
        Some(tty) => (tty.number().encode(), i64::from(namespace.number_of(tty.foreground()))),
        None => (0_u64, -1),
    };
    // Fields in the order of proc_pid_stat(5), from the state (3) to the exit code (52).
    text.put(format_args!(
        ") {} {} {} {} {} {} {} {} 0 {} 0 {} {} 0 0 20 0 {} 0 {} {} {} {}",
        state_letter(task),
        namespace.number_of(task.ppid()),
        namespace.number_of(process.pgid()),
        namespace.number_of(process.sid()),
        tty_number,
        foreground,
        0x0040_0000, // PF_RANDOMIZE: what user processes have set.
        times.faults,
        0,
        times.user_ticks(),
        times.system_ticks(),
        threads(task),
        shown(Counter::Boottime, process.start_ns) / (1_000_000_000 / TICKS_PER_SECOND),
        usage.mapped * 4096,
        resident,
        limit,
    ));
    text.put(format_args!(
        " {} {} {} 0 0 {} {} {} {} 0 0 0 17 {} 0 0 0 0 0 {} {} {} {} {} {} {} 0\n",
        layout.code.0.get(),
        layout.code.1.get(),
        layout.start_stack.get(),
        pending,
        blocked,
        ignored,
        caught,
        task.thread.processor(),
        layout.data.0.get(),
        layout.data.1.get(),
        layout.start_brk.get(),
        layout.args.0.get(),
        layout.args.1.get(),
        layout.env.0.get(),
        layout.env.1.get(),
    ));
}

/// Live threads of a task's process; a zombie still counts as one.
pub fn threads(task: &Task) -> usize {
    task.process.threads.lock().len().max(1)
}

fn limits(task: &Task, out: &mut Vec<u8>) {
    /// In the order of Linux's numbers: name, unit.
    const NAMES: [(&str, &str); 16] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let limits = *task.process.limits.lock();
    let mut text = Text(out);
    text.put(format_args!("{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units"));
    let show = |value: u64| if value == u64::MAX { "unlimited".into() } else { format!("{value}") };
    for (number, (name, unit)) in NAMES.iter().enumerate() {
        let Some(limit) = limits.get(number as u32) else { continue };
        text.put(format_args!("{:<25} {:<20} {:<20} ", name, show(limit.soft), show(limit.hard)));
        if unit.is_empty() {
            text.put(format_args!("\n"));
        } else {
            text.put(format_args!("{unit:<10}\n"));
        }
    }
}

fn mounts(task: &Task, out: &mut Vec<u8>) -> Result<(), Errno> {
    let root = task.fs.lock().root.clone();
    for (mount, _) in mounts_of(task).all() {
        let mut path = Vec::new();
        mount.root.path(Some(&root), &mut path);
        room_for_mount(&mount, path.len(), out)?;
        escape(&mount.source, out);
        out.push(b' ');
        escape(&path, out);
        Text(out).put(format_args!(" {} ", mount.kind));
        options(&mount, out);
        out.extend_from_slice(b" 0 0\n");
    }
    Ok(())
}

fn mount_info(task: &Task, out: &mut Vec<u8>) -> Result<(), Errno> {
    let root = task.fs.lock().root.clone();
    for (mount, parent) in mounts_of(task).all() {
        let device = mount.root.inode.superblock.device;
        Text(out).put(format_args!("{} {} {}:{} ", mount.id, parent, device.major, device.minor));
        let mut path = Vec::new();
        mount.path_inside(&mut path);
        room_for_mount(&mount, path.len(), out)?;
        escape(&path, out);
        out.push(b' ');
        path.clear();
        mount.root.path(Some(&root), &mut path);
        room_for_mount(&mount, path.len(), out)?;
        escape(&path, out);
        out.push(b' ');
        options(&mount, out);
        let propagation = *mount.propagation.lock();
        for (name, group) in propagation.fields() {
            Text(out).put(format_args!(" {name}:{group}"));
        }
        if propagation.is_unbindable() {
            Text(out).put(format_args!(" unbindable"));
        }
        Text(out).put(format_args!(" - {} ", mount.kind));
        escape(&mount.source, out);
        out.extend_from_slice(b" rw\n");
    }
    Ok(())
}

/// Room for a line about a mount, the path in it being so long. `ENOMEM`.
fn room_for_mount(mount: &Mount, path: usize, out: &mut Vec<u8>) -> Result<(), Errno> {
    /// Of a character that is escaped.
    const ESCAPED: usize = 4;
    /// Numbers, options and the kind.
    const REST: usize = 256;
    out.try_reserve(ESCAPED * (mount.source.len() + path) + REST).map_err(|_| Errno::ENOMEM)
}

fn mounts_of(task: &Task) -> Arc<MountNamespace> {
    task.namespaces.lock().mnt.clone()
}

fn options(mount: &Mount, out: &mut Vec<u8>) {
    for (number, option) in mount.options().enumerate() {
        Text(out).put(format_args!("{}{option}", if number == 0 { "" } else { "," }));
    }
}

/// Space, tab, newline and backslash as octal, as `mangle` of `fs/seq_file.c` does.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\\' | b'#') {
            Text(out).put(format_args!("\\{byte:03o}"));
        } else {
            out.push(byte);
        }
    }
}

/// Appends `/proc/PID/fdinfo/N`. `ENOENT` if it is not open any more.
pub fn fd_info(task: &Task, fd: i32, namespace: &Arc<PidNamespace>, out: &mut Vec<u8>) -> Result<(), Errno> {
    let open = task.files.peek(|files| Ok((files.get(fd)?, files.at_exec(fd)?)));
    let (file, at_exec): (Arc<File>, AtExec) = open.map_err(|_: Errno| Errno::ENOENT)?;
    let closes = at_exec == AtExec::Close;
    let flags = file.flags().bits() | if closes { raw::O_CLOEXEC } else { 0 };
    let position = *file.position.lock();
    let mut text = Text(out);
    text.put(format_args!("pos:\t{position}\nflags:\t0{flags:o}\nmnt_id:\t20\nino:\t{}\n", file.inode().number));
    if let Some(pidfd) = file.body.pidfd() {
        process_described(&mut text, pidfd, namespace);
    }
    Ok(())
}

/// Which process a descriptor means (`pidfd_show_fdinfo` of Linux's `kernel/fork.c`): -1 once it has been waited for, 0 where it is not seen.
fn process_described(text: &mut Text<'_>, pidfd: &PidFd, namespace: &Arc<PidNamespace>) {
    let number = |seen: &PidNamespace| pidfd.number().map_or(-1, |pid| i64::from(seen.number_of(pid)));
    text.put(format_args!("Pid:\t{}\nNSpid:\t{}", number(namespace), number(namespace)));
    for inner in namespace.down_to(&pidfd.of().pid_namespace) {
        if let Some(pid) = pidfd.number() {
            text.put(format_args!("\t{}", inner.number_of(pid)));
        }
    }
    text.put(format_args!("\n"));
}
