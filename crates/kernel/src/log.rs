//! The kernel's log: the facade `log` on COM4.

use core::fmt::{self, Write};

use log::{LevelFilter, Log, Metadata, Record};

use crate::arch::{Serial, serial};
use crate::sync::Mutex;
use crate::time;

/// The port that log lines and panics go to.
const LOG_PORT: usize = 3;

/// Formats straight into a serial port.
struct Writer(&'static Serial);

impl Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// The same for a dying kernel: takes the port from whoever holds it.
struct PanicWriter(&'static Serial);

impl Write for PanicWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_at_panic(text.as_bytes());
        Ok(())
    }
}

struct SerialLog;

impl Log for SerialLog {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let micros = time::monotonic_ns() / 1000;
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        // A line is one, whoever else writes. Writing to a serial port cannot fail.
        static LINE: Mutex<()> = Mutex::new(());
        let _line = LINE.lock();
        let _ = writeln!(Writer(serial(LOG_PORT)), "[{seconds:5}.{micros:06}] {:5} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// Starts logging: informative lines in release builds, debugging ones too in debug builds.
pub fn init() {
    static LOG: SerialLog = SerialLog;
    // Only a second call fails, and it changes nothing.
    let _ = log::set_logger(&LOG);
    log::set_max_level(if cfg!(debug_assertions) { LevelFilter::Debug } else { LevelFilter::Info });
}

/// Writes to the log without taking its locks.
pub fn panic_write(arguments: fmt::Arguments<'_>) {
    let _ = PanicWriter(serial(LOG_PORT)).write_fmt(arguments);
}
