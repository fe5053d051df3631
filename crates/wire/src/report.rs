//! From the guest to the command: how the program ended, and what the kernel has to say about the run.

use serde::{Deserialize, Serialize};

use crate::Moment;

/// One line on the control port. Which fields are there depends on who wrote it: init writes `exit` or `signal`, or
/// `failure` when it could not start the program; the Foldspace kernel writes the rest when it powers off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The program's exit status, 0 to 255.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// The number of the signal that ended the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// From the fork of the program to its end, in nanoseconds of the guest's clock (with `--icount`: instructions).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_ns: Option<u64>,
    /// Why the program could not be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The name of the kernel that wrote the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Page frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<Frames>,
    /// Who mapped which frame when the program ended, upwards, if the job asked for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mapped_frames: Vec<MappedFrames>,
    /// The address spaces at moments, if the job asked for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
    /// System calls that the kernel does not have, once for each number and program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown_syscalls: Vec<UnknownCall>,
}

/// Page frames (4 KiB each) that the memory manager hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// All of them.
    pub total: u64,
    /// Free before the first process started.
    pub free_at_boot_end: u64,
    /// Free after the last process has gone. Equal to `free_at_boot_end` unless files were left behind.
    pub free_at_end: u64,
}

/// Frames in a row that are used alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedFrames {
    /// The first frame number.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// What for: `private`, `file`, `table1` to `table3`, `root`, `reference`, `kernel`, `free`, `idle`, `poisoned`.
    pub used: String,
    /// The file that they are pages of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Which page of it the first is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<u64>,
    /// Process and address of each mapping of the first; the others follow.
    pub places: Vec<(u32, u64)>,
}

/// A system call that was answered with `ENOSYS`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownCall {
    /// Its number.
    pub nr: u64,
    /// Its name, or an empty string where the number has none.
    #[serde(default)]
    pub name: String,
    /// The program that made it.
    pub program: String,
}

impl Report {
    /// Adds what a later line says. A field that both have takes the later value: init and the kernel speak last, so
    /// nothing that a program writes to the control port itself can pass for their word.
    pub fn merge(&mut self, later: Self) {
        fn replace<T>(mine: &mut Option<T>, later: Option<T>) {
            if later.is_some() {
                *mine = later;
            }
        }
        // How the program ended is one fact in two fields.
        if later.status().is_some() {
            (self.exit, self.signal) = (None, None);
        }
        replace(&mut self.exit, later.exit);
        replace(&mut self.signal, later.signal);
        replace(&mut self.elapsed_ns, later.elapsed_ns);
        replace(&mut self.failure, later.failure);
        replace(&mut self.kernel, later.kernel);
        replace(&mut self.frames, later.frames);
        self.mapped_frames.extend(later.mapped_frames);
        for moment in later.moments {
            match self.moments.iter_mut().find(|known| known.number == moment.number) {
                Some(known) => known.merge(moment),
                None => self.moments.push(moment),
            }
        }
        self.unknown_syscalls.extend(later.unknown_syscalls);
    }

    /// The status a shell would show: the exit status, or 128 and the number of the signal.
    pub fn status(&self) -> Option<u8> {
        self.exit.or_else(|| self.signal.map(|signal| signal.wrapping_add(128)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_init_and_kernel_make_one_report() {
        let mut report = Report::default();
        for line in [
            r#"{"exit":0}"#,
            r#"{"signal":11,"elapsed_ns":7}"#,
            r#"{"kernel":"foldspace","frames":{"total":9,"free_at_boot_end":8,"free_at_end":8},
                "unknown_syscalls":[{"nr":425,"name":"io_uring_setup","program":"db"}],"later":1}"#,
        ] {
            report.merge(serde_json::from_str(line).unwrap());
        }
        assert_eq!(report.status(), Some(139));
        assert_eq!(report.frames.unwrap().free_at_end, 8);
        assert_eq!(report.unknown_syscalls[0].name, "io_uring_setup");
    }

    #[test]
    fn parts_of_a_moment_come_together_whatever_is_between() {
        let mut report = Report::default();
        for line in [
            r#"{"moments":[{"number":1,"label":"after"}]}"#,
            r#"{"moments":[{"number":1,"processes":[{"pid":7,"parent":1,"name":"sh","root":12}]}]}"#,
            r#"{"moments":[{"number":2,"label":"end"}]}"#,
            r#"{"moments":[{"number":1,"processes":[{"pid":7,"maps":["a"]}]}]}"#,
            r#"{"moments":[{"number":1,"processes":[{"pid":7,"maps":["b"]}]}]}"#,
            r#"{"moments":[{"number":1,"tables":[{"frame":12,"level":4,"refs":1,"lineage":null,"slots":[[0,1,"table",13,2,1]]}]}]}"#,
        ] {
            report.merge(serde_json::from_str(line).unwrap());
        }
        let [first, second] = &report.moments[..] else { panic!("two moments") };
        assert_eq!((first.label.as_str(), second.label.as_str()), ("after", "end"));
        assert_eq!((first.processes[0].name.as_str(), first.processes[0].maps.concat()), ("sh", "ab".to_owned()));
        assert_eq!(first.tables[0].slots[0].3, 13);
    }
}
