//! Where the bytes of a read go and those of a write come from: user memory in one or several pieces, or the kernel itself.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::sync::Mutex;
use arrayvec::ArrayVec;
use foldspace::Object;

use crate::errno::Errno;
use crate::mm::uaccess;

/// Bytes that are moved at a time, through a buffer on the stack.
pub const CHUNK: usize = 4096;

/// Most bytes that one call moves (`MAX_RW_COUNT` of `include/linux/fs.h`).
pub const MAX_TRANSFER: usize = 0x7fff_f000;

/// A buffer of [`CHUNK`] bytes for one transfer: from a small store of used ones, since making one costs as much as copying through it. It holds
/// whatever was in it last.
pub struct PageBuffer(Option<Page>);

type Page = Box<[u8; CHUNK]>;

/// Used buffers: a few transfers at a time.
static USED: Mutex<ArrayVec<Page, 4>> = Mutex::new(ArrayVec::new_const());

impl PageBuffer {
    /// `ENOMEM` if there is none and none can be made.
    pub fn new() -> Result<PageBuffer, Errno> {
        let used = USED.lock().pop();
        match used {
            Some(page) => Ok(PageBuffer(Some(page))),
            None => new_page().map(|page| PageBuffer(Some(page))),
        }
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Some(page) => &mut page[..],
            None => &mut [],
        }
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        if let Some(page) = self.0.take() {
            // Dropped if enough are kept already, but not under the lock.
            let surplus = USED.lock().try_push(page);
            drop(surplus);
        }
    }
}

/// A zeroed page of kernel memory.
pub fn new_page() -> Result<Box<[u8; CHUNK]>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(CHUNK).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(CHUNK, 0);
    bytes.into_boxed_slice().try_into().map_err(|_| Errno::ENOMEM)
}

/// Takes the bytes that a read produces.
pub trait Sink {
    /// How many more it wants.
    fn room(&self) -> usize;
    /// Takes bytes, at most [`Sink::room`]; returns how many there was memory for. Fewer than offered means a bad address.
    fn put(&mut self, bytes: &[u8]) -> usize;
    /// Takes as many bytes of an object from `offset` on as it wants, without a buffer in between, if it can; returns how many there were before the
    /// object's end or a bad address.
    fn put_from(&mut self, _object: &Object, _offset: u64) -> Option<Result<usize, Errno>> {
        None
    }
}

/// Supplies the bytes that a write consumes.
pub trait Supply {
    /// How many more it has.
    fn remaining(&self) -> usize;
    /// Fills the front of `out`, which must not be longer than [`Supply::remaining`]; returns how many bytes could be read. Fewer than asked
    /// means a bad address.
    fn take(&mut self, out: &mut [u8]) -> usize;
}

/// A range of user memory.
#[derive(Clone, Copy, Debug)]
pub struct UserBuffer {
    addr: u64,
    len: usize,
}

impl UserBuffer {
    /// `len` bytes at `addr`; the length is cut to [`MAX_TRANSFER`].
    pub fn new(addr: u64, len: usize) -> UserBuffer {
        UserBuffer { addr, len: len.min(MAX_TRANSFER) }
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.addr
    }

    fn advance(&mut self, bytes: usize) {
        self.addr = self.addr.wrapping_add(bytes as u64);
        self.len -= bytes;
    }
}

impl Sink for UserBuffer {
    fn room(&self) -> usize {
        self.len
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        let done = uaccess::write_some(self.addr, bytes);
        self.advance(done);
        done
    }

    fn put_from(&mut self, object: &Object, offset: u64) -> Option<Result<usize, Errno>> {
        let done = uaccess::write_from(self.addr, object, offset, self.len);
        self.advance(*done.as_ref().unwrap_or(&0));
        Some(done)
    }
}

impl Supply for UserBuffer {
    fn remaining(&self) -> usize {
        self.len
    }

    fn take(&mut self, out: &mut [u8]) -> usize {
        let done = uaccess::read_some(self.addr, out);
        self.advance(done);
        done
    }
}

/// Several ranges of user memory, one after another (`readv`).
pub struct UserVector<'a> {
    pieces: &'a mut [UserBuffer],
    next: usize,
    total: usize,
}

impl<'a> UserVector<'a> {
    /// The ranges in order.
    pub fn new(pieces: &'a mut [UserBuffer]) -> UserVector<'a> {
        let total = pieces.iter().map(|piece| piece.len).sum();
        UserVector { pieces, next: 0, total }
    }

    /// The range that the next byte belongs to.
    fn current(&mut self) -> Option<&mut UserBuffer> {
        while self.next < self.pieces.len() && self.pieces[self.next].len == 0 {
            self.next += 1;
        }
        self.pieces.get_mut(self.next)
    }
}

impl Sink for UserVector<'_> {
    fn room(&self) -> usize {
        self.total
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let Some(piece) = self.current() else { break };
            let step = piece.len.min(bytes.len() - done);
            let put = piece.put(&bytes[done..done + step]);
            done += put;
            if put < step {
                break;
            }
        }
        self.total -= done;
        done
    }
}

impl Supply for UserVector<'_> {
    fn remaining(&self) -> usize {
        self.total
    }

    fn take(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() {
            let Some(piece) = self.current() else { break };
            let step = piece.len.min(out.len() - done);
            let took = piece.take(&mut out[done..done + step]);
            done += took;
            if took < step {
                break;
            }
        }
        self.total -= done;
        done
    }
}

/// Kernel memory to be filled.
pub struct KernelSink<'a> {
    out: &'a mut [u8],
    filled: usize,
}

impl<'a> KernelSink<'a> {
    /// Fills `out` from its start.
    pub fn new(out: &'a mut [u8]) -> KernelSink<'a> {
        KernelSink { out, filled: 0 }
    }
}

impl Sink for KernelSink<'_> {
    fn room(&self) -> usize {
        self.out.len() - self.filled
    }

    fn put(&mut self, bytes: &[u8]) -> usize {
        self.out[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
        bytes.len()
    }
}

/// Kernel memory to be written out.
pub struct KernelSupply<'a>(pub &'a [u8]);

impl Supply for KernelSupply<'_> {
    fn remaining(&self) -> usize {
        self.0.len()
    }

    fn take(&mut self, out: &mut [u8]) -> usize {
        let (now, later) = self.0.split_at(out.len());
        out.copy_from_slice(now);
        self.0 = later;
        out.len()
    }
}

/// What a transfer returns that moved `done` bytes and then met a bad address.
pub fn done_or_fault(done: usize) -> Result<usize, Errno> {
    if done > 0 { Ok(done) } else { Err(Errno::EFAULT) }
}

/// Puts a whole slice, as far as there is room: what a read of bytes at hand does.
pub fn put_all(bytes: &[u8], out: &mut dyn Sink) -> Result<usize, Errno> {
    let len = bytes.len().min(out.room());
    let put = out.put(&bytes[..len]);
    if put < len { done_or_fault(put) } else { Ok(put) }
}
