//! One process twice: on the host and hosted. What is done to one is done to the other.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use foldspace::backing::{Identity, Source};
use foldspace::space::Layout;
use foldspace::{Object, VirtAddr};
use foldspace_linux::{Errno, OpenRights};

use crate::host::{Call, HostProcess};
use crate::hosted::{Hosted, Line, parse};

/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// A stretch of the address space where neither programs nor libraries are put.
pub const WINDOW: u64 = 0x1234_5600_0000;
/// Its length.
pub const WINDOW_LEN: u64 = 1024 * PAGE;
/// End of the user half.
pub const TASK_SIZE: u64 = 0x7fff_ffff_f000;
/// Pages in the file.
pub const FILE_PAGES: u64 = 4;

/// In a set of capabilities.
const CAP_IPC_LOCK: u64 = 1 << 14;

/// Who makes the calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum As {
    /// Somebody with the capabilities that this test's process has: if it is root, most.
    Root,
    /// Somebody with none.
    Nobody,
}

/// Zeros.
struct Zeros;

impl Source for Zeros {
    fn fill(&self, _: u64, _: &mut [u8]) -> foldspace::Result<()> {
        Ok(())
    }
    fn identity(&self) -> Identity {
        Identity { major: 0, minor: 1, inode: 1 }
    }
    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"/memfd:file (deleted)");
    }
}

/// Descriptors that both have: regular files open in three ways, a sealed one, a pipe, a mere name.
pub struct Files {
    pub all: RawFd,
    pub read_only: RawFd,
    pub write_only: RawFd,
    pub sealed: RawFd,
    pub pipe: RawFd,
    pub name_only: RawFd,
    _open: Vec<OwnedFd>,
}

impl Files {
    fn new() -> Files {
        let own = |fd: i32| {
            assert!(fd >= 0, "{}", Error::last_os_error());
            // SAFETY: just made, and nobody else's.
            unsafe { OwnedFd::from_raw_fd(fd) }
        };
        // SAFETY: for all of these, strings that end with NUL, and numbers.
        let memfd = || own(unsafe { libc::memfd_create(c"file".as_ptr(), libc::MFD_ALLOW_SEALING) });
        let all = memfd();
        let sealed = memfd();
        let again = |flags| {
            let path = std::ffi::CString::new(format!("/proc/self/fd/{}", all.as_raw_fd())).expect("no NUL");
            // SAFETY: as above.
            own(unsafe { libc::open(path.as_ptr(), flags) })
        };
        for file in [&all, &sealed] {
            // SAFETY: as above.
            assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), (FILE_PAGES * PAGE) as i64) }, 0);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { libc::fcntl(sealed.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) }, 0);
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let open = vec![
            again(libc::O_RDONLY),
            again(libc::O_WRONLY),
            again(libc::O_PATH),
            own(ends[0]),
            own(ends[1]),
            all,
            sealed,
        ];
        let raw: Vec<RawFd> = open.iter().map(AsRawFd::as_raw_fd).collect();
        let [read_only, write_only, name_only, pipe, _, all, sealed] = raw[..] else { unreachable!() };
        Files { all, read_only, write_only, sealed, pipe, name_only, _open: open }
    }
}

/// The two.
pub struct Pair {
    pub host: HostProcess,
    pub hosted: Hosted,
    pub files: Files,
    /// Lines of the host's maps outside the window, when it began.
    pub own: Vec<Line>,
    /// Where the heap ended when it began.
    pub first_brk: u64,
    /// The host's process as a descriptor of its own.
    pub pidfd: u64,
}

impl Pair {
    pub fn new(who: As) -> Pair {
        let files = Files::new();
        let mut host = HostProcess::new();
        if who == As::Nobody {
            drop_capabilities(&mut host);
        }
        let maps = host.proc("maps");
        let status = host.proc("status");
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("a set of capabilities");
        let capabilities = u64::from_str_radix(set.trim(), 16).expect("a number");
        let layout = layout_of(&mut host, &maps, capabilities & CAP_IPC_LOCK != 0);
        let mut hosted = Hosted::like(&maps, layout, capabilities);
        let object = || Object::new(hosted.host.memory(), Box::new(Zeros), FILE_PAGES * PAGE).expect("an object");
        let (file, sealed): (Arc<Object>, Arc<Object>) = (object(), object());
        sealed.seal();
        let both = OpenRights::READ | OpenRights::WRITE | OpenRights::EXECUTE;
        hosted.open(files.all, Some(&file), both);
        hosted.open(files.read_only, Some(&file), OpenRights::READ | OpenRights::EXECUTE);
        hosted.open(files.write_only, Some(&file), OpenRights::WRITE | OpenRights::EXECUTE);
        hosted.open(files.sealed, Some(&sealed), both);
        // Pipes are on a file system of their own, from which nothing is executed.
        hosted.open(files.pipe, None, OpenRights::READ);
        let pidfd = host.call([libc::SYS_pidfd_open as u64, host.pid(), 0, 0, 0, 0, 0]).expect("pidfd_open") as u64;
        Pair { host, hosted, files, own: parse(&maps), first_brk: layout.brk.get(), pidfd }
    }

