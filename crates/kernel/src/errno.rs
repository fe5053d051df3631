//! Error numbers: what a system call says instead of doing its work.

pub use foldspace_linux::Errno;

impl From<crate::sched::Interrupted> for Errno {
    /// A wait cut short by a signal: most calls start again if the handler allows it.
    fn from(_: crate::sched::Interrupted) -> Errno {
        Errno::ERESTARTSYS
    }
}
