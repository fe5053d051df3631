//! QEMU's functions for plugins, as far as they are used.

use std::ffi::{c_int, c_uint, c_void};
use std::marker::PhantomData;

/// `struct qemu_plugin_tb`.
#[repr(C)]
pub struct Translation {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`.
#[repr(C)]
struct Instruction {
    _opaque: [u8; 0],
}

type OnExecution = extern "C" fn(c_uint, *mut c_void);

/// `QEMU_PLUGIN_CB_NO_REGS`.
const NO_REGISTERS: c_int = 0;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: extern "C" fn(u64, *mut Translation));
    fn qemu_plugin_register_atexit_cb(id: u64, callback: extern "C" fn(u64, *mut c_void), data: *mut c_void);
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut Translation,
        callback: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Instruction,
        callback: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(tb: *const Translation) -> usize;
    fn qemu_plugin_tb_vaddr(tb: *const Translation) -> u64;
    fn qemu_plugin_tb_get_insn(tb: *const Translation, at: usize) -> *mut Instruction;
    fn qemu_plugin_insn_data(insn: *const Instruction) -> *const c_void;
    fn qemu_plugin_insn_size(insn: *const Instruction) -> usize;
    fn qemu_plugin_insn_vaddr(insn: *const Instruction) -> u64;
}

/// Has `callback` called for each block that is translated.
pub fn on_translation(id: u64, callback: extern "C" fn(u64, *mut Translation)) {
    // SAFETY: registers a function of the right type, which stays as long as the plugin is loaded.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, callback) }
}

/// Has `callback` called when QEMU ends.
pub fn at_exit(id: u64, callback: extern "C" fn(u64, *mut c_void)) {
    // SAFETY: as above.
    unsafe { qemu_plugin_register_atexit_cb(id, callback, std::ptr::null_mut()) }
}

/// A block that is being translated.
///
/// # Invariants
/// QEMU gave the pointer to a callback that has not returned yet: until then it is valid.
pub struct Piece<'callback> {
    block: *mut Translation,
    _callback: PhantomData<&'callback ()>,
}

impl Piece<'_> {
    /// What a callback was given.
    pub fn of(block: *mut Translation) -> Self {
        Piece { block, _callback: PhantomData }
    }

    /// Its first address.
    pub fn address(&self) -> u64 {
        // SAFETY: by the type's invariant.
        unsafe { qemu_plugin_tb_vaddr(self.block) }
    }

    /// How many instructions it has.
    pub fn instructions(&self) -> u64 {
        // SAFETY: by the type's invariant.
        unsafe { qemu_plugin_tb_n_insns(self.block) as u64 }
    }

    /// Has a function called with `data` each time before the block is executed.
    pub fn on_execution(&self, callback: OnExecution, data: *mut c_void) {
        // SAFETY: by the type's invariant; the callback wants no registers.
        unsafe { qemu_plugin_register_vcpu_tb_exec_cb(self.block, callback, NO_REGISTERS, data) }
    }

    /// The same for one of its instructions.
    pub fn on_instruction(&self, at: u64, callback: OnExecution, data: *mut c_void) {
        // SAFETY: by the type's invariant; callers count to `instructions`.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cb(
                qemu_plugin_tb_get_insn(self.block, at as usize),
                callback,
                NO_REGISTERS,
                data,
            )
        }
    }

    /// Address and bytes of one of its instructions.
    pub fn instruction(&self, at: u64) -> (u64, &[u8]) {
        // SAFETY: by the type's invariant; callers count to `instructions`. QEMU keeps the bytes, as many as it says, until the callback returns.
        unsafe {
            let insn = qemu_plugin_tb_get_insn(self.block, at as usize);
            let bytes = std::slice::from_raw_parts(qemu_plugin_insn_data(insn).cast(), qemu_plugin_insn_size(insn));
            (qemu_plugin_insn_vaddr(insn), bytes)
        }
    }
}
