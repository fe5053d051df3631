//! The four UARTs of a PC. Writes poll; nothing uses their interrupts.

use crate::sync::Mutex;
use spin::Once;
use uart_16550::backend::PioBackend;
use uart_16550::{BaudRate, Config, Uart16550};

use crate::sched::WaitQueue;

/// I/O ports of COM1 to COM4.
const PORTS: [u16; 4] = [0x3f8, 0x2f8, 0x3e8, 0x2e8];

/// A serial port: /dev/ttyS0 is number 0.
pub struct Serial {
    port: u16,
    /// `None` inside if the machine has no such port.
    device: Once<Option<Mutex<Uart16550<PioBackend>>>>,
    /// Who waits for input. Woken by the timer tick ([`poll_input`]).
    pub readers: WaitQueue,
}

static SERIALS: [Serial; 4] =
    [Serial::new(PORTS[0]), Serial::new(PORTS[1]), Serial::new(PORTS[2]), Serial::new(PORTS[3])];

/// Serial port `number`, 0 to 3.
pub fn serial(number: usize) -> &'static Serial {
    &SERIALS[number]
}

impl Serial {
    const fn new(port: u16) -> Serial {
        Serial { port, device: Once::new(), readers: WaitQueue::new() }
    }

    fn device(&self) -> Option<&Mutex<Uart16550<PioBackend>>> {
        self.device
            .call_once(|| {
                // SAFETY: these are the ports of a PC's UARTs; `init` finds out whether there is one.
                let mut uart = unsafe { Uart16550::new_port(self.port) }.ok()?;
                uart.init(Config { baud_rate: BaudRate::Baud115200, ..Config::default() }).ok()?;
                Some(Mutex::new(uart))
            })
            .as_ref()
    }

    /// Sends all of it, waiting for the device where that must be. A port that does not exist swallows it.
    pub fn write(&self, bytes: &[u8]) {
        if let Some(device) = self.device() {
            device.lock().send_bytes_exact(bytes);
        }
    }

    /// The next byte that has come in, if one has.
    pub fn try_read(&self) -> Option<u8> {
        self.device()?.lock().try_receive_byte().ok()
    }

    /// Whether [`Serial::try_read`] would return something.
    pub fn has_input(&self) -> bool {
        self.device().is_some_and(|device| device.lock().ready_to_receive().is_ok())
    }

    /// Like [`Serial::write`] for a dying kernel: takes the device even if its lock is held.
    pub fn write_at_panic(&self, bytes: &[u8]) {
        if let Some(device) = self.device() {
            if device.try_lock().is_none() {
                // SAFETY: the holder will never run again: one processor is left and it is panicking.
                unsafe { device.force_unlock() };
            }
            device.lock().send_bytes_exact(bytes);
        }
    }
}

/// Whether somebody waits for input on any port.
pub fn anybody_reads_serial() -> bool {
    SERIALS.iter().any(|serial| serial.readers.has_waiters())
}

/// Wakes readers of the ports that have input. Called at every timer tick; ports that nobody waits for are not touched.
pub fn poll_input() {
    for serial in &SERIALS {
        if serial.readers.has_waiters() && serial.has_input() {
            serial.readers.wake_all();
        }
    }
}