    /// Makes a call on both sides; `None` if the host's process died of it.
    pub fn call(&mut self, call: Call) -> Option<(i64, i64)> {
        Some((self.host.call(call)?, self.hosted_call(call)))
    }

    /// Makes a call that must succeed, with the same result.
    pub fn must(&mut self, call: Call) -> i64 {
        let (host, hosted) = self.call(call).expect("the host's process lives");
        assert!(host >= 0, "{call:x?} on the host: {host}");
        assert_eq!(host, hosted, "{call:x?}");
        host
    }

    /// Whether something of the process's own is mapped in a range outside the window.
    pub fn is_own(&self, start: u64, end: u64) -> bool {
        self.own.iter().any(|(from, until, ..)| *from < end && start < *until)
    }

    pub fn hosted_call(&mut self, call: Call) -> i64 {
        use foldspace_linux as linux;
        let [number, a, b, c, d, e, f] = call;
        let caller = &self.hosted;
        let done = |result: Result<(), Errno>| result.map(|()| 0);
        let result = match number as i64 {
            libc::SYS_mmap => linux::mmap(caller, a, b, c, d, e as i32, f),
            libc::SYS_munmap => done(linux::munmap(caller, a, b)),
            libc::SYS_mprotect => done(linux::mprotect(caller, a, b, c)),
            libc::SYS_pkey_mprotect => done(linux::pkey_mprotect(caller, a, b, c, d as i32)),
            libc::SYS_mremap => linux::mremap(caller, a, b, c, d, e),
            libc::SYS_brk => Ok(linux::brk(caller, a)),
            libc::SYS_madvise => done(linux::madvise(caller, a, b, c as i32)),
            libc::SYS_mlock => done(linux::mlock(caller, a, b)),
            libc::SYS_mlock2 => done(linux::mlock2(caller, a, b, c as i32)),
            libc::SYS_munlock => done(linux::munlock(caller, a, b)),
            libc::SYS_mlockall => done(linux::mlockall(caller, a as i32)),
            libc::SYS_munlockall => done(linux::munlockall(caller)),
            libc::SYS_mincore => done(linux::mincore(caller, a, b, c)),
            libc::SYS_msync => done(linux::msync(caller, a, b, c as i32)),
            libc::SYS_remap_file_pages => done(linux::remap_file_pages(caller, a, b, c, d, e)),
            libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => {
                let vectors = linux::Vectors { local: b, local_count: c, remote: d, remote_count: e };
                let find = || Ok(caller.space.clone());
                match number as i64 {
                    libc::SYS_process_vm_readv => linux::process_vm_readv(caller, vectors, f, find),
                    _ => linux::process_vm_writev(caller, vectors, f, find),
                }
            }
            libc::SYS_mseal => done(linux::mseal(caller, a, b, c)),
            libc::SYS_process_madvise => {
                linux::process_madvise(caller, b, c, d as i32, e as u32, || Ok(caller.space.clone()))
            }
            libc::SYS_prctl if a as i32 == libc::PR_SET_MM => done(linux::prctl_set_mm(caller, b, c, d, e)),
            _ => panic!("call {number} is not one of ours"),
        };
        match result {
            Ok(value) => value as i64,
            Err(errno) => -i64::from(errno.number()),
        }
    }

    /// Sets RLIMIT_MEMLOCK, in bytes.
    pub fn limit_locks(&mut self, bytes: u64) {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        let pid = self.host.pid() as libc::pid_t;
        // SAFETY: reads a limit.
        let set = unsafe { libc::prlimit(pid, libc::RLIMIT_MEMLOCK, &raw const limit, std::ptr::null_mut()) };
        assert_eq!(set, 0, "{}", Error::last_os_error());
        self.hosted.space.update_layout(|layout| layout.lock_limit = bytes);
    }

    /// Stores bytes on both sides.
    pub fn poke(&self, address: u64, bytes: &[u8]) {
        self.host.poke(address, bytes);
        assert_eq!(self.hosted.space.write(VirtAddr(address), bytes), bytes.len());
    }

