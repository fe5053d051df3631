//! Random bytes: ChaCha20, seeded from the processor.

use core::arch::x86_64::_rdtsc;

use crate::sync::Mutex;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use raw_cpuid::CpuId;
use spin::Once;

static GENERATOR: Once<Mutex<ChaCha20Rng>> = Once::new();

/// Fills `out` with random bytes.
pub fn fill(out: &mut [u8]) {
    GENERATOR.call_once(|| Mutex::new(ChaCha20Rng::from_seed(seed()))).lock().fill_bytes(out);
}

/// 256 bits from RDRAND where there is one, and from the time-stamp counter in any case.
fn seed() -> [u8; 32] {
    let has_rdrand = CpuId::new().get_feature_info().is_some_and(|features| features.has_rdrand());
    let mut seed = [0; 32];
    for (index, word) in seed.chunks_exact_mut(8).enumerate() {
        // SAFETY: every x86-64 processor has a time-stamp counter.
        let ticks = unsafe { _rdtsc() };
        let random = if has_rdrand { rdrand() } else { 0 };
        let mixed = random ^ ticks.rotate_left(16 * index as u32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    seed
}

/// A word from RDRAND, tried ten times as the manual asks; 0 if it has none.
fn rdrand() -> u64 {
    for _ in 0..10 {
        let word: u64;
        let ok: u8;
        // SAFETY: the caller saw that the processor has RDRAND; it writes a register and the flags.
        unsafe {
            core::arch::asm!("rdrand {word}", "setc {ok}", word = out(reg) word, ok = out(reg_byte) ok, options(nomem, nostack));
        }
        if ok != 0 {
            return word;
        }
    }
    0
}
