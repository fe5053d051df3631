//! Which calls are made, and of what shape their arguments nearly are.

use crate::values::Kind::{self, *};
use libc::*;

/// Which calls take part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Every number there is and some that there are not; those of memory more often.
    All,
    /// Those of memory only.
    Memory,
}

/// A call's number and what its arguments are.
pub struct Call {
    pub number: i64,
    pub arguments: [Kind; 6],
}

const fn call(number: i64, arguments: [Kind; 6]) -> Call {
    Call { number, arguments }
}

/// The numbers that Linux 6.18 has end below this one.
pub const NUMBERS: i64 = 480;
/// Numbers of our own and of nobody.
pub const BEYOND: [i64; 6] = [0x464f_4c44, 0x464f_4c45, 0x464f_4c46, 1000, -1, i64::MIN];

/// Calls about memory.
pub const MEMORY: &[Call] = &[
    call(SYS_mmap, [Address, Length, Protection, MapFlags, Descriptor, Offset]),
    call(SYS_mmap, [Address, Length, Protection, MapFlags, Descriptor, Offset]),
    call(SYS_mmap, [Window, Pages, Protection, MapFlags, Descriptor, Offset]),
    call(SYS_mmap, [Window, Pages, Protection, MapFlags, Descriptor, Offset]),
    call(SYS_munmap, [Address, Length, Zero, Zero, Zero, Zero]),
    call(SYS_munmap, [Window, Pages, Zero, Zero, Zero, Zero]),
    call(SYS_mprotect, [Address, Length, Protection, Zero, Zero, Zero]),
    call(SYS_mprotect, [Window, Pages, Protection, Zero, Zero, Zero]),
    call(SYS_pkey_mprotect, [Window, Pages, Protection, Small, Zero, Zero]),
    call(SYS_mremap, [Address, Length, Length, RemapFlags, Address, Zero]),
    call(SYS_mremap, [Window, Pages, Pages, RemapFlags, Window, Zero]),
    call(SYS_mremap, [Window, Pages, Pages, RemapFlags, Window, Zero]),
    call(SYS_madvise, [Address, Length, Advice, Zero, Zero, Zero]),
    call(SYS_madvise, [Window, Pages, Advice, Zero, Zero, Zero]),
    call(SYS_madvise, [Window, Pages, Advice, Zero, Zero, Zero]),
    call(SYS_process_madvise, [Descriptor, Vectors, Small, Advice, Small, Zero]),
    call(SYS_brk, [Address, Zero, Zero, Zero, Zero, Zero]),
    call(SYS_mlock, [Address, Length, Zero, Zero, Zero, Zero]),
    call(SYS_mlock2, [Window, Pages, Small, Zero, Zero, Zero]),
    call(SYS_munlock, [Window, Pages, Zero, Zero, Zero, Zero]),
    call(SYS_mlockall, [Small, Zero, Zero, Zero, Zero, Zero]),
    call(SYS_munlockall, [Zero, Zero, Zero, Zero, Zero, Zero]),
    call(SYS_mincore, [Address, Length, Pointer, Zero, Zero, Zero]),
    call(SYS_mincore, [Window, Pages, Pointer, Zero, Zero, Zero]),
    call(SYS_msync, [Address, Length, Small, Zero, Zero, Zero]),
    call(SYS_msync, [Window, Pages, Small, Zero, Zero, Zero]),
    call(SYS_remap_file_pages, [Window, Pages, Protection, Small, MapFlags, Zero]),
    call(462, [Window, Pages, Small, Zero, Zero, Zero]), // mseal
    call(SYS_memfd_create, [Pointer, Small, Zero, Zero, Zero, Zero]),
    call(SYS_ftruncate, [Descriptor, Length, Zero, Zero, Zero, Zero]),
    call(SYS_fallocate, [Descriptor, Small, Offset, Pages, Zero, Zero]),
    call(SYS_process_vm_readv, [Own, Vectors, Small, Vectors, Small, Zero]),
    call(SYS_process_vm_writev, [Own, Vectors, Small, Vectors, Small, Zero]),
    call(SYS_prctl, [NameOption, NameOption, Window, Pages, Pointer, Zero]),
    call(SYS_prctl, [MmOption, Small, Address, Length, Pointer, Zero]),
    call(0x464f_4c44, [Pointer, Pages, Small, Zero, Zero, Zero]), // refpage_create
    call(SYS_fork, [Zero, Zero, Zero, Zero, Zero, Zero]),
    call(SYS_read, [Descriptor, Pointer, Length, Zero, Zero, Zero]),
    call(SYS_write, [Descriptor, Pointer, Length, Zero, Zero, Zero]),
    call(SYS_pread64, [Descriptor, Pointer, Length, Offset, Zero, Zero]),
    call(SYS_pwrite64, [Descriptor, Pointer, Length, Offset, Zero, Zero]),
    call(SYS_readv, [Descriptor, Vectors, Small, Zero, Zero, Zero]),
    call(SYS_writev, [Descriptor, Vectors, Small, Zero, Zero, Zero]),
    call(SYS_ioctl, [Descriptor, Ioctl, Pointer, Zero, Zero, Zero]),
    call(SYS_shmat, [Small, Address, Small, Zero, Zero, Zero]),
    call(SYS_shmdt, [Address, Zero, Zero, Zero, Zero, Zero]),
    call(SYS_futex, [Pointer, Small, Small, Pointer, Pointer, Small]),
    call(SYS_sigaltstack, [Pointer, Pointer, Zero, Zero, Zero, Zero]),
    call(SYS_clock_gettime, [Small, Pointer, Zero, Zero, Zero, Zero]),
    call(SYS_setrlimit, [Small, Pointer, Zero, Zero, Zero, Zero]),
    call(SYS_fcntl, [Descriptor, Seals, Small, Zero, Zero, Zero]),
];

