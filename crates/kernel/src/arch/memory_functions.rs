//! The C functions that compiled Rust calls for copying, filling and comparing.
//!
//! The prebuilt `compiler_builtins` of the host target leaves them to libc, which is not here. In assembly, since a loop
//! written in Rust would be recognized and turned into a call of the very function. Small sizes are straight-line loads
//! followed by stores (so that overlap does no harm). Large ones are copied by `rep movsq`, by 8 bytes, as Linux does on
//! processors without fast `rep movsb`, and filled by 16 bytes at a time: a page is cleared on each first touch.

use core::arch::naked_asm;

/// C `memcpy`.
///
/// # Safety
/// As in C.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    naked_asm!(
        "cmp rdx, 128",
        "jbe {small}",
        "mov rax, rdi",
        "movups xmm0, [rsi + rdx - 16]",
        "lea r8, [rdi + rdx - 16]",
        "mov rcx, rdx",
        "shr rcx, 3",
        "rep movsq",
        "movups [r8], xmm0",
        "ret",
        small = sym copy_small,
    )
}

/// C `memmove`.
///
/// # Safety
/// As in C.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    naked_asm!(
        "cmp rdx, 128",
        "jbe {small}",
        // Upwards is right unless `to` lies inside the source.
        "mov rax, rdi",
        "sub rax, rsi",
        "cmp rax, rdx",
        "jae {memcpy}",
        "mov rax, rdi",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "2: movups xmm2, [rsi + rdx - 16]",
        "movups xmm3, [rsi + rdx - 32]",
        "movups [rdi + rdx - 16], xmm2",
        "movups [rdi + rdx - 32], xmm3",
        "sub rdx, 32",
        "cmp rdx, 32",
        "jae 2b",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "ret",
        small = sym copy_small,
        memcpy = sym memcpy,
    )
}

/// At most 128 bytes, in any overlap: everything is loaded before anything is stored.
#[unsafe(naked)]
unsafe extern "C" fn copy_small(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    naked_asm!(
        "mov rax, rdi",
        "cmp rdx, 16",
        "jbe 3f",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + rdx - 16]",
        "cmp rdx, 32",
        "jbe 2f",
        "movups xmm2, [rsi + 16]",
        "movups xmm3, [rsi + rdx - 32]",
        "cmp rdx, 64",
        "jbe 1f",
        "movups xmm4, [rsi + 32]",
        "movups xmm5, [rsi + 48]",
        "movups xmm6, [rsi + rdx - 64]",
        "movups xmm7, [rsi + rdx - 48]",
        "movups [rdi + 32], xmm4",
        "movups [rdi + 48], xmm5",
        "movups [rdi + rdx - 64], xmm6",
        "movups [rdi + rdx - 48], xmm7",
        "1: movups [rdi + 16], xmm2",
        "movups [rdi + rdx - 32], xmm3",
        "2: movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "ret",
        "3: cmp edx, 8",
        "jb 4f",
        "mov rcx, [rsi]",
        "mov r8, [rsi + rdx - 8]",
        "mov [rdi], rcx",
        "mov [rdi + rdx - 8], r8",
        "ret",
        "4: cmp edx, 4",
        "jb 5f",
        "mov ecx, [rsi]",
        "mov r8d, [rsi + rdx - 4]",
        "mov [rdi], ecx",
        "mov [rdi + rdx - 4], r8d",
        "ret",
        "5: test edx, edx",
        "je 6f",
        // One to three bytes: first, middle, last.
        "mov r9, rdx",
        "shr r9, 1",
        "movzx ecx, byte ptr [rsi]",
        "movzx r8d, byte ptr [rsi + rdx - 1]",
        "movzx r10d, byte ptr [rsi + r9]",
        "mov [rdi], cl",
        "mov [rdi + rdx - 1], r8b",
        "mov [rdi + r9], r10b",
        "6: ret",
    )
}

