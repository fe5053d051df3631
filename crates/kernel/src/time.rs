//! Clocks: nanoseconds since boot from the TSC, and the date at boot from the clock chip.

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};

use raw_cpuid::CpuId;
use x86_64::instructions::port::Port;

use crate::arch;

/// TSC at boot.
static START: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per TSC tick, as a fraction of 2^32.
static SCALE: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds since 1970 at boot.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds in a second.
pub const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Ticks per second of the PIT, a PC's oldest timer and the only one whose frequency is known.
const PIT_FREQUENCY: u64 = 1_193_182;
/// How long a measurement lasts, in ticks of the PIT: 10 ms.
const PIT_COUNT: u16 = 11_932;
/// How many there are.
const PIT_TRIES: u32 = 3;

fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { _rdtsc() }
}

/// Nanoseconds since boot; never goes back.
pub fn monotonic_ns() -> u64 {
    let ticks = tsc().wrapping_sub(START.load(Ordering::Relaxed));
    ((u128::from(ticks) * u128::from(SCALE.load(Ordering::Relaxed))) >> 32) as u64
}

/// Nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    EPOCH.load(Ordering::Relaxed) + monotonic_ns()
}

/// Finds out how fast TSC and the local APIC's timer run, starts the latter, and reads the date.
///
/// # Safety
/// As for [`arch::init_timer`].
pub unsafe fn init() {
    let mut tsc_frequency = hypervisor_tsc_frequency();
    // SAFETY: the caller's promise.
    unsafe {
        arch::init_timer(|counter| {
            let measure = |_| {
                let (start_count, start_tsc) = (counter(), tsc());
                wait_for_pit();
                let (end_count, end_tsc) = (counter(), tsc());
                (end_tsc - start_tsc, u64::from(start_count.wrapping_sub(end_count)))
            };
            // A host that runs something else in between can only make it longer.
            let (ticks, count) = (0..PIT_TRIES).map(measure).min().unwrap_or_default();
            let per_second = |ticks: u64| ticks * PIT_FREQUENCY / u64::from(PIT_COUNT);
            tsc_frequency.get_or_insert(per_second(ticks));
            per_second(count)
        });
    }
    let frequency = tsc_frequency.filter(|&frequency| frequency != 0).unwrap_or(NANOS_PER_SECOND);
    START.store(tsc(), Ordering::Relaxed);
    SCALE.store(((u128::from(NANOS_PER_SECOND) << 32) / u128::from(frequency)) as u64, Ordering::Relaxed);
    EPOCH.store(seconds_since_1970() * NANOS_PER_SECOND, Ordering::Relaxed);
    log::debug!("TSC at {} MHz", frequency / 1_000_000);
}

/// What a hypervisor says (leaf 0x40000010, which KVM and VMware share), in Hz.
fn hypervisor_tsc_frequency() -> Option<u64> {
    let khz = CpuId::new().get_hypervisor_info()?.tsc_frequency()?;
    (khz != 0).then_some(u64::from(khz) * 1000)
}

/// Returns after [`PIT_COUNT`] ticks: channel 2, which interrupts nobody, in mode 0; bit 5 of port 0x61 shows its output.
fn wait_for_pit() {
    const CHANNEL_2: u16 = 0x42;
    const COMMAND: u16 = 0x43;
    const GATE: u16 = 0x61;
    /// Channel 2, low byte then high byte, interrupt on terminal count, binary.
    const ONE_SHOT: u8 = 0b1011_0000;
    let mut gate = Port::<u8>::new(GATE);
    let mut channel = Port::<u8>::new(CHANNEL_2);
    let [low, high] = PIT_COUNT.to_le_bytes();
    // SAFETY: the PIT's ports; nothing else uses channel 2 or the speaker that hangs on it.
    unsafe {
        let speaker_off = gate.read() & !0b10;
        gate.write(speaker_off & !1);
        Port::<u8>::new(COMMAND).write(ONE_SHOT);
        channel.write(low);
        channel.write(high);
        gate.write(speaker_off | 1);
        while gate.read() & 0x20 == 0 {
            core::hint::spin_loop();
        }
    }
}

/// The clock chip's date, taken as UTC.
fn seconds_since_1970() -> u64 {
    const STATUS_A: u8 = 0x0a;
    const STATUS_B: u8 = 0x0b;
    const UPDATING: u8 = 1 << 7;
    const BINARY: u8 = 1 << 2;
    let read = || {
        while arch::read_cmos(STATUS_A) & UPDATING != 0 {}
        [0, 2, 4, 7, 8, 9, 0x32].map(arch::read_cmos)
    };
    // Two equal readings were not torn by an update.
    let mut fields = read();
    loop {
        let again = read();
        if again == fields {
            break;
        }
        fields = again;
    }
    if arch::read_cmos(STATUS_B) & BINARY == 0 {
        fields = fields.map(|bcd| (bcd >> 4) * 10 + (bcd & 0xf));
    }
    let [second, minute, hour, day, month, year, century] = fields.map(u64::from);
    let year = if century == 0 { 2000 + year } else { century * 100 + year };
    ((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that a leap day ends one.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    /// Days from 0000-03-01 to 1970-01-01.
    const DAYS_TO_1970: u64 = 719_468;
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_before_month = (153 * month + 2) / 5;
    365 * year + year / 4 - year / 100 + year / 400 + days_before_month + day - 1 - DAYS_TO_1970
}