/// Whether a number is left out: what ends or changes the machine for all, reaches other processes, or makes processes
/// that nobody limits.
pub fn is_left_out(number: i64) -> bool {
    const LEFT_OUT: &[i64] = &[
        // The machine's own.
        SYS_reboot,
        SYS_kexec_load,
        SYS_kexec_file_load,
        SYS_init_module,
        SYS_finit_module,
        SYS_delete_module,
        SYS_iopl,
        SYS_ioperm,
        SYS_mount,
        SYS_umount2,
        SYS_pivot_root,
        SYS_swapon,
        SYS_swapoff,
        SYS_settimeofday,
        SYS_clock_settime,
        SYS_clock_adjtime,
        SYS_adjtimex,
        SYS_sethostname,
        SYS_setdomainname,
        SYS_acct,
        SYS_syslog,
        SYS_quotactl,
        SYS_vhangup,
        SYS_bpf,
        429, // move_mount and the others of its kind
        430,
        431,
        432,
        442,
        // Other processes.
        SYS_kill,
        SYS_tkill,
        SYS_tgkill,
        SYS_rt_sigqueueinfo,
        SYS_rt_tgsigqueueinfo,
        SYS_pidfd_send_signal,
        SYS_ptrace,
        SYS_prlimit64,
        SYS_setpriority,
        SYS_ioprio_set,
        SYS_sched_setscheduler,
        SYS_sched_setparam,
        SYS_sched_setattr,
        SYS_sched_setaffinity,
        SYS_migrate_pages,
        SYS_move_pages,
        448, // process_mrelease
        // Processes and objects that outlive the child. A plain fork is among the calls of memory.
        SYS_fork,
        SYS_vfork,
        SYS_clone,
        435, // clone3
        SYS_shmget,
        SYS_semget,
        SYS_msgget,
        SYS_add_key,
        SYS_request_key,
        SYS_keyctl,
        SYS_mq_open,
        // Its own end, before its time.
        SYS_exit,
        SYS_exit_group,
        SYS_pause,
        SYS_rt_sigsuspend,
    ];
    LEFT_OUT.contains(&number)
}
