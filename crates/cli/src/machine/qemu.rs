//! QEMU's command line, and its failures in words.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::ports::GuestEnds;
use super::{Machine, System};
use crate::args::{self, Accel};
use crate::images::Build;

const PROGRAM: &str = "qemu-system-x86_64";

/// `-cpu` where the clock counts instructions. With the fast-string features on, QEMU counts a step for each byte of
/// `rep movsb`, and Linux chooses that instruction for copying; without them both kernels copy eight bytes a step.
const CPU_COUNTED: &str = "max,-erms,-fsrm";
const CPU: &str = "max";

/// What Foldspace's kernel makes QEMU exit with through the debug-exit device, which turns v into 2v + 1.
pub mod status {
    /// Panicked (v = 0x11; a power-off in order is 0x10).
    pub const PANIC: i32 = 0x11 * 2 + 1;
}

/// Linux's own parameters: a panic that ends the machine (with `-no-reboot`), no
/// mitigations, which would cost it instructions, and the clock that counts them.
pub const LINUX_PARAMETERS: &str =
    "console=ttyS3,115200 panic=-1 mitigations=off tsc=reliable clocksource=tsc rdinit=/init";

/// The serial ports as every PC has them: address and interrupt on the ISA bus. Two interrupts serve four ports.
const PORTS: [(&str, u16, u8); 4] =
    [("output", 0x3f8, 4), ("error", 0x2f8, 3), ("control", 0x3e8, 4), ("log", 0x2e8, 3)];

/// The command line for this machine.
pub fn command(machine: &Machine, guest_ends: &GuestEnds) -> Command {
    let shape = &machine.shape;
    let mut qemu = Command::new(PROGRAM);
    qemu.args(["-M", "q35", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    qemu.args(["-m", &format!("size={}k", shape.memory >> 10)]);
    qemu.args(["-smp", &shape.processors().to_string()]);
    qemu.args(["-accel", if shape.accel == Accel::Kvm { "kvm" } else { "tcg" }]);
    let lacks = shape.lacks.iter().map(|feature| format!(",-{feature}"));
    let model = if shape.icount { CPU_COUNTED } else { CPU };
    qemu.arg("-cpu").arg([model.to_owned()].into_iter().chain(lacks).collect::<String>());
    if shape.icount {
        qemu.args(["-icount", "shift=0,sleep=off"]);
    }
    for ((name, base, irq), end) in PORTS.iter().zip(guest_ends.iter()) {
        qemu.args(["-chardev", &format!("socket,id={name},fd={}", end.as_raw_fd())]);
        qemu.args(["-device", &format!("isa-serial,chardev={name},iobase={base:#x},irq={irq}")]);
    }
    if let Some(plugin) = &shape.plugin {
        qemu.args(["-plugin", plugin]);
    }
    qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
    qemu.arg("-kernel").arg(&machine.kernel);
    qemu.arg("-initrd").arg(&machine.archive);
    qemu.args(["-append", &kernel_parameters(machine)]);
    qemu
}

fn kernel_parameters(machine: &Machine) -> String {
    let shape = &machine.shape;
    let own = match machine.system {
        // A kernel that prints its log is slower, but where virtualization may not work its first line is what tells
        // that it does.
        System::Linux => {
            format!("{LINUX_PARAMETERS} {}", if shape.accel == Accel::Kvm { "loglevel=6" } else { "quiet" })
        }
        System::Foldspace => {
            let check = u8::from(shape.build() == Build::Debug);
            format!("foldspace.fork={} foldspace.check={check}", shape.fork.name())
        }
    };
    match &shape.append {
        Some(more) => format!("{own} {more}"),
        None => own,
    }
}

/// Makes sure before anything is packed that the accelerator can be used at all, and every processor.
pub fn check_accelerator(shape: &args::Machine, system: System) -> Result<()> {
    if system == System::Foldspace && shape.processors() > args::MAX_PROCESSORS {
        bail!("--cpus {}: the kernel can use {} processors", shape.processors(), args::MAX_PROCESSORS);
    }
    let cpus = shape.processors();
    if shape.icount && cpus > 1 {
        bail!("--icount counts the instructions of one processor: it cannot be used with --cpus {cpus}");
    }
    if shape.accel == Accel::Tcg {
        return Ok(());
    }
    if shape.icount {
        bail!("--icount needs emulation in software: it cannot be used with --accel kvm");
    }
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            bail!("--accel kvm: this machine offers no virtualization (there is no /dev/kvm); use --accel tcg")
        }
        Err(e) => Err(e).context("--accel kvm: /dev/kvm cannot be used; use --accel tcg"),
    }
}

/// Whether a line that QEMU printed says that the host's virtualization cannot run this machine. It may exist and open
/// and still fail at the first instruction that it does not know; QEMU then stops and waits.
pub fn says_virtualization_failed(line: &str) -> bool {
    ["KVM internal error", "KVM: entry failed", "failed to initialize kvm", "Could not access KVM", "kvm run failed"]
        .iter()
        .any(|sign| line.contains(sign))
}

/// Why QEMU could not be started.
pub fn not_started(error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::NotFound {
        let fix = "`apt-get install qemu-system-x86` on Debian, or the package of your distribution";
        anyhow::anyhow!("{PROGRAM} is not installed: {fix}")
    } else {
        anyhow::Error::new(error).context(format!("cannot start {PROGRAM}"))
    }
}
