//! What an operation can say instead of doing its work.

use core::fmt;

/// Why an operation was refused. Whatever it says, nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// No frame, or no heap, for what the operation needs (ENOMEM).
    OutOfMemory,
    /// No gap of that size in the address space, or a limit on its size reached (ENOMEM).
    NoRoom,
    /// More VMAs than [`crate::space::MAX_MAP_COUNT`] (ENOMEM).
    TooManyVmas,
    /// An address or a length is not aligned, is empty, wraps, or lies outside the user half (EINVAL).
    BadRange,
    /// Part of the range is not mapped (ENOMEM for most calls).
    NotMapped,
    /// The range is taken and must not be replaced (EEXIST).
    AlreadyMapped,
    /// The mapping does not allow it (EACCES).
    AccessDenied,
    /// Over [`crate::space::Layout::lock_limit`] (EAGAIN for mmap and mremap, ENOMEM for mlock).
    LockLimit,
    /// A sealed mapping is in the way, or the object's content is sealed (EPERM).
    Sealed,
    /// More memory would be committed than there may be (ENOMEM).
    CommitLimit,
    /// What is mapped there is not of a kind to which this can be done (EINVAL; for a name EBADF).
    WrongKind,
    /// Others were changing what it is about again and again (EBUSY).
    Busy,
    /// The memory has failed that held it, and the content is lost (EIO where it was to be read, EHWPOISON where it was to be made present).
    Poisoned,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::OutOfMemory => "out of memory",
            Error::NoRoom => "no room in the address space",
            Error::TooManyVmas => "too many mappings in one address space",
            Error::BadRange => "the range is misaligned, empty or outside the user half",
            Error::NotMapped => "part of the range is not mapped",
            Error::AlreadyMapped => "the range is already mapped",
            Error::AccessDenied => "the mapping does not allow this access",
            Error::LockLimit => "more memory would be locked than may be",
            Error::Sealed => "the mapping is sealed",
            Error::CommitLimit => "more memory would be committed than may be",
            Error::WrongKind => "this cannot be done to what is mapped there",
            Error::Busy => "others were changing it again and again",
            Error::Poisoned => "the memory that held it has failed",
        })
    }
}

impl core::error::Error for Error {}

/// `core::result::Result` with [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::string::{String, ToString};

    use super::Error;
    use crate::migrate::NotMoved;

    /// Who logs an error finds out which it was.
    #[test]
    fn no_two_errors_say_the_same() {
        let errors = [
            Error::OutOfMemory,
            Error::NoRoom,
            Error::TooManyVmas,
            Error::BadRange,
            Error::NotMapped,
            Error::AlreadyMapped,
            Error::AccessDenied,
            Error::LockLimit,
            Error::Sealed,
            Error::CommitLimit,
            Error::WrongKind,
            Error::Busy,
            Error::Poisoned,
        ];
        let said: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), errors.len());
        let reasons = [NotMoved::Unused, NotMoved::Fixed, NotMoved::Busy, NotMoved::OutOfMemory];
        let said: BTreeSet<String> = reasons.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), reasons.len());
        assert_eq!(NotMoved::from(Error::OutOfMemory).to_string(), Error::OutOfMemory.to_string());
        assert_eq!(NotMoved::from(Error::Poisoned), NotMoved::Busy);
    }
}
