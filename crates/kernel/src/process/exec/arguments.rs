//! The strings that a program starts with.

use alloc::vec::Vec;

use foldspace::addr::PAGE_SIZE;

use crate::errno::Errno;
use crate::mm::uaccess;

/// Bytes of one string, its NUL included, at most (`MAX_ARG_STRLEN`).
const MAX_STRING: usize = 32 * PAGE_SIZE as usize;
/// What all strings and their pointers may take even if the stack's limit is small (`ARG_MAX`).
const ALWAYS_ALLOWED: u64 = 128 << 10;
/// What they may take even if the stack's limit is large: three quarters of the default stack.
const NEVER_MORE: u64 = (8 << 20) / 4 * 3;

/// Strings one after the other, each with its NUL.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    count: usize,
}

impl Strings {
    /// Adds one at the end.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn push(&mut self, string: &[u8]) -> Result<(), Errno> {
        self.bytes.try_reserve(string.len() + 1).map_err(|_| Errno::ENOMEM)?;
        self.bytes.extend_from_slice(string);
        self.bytes.push(0);
        self.count += 1;
        Ok(())
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many strings.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where each begins.
    pub fn offsets(&self) -> impl Iterator<Item = usize> + '_ {
        let ends = self.bytes.iter().enumerate().filter(|&(_, &byte)| byte == 0).map(|(index, _)| index + 1);
        core::iter::once(0).chain(ends).take(self.count)
    }

    /// These strings with the first one replaced by others (`#!`).
    pub fn with_first_replaced(&self, replacement: &[&[u8]]) -> Result<Strings, Errno> {
        let mut strings = Strings::default();
        for string in replacement {
            strings.push(string)?;
        }
        let rest = self.offsets().nth(1).unwrap_or(self.bytes.len());
        strings.bytes.try_reserve(self.bytes.len() - rest).map_err(|_| Errno::ENOMEM)?;
        strings.bytes.extend_from_slice(&self.bytes[rest..]);
        strings.count += self.count.saturating_sub(1);
        Ok(strings)
    }

    /// From a program's array of pointers, up to its null pointer; a null array is an empty one.
    ///
    /// # Errors
    /// `EFAULT`, `ENOMEM`. `E2BIG`: a string too long, or all with their pointers beyond `budget`, which is reduced by them.
    fn read(array: u64, budget: &mut u64) -> Result<Strings, Errno> {
        let mut strings = Strings::default();
        if array == 0 {
            return Ok(strings);
        }
        loop {
            let slot = array.checked_add(strings.count as u64 * 8).ok_or(Errno::EFAULT)?;
            let pointer: u64 = uaccess::read(slot)?;
            if pointer == 0 {
                return Ok(strings);
            }
            *budget = budget.checked_sub(8).ok_or(Errno::E2BIG)?;
            strings.read_one(pointer, budget)?;
        }
    }

    fn read_one(&mut self, address: u64, budget: &mut u64) -> Result<(), Errno> {
        const CHUNK: usize = 256;
        let start = self.bytes.len();
        let mut at = address;
        loop {
            let to_boundary = (PAGE_SIZE - at % PAGE_SIZE) as usize;
            let mut chunk = [0; CHUNK];
            let len = CHUNK.min(to_boundary);
            uaccess::read_bytes(at, &mut chunk[..len])?;
            let end = chunk[..len].iter().position(|&byte| byte == 0);
            let part = &chunk[..end.map_or(len, |end| end + 1)];
            *budget = budget.checked_sub(part.len() as u64).ok_or(Errno::E2BIG)?;
            self.bytes.try_reserve(part.len()).map_err(|_| Errno::ENOMEM)?;
            self.bytes.extend_from_slice(part);
            if self.bytes.len() - start > MAX_STRING {
                return Err(Errno::E2BIG);
            }
            if end.is_some() {
                self.count += 1;
                return Ok(());
            }
            at = at.checked_add(len as u64).ok_or(Errno::EFAULT)?;
        }
    }
}

/// Arguments and environment.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// `argv`: never empty.
    pub argv: Strings,
    /// `envp`.
    pub envp: Strings,
}

impl Arguments {
    /// From what execve was given. An empty `argv` gets one empty string, as on Linux.
    ///
    /// # Errors
    /// `EFAULT`, `ENOMEM`, `E2BIG` (Linux's `bprm_stack_limits`).
    pub fn read(argv: u64, envp: u64, filename: &[u8], stack_limit: u64) -> Result<Arguments, Errno> {
        let mut budget = (stack_limit / 4).clamp(ALWAYS_ALLOWED, NEVER_MORE);
        budget = budget.checked_sub(filename.len() as u64 + 1).ok_or(Errno::E2BIG)?;
        let mut arguments =
            Arguments { argv: Strings::read(argv, &mut budget)?, envp: Strings::read(envp, &mut budget)? };
        if arguments.argv.count() == 0 {
            arguments.argv.push(b"")?;
        }
        Ok(arguments)
    }
}