    /// Whether what can be read in some pages of the window is the same.
    pub fn same_bytes(&self, pages: std::ops::Range<u64>) -> bool {
        pages.into_iter().all(|number| {
            let (address, mut there, mut here) = (WINDOW + number * PAGE, [0; PAGE as usize], [0; PAGE as usize]);
            let readable = self.host.peek(address, &mut there);
            self.hosted.space.read(VirtAddr(address), &mut here) == readable && there == here
        })
    }

    /// The lines of both maps in the window: ends, permissions, offset.
    pub fn windows(&self) -> (String, String) {
        let hosted = String::from_utf8(self.hosted.space.maps().text()).expect("text");
        (window(&self.host.proc("maps")), window(&hosted))
    }
}

fn window(maps: &str) -> String {
    let inside = |(start, ..): &Line| (WINDOW..WINDOW + WINDOW_LEN).contains(start);
    let lines = parse(maps).into_iter().filter(inside);
    let text = |(start, end, access, offset, _): Line| {
        format!("{:x}-{:x} {access} {offset:x}\n", (start - WINDOW) / PAGE, (end - WINDOW) / PAGE)
    };
    lines.map(text).collect()
}

/// Lines of [`Pair::windows`] with neighbours joined that differ in nothing.
pub fn joined(window: &str) -> String {
    let mut lines: Vec<(u64, u64, String, u64)> = Vec::new();
    for line in window.lines() {
        let mut words = line.split(' ');
        let (range, access, offset) = (words.next(), words.next(), words.next());
        let (start, end) = range.and_then(|range| range.split_once('-')).expect("two ends");
        let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let (start, end, offset) = (number(start), number(end), number(offset.expect("an offset")));
        let access = access.expect("permissions").to_owned();
        match lines.last_mut() {
            Some(last)
                if last.1 == start
                    && last.2 == access
                    && (offset == 0 && last.3 == 0 || last.3 + (start - last.0) * PAGE == offset) =>
            {
                last.1 = end;
            }
            _ => lines.push((start, end, access, offset)),
        }
    }
    lines.iter().map(|(start, end, access, offset)| format!("{start:x}-{end:x} {access} {offset:x}\n")).collect()
}

/// The numbers of its stat file, from the third on (proc_pid_stat(5)).
pub fn fields_of(host: &HostProcess) -> Vec<u64> {
    let stat = host.proc("stat");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
    fields.split(' ').map(|field| field.trim().parse().unwrap_or(0)).collect()
}

/// The layout that the host's process has.
fn layout_of(host: &mut HostProcess, maps: &str, may_lock: bool) -> Layout {
    let fields = fields_of(host);
    let field = |number: usize| VirtAddr(fields[number - 3]);
    let brk = VirtAddr(host.call([libc::SYS_brk as u64, 0, 0, 0, 0, 0, 0]).expect("brk") as u64);
    let anywhere = [libc::SYS_mmap as u64, 0, PAGE, 0, 0x22, u64::MAX, 0];
    let top = host.call(anywhere).expect("mmap") as u64;
    assert_eq!(host.call([libc::SYS_munmap as u64, top, PAGE, 0, 0, 0, 0]), Some(0));
    // The highest hole is the one below what was mapped first: what lies above it without a hole ends at the mapping base.
    let mut base = top + PAGE;
    for (start, end, ..) in parse(maps) {
        if start == base {
            base = end;
        }
    }
    Layout {
        mmap_base: VirtAddr(base),
        start_brk: field(47),
        brk,
        start_stack: field(28),
        code: (field(26), field(27)),
        data: (field(45), field(46)),
        args: (field(48), field(49)),
        env: (field(50), field(51)),
        stack_limit: 8 << 20,
        data_limit: u64::MAX,
        data_limit_hard: u64::MAX,
        address_space_limit: u64::MAX,
        lock_limit: if may_lock { u64::MAX } else { limit(libc::RLIMIT_MEMLOCK) },
        ..Layout::default()
    }
}

fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for a limit.
    assert_eq!(unsafe { libc::getrlimit(resource, &raw mut limit) }, 0);
    limit.rlim_cur
}

fn drop_capabilities(host: &mut HostProcess) {
    // `struct __user_cap_header_struct` of version 3, and two times three empty sets.
    let page = host.call([libc::SYS_mmap as u64, 0, PAGE, 3, 0x22, u64::MAX, 0]).expect("mmap") as u64;
    host.poke(page, &[0x22, 0x05, 0x08, 0x20]);
    let dropped = host.call([libc::SYS_capset as u64, page, page + 64, 0, 0, 0, 0]);
    assert_eq!(dropped, Some(0));
    assert_eq!(host.call([libc::SYS_munmap as u64, page, PAGE, 0, 0, 0, 0]), Some(0));
}