/// C `memset`.
///
/// # Safety
/// As in C.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, bytes: usize) -> *mut u8 {
    naked_asm!(
        "movzx esi, sil",
        "mov rax, 0x0101010101010101",
        "imul rax, rsi",
        "mov r8, rdi",
        "cmp rdx, 64",
        "ja 2f",
        "mov rsi, rax",
        "cmp rdx, 16",
        "jb 3f",
        "movq xmm0, rsi",
        "punpcklqdq xmm0, xmm0",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm0",
        "cmp rdx, 32",
        "jbe 1f",
        "movups [rdi + 16], xmm0",
        "movups [rdi + rdx - 32], xmm0",
        "1: mov rax, r8",
        "ret",
        // Both ends, then what is aligned in between: whole blocks, rest. rsi: where that ends, rcx: minus what is left of it.
        "2: movq xmm0, rax",
        "punpcklqdq xmm0, xmm0",
        "lea rsi, [rdi + rdx]",
        "movups [rdi], xmm0",
        "movups [rsi - 16], xmm0",
        "lea rcx, [rdi + 15]",
        "and rcx, -16",
        "and rsi, -16",
        "sub rcx, rsi",
        "add rcx, 256",
        "jg 8f",
        "7: movaps [rsi + rcx - 256], xmm0",
        "movaps [rsi + rcx - 240], xmm0",
        "movaps [rsi + rcx - 224], xmm0",
        "movaps [rsi + rcx - 208], xmm0",
        "movaps [rsi + rcx - 192], xmm0",
        "movaps [rsi + rcx - 176], xmm0",
        "movaps [rsi + rcx - 160], xmm0",
        "movaps [rsi + rcx - 144], xmm0",
        "movaps [rsi + rcx - 128], xmm0",
        "movaps [rsi + rcx - 112], xmm0",
        "movaps [rsi + rcx - 96], xmm0",
        "movaps [rsi + rcx - 80], xmm0",
        "movaps [rsi + rcx - 64], xmm0",
        "movaps [rsi + rcx - 48], xmm0",
        "movaps [rsi + rcx - 32], xmm0",
        "movaps [rsi + rcx - 16], xmm0",
        "add rcx, 256",
        "jle 7b",
        "8: sub rcx, 256",
        "je 1b",
        "9: movaps [rsi + rcx], xmm0",
        "add rcx, 16",
        "jne 9b",
        "jmp 1b",
        "3: mov rax, r8",
        "cmp edx, 8",
        "jb 4f",
        "mov [rdi], rsi",
        "mov [rdi + rdx - 8], rsi",
        "ret",
        "4: cmp edx, 4",
        "jb 5f",
        "mov [rdi], esi",
        "mov [rdi + rdx - 4], esi",
        "ret",
        "5: test edx, edx",
        "je 6f",
        "mov [rdi], sil",
        "mov [rdi + rdx - 1], sil",
        "shr edx, 1",
        "mov [rdi + rdx], sil",
        "6: ret",
    )
}

/// C `memcmp`.
///
/// # Safety
/// As in C.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, bytes: usize) -> i32 {
    naked_asm!(
        "xor ecx, ecx",
        "sub rdx, 8",
        "jb 3f",
        "2: mov rax, [rdi + rcx]",
        "mov r8, [rsi + rcx]",
        "cmp rax, r8",
        "jne 5f",
        "add rcx, 8",
        "cmp rcx, rdx",
        "jbe 2b",
        "3: add rdx, 8",
        "cmp rcx, rdx",
        "je 6f",
        "4: movzx eax, byte ptr [rdi + rcx]",
        "movzx r8d, byte ptr [rsi + rcx]",
        "sub eax, r8d",
        "jne 7f",
        "inc rcx",
        "cmp rcx, rdx",
        "jne 4b",
        "6: xor eax, eax",
        "7: ret",
        // The lowest differing byte decides: compare as big-endian numbers.
        "5: bswap rax",
        "bswap r8",
        "cmp rax, r8",
        "sbb eax, eax",
        "or eax, 1",
        "ret",
    )
}

/// BSD `bcmp`: nonzero if different.
///
/// # Safety
/// As in C.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, bytes: usize) -> i32 {
    naked_asm!("jmp {memcmp}", memcmp = sym memcmp)
}

/// C `strlen`.
///
/// # Safety
/// As in C.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    naked_asm!("mov rax, -1", "2: inc rax", "cmp byte ptr [rdi + rax], 0", "jne 2b", "ret",)
}
