//! What `run --snapshot` keeps: who has which VMAs and page tables at a moment, as lines of JSON on the control port (`foldspace-wire` has their
//! fields). Taken when the program ends, and whenever somebody writes a label to `/proc/snapshot`.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use foldspace::proc::{SlotRun, TableView};
use foldspace::{AddressSpace, VirtAddr};

use crate::arch::serial;
use crate::mm::is_scarce;
use crate::power::{CONTROL_PORT, Escaped};
use crate::process::{self, Task, tree};

/// Whether anybody keeps pictures: without, asking for one does nothing.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Pictures that were begun.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// Bytes of VMAs in a line, but for the end of the last.
const BATCH: usize = 4096;

/// From now on pictures are taken when they are asked for.
pub fn wanted() {
    WANTED.store(true, Ordering::Relaxed);
}

/// Takes one, if they are wanted. What changes meanwhile is seen before or after: whoever wants one instant lets nobody else run.
pub fn take(label: &[u8]) {
    if !WANTED.load(Ordering::Relaxed) {
        return;
    }
    if is_scarce() {
        log::warn!("no heap for a snapshot");
        return;
    }
    let picture = Picture { number: BEGUN.fetch_add(1, Ordering::Relaxed) + 1 };
    picture.part(format_args!(r#""label":"{}""#, Escaped(label)));
    let mut seen = BTreeSet::new();
    for (task, space) in processes() {
        picture.process(&task, &space);
        picture.tables(&space, &mut seen);
    }
}

/// All processes that have memory, but those that carry the program's output: they run the first process's file.
fn processes() -> Vec<(Arc<Task>, Arc<AddressSpace>)> {
    let program = |task: &Task| task.process.exe.lock().clone();
    let first = process::find(tree::INIT).and_then(|init| program(&init));
    let carries = |task: &Task| match (program(task), &first) {
        (Some(program), Some(first)) => Arc::ptr_eq(&program, first),
        _ => false,
    };
    let leaders = process::all().into_iter().filter(|task| task.is_leader() && !carries(task));
    leaders.filter_map(|task| task.live_space().map(|space| (task, space))).collect()
}

struct Picture {
    number: u32,
}

impl Picture {
    /// A line that adds fields to the picture.
    fn part(&self, fields: fmt::Arguments<'_>) {
        let mut line = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(line, r#"{{"moments":[{{"number":{},{fields}}}]}}"#, self.number);
        serial(CONTROL_PORT).write(line.as_bytes());
    }

    fn process(&self, task: &Task, space: &AddressSpace) {
        let (pid, parent, name, root) = (task.pid, task.ppid(), task.comm(), space.root().0);
        self.part(format_args!(
            r#""processes":[{{"pid":{pid},"parent":{parent},"name":"{}","root":{root}}}]"#,
            Escaped(&name)
        ));
        let (maps, mut from) = (space.maps(), Some(VirtAddr(0)));
        let mut text = Vec::new();
        while let Some(at) = from {
            text.clear();
            from = maps.lines(at, BATCH, &mut text);
            let mut lines = String::new();
            for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                let separator = if lines.is_empty() { "" } else { "," };
                let _ = write!(lines, r#"{separator}"{}""#, Escaped(line));
            }
            self.part(format_args!(r#""processes":[{{"pid":{pid},"maps":[{lines}]}}]"#));
        }
    }

    /// Each table that is not among those that were seen.
    fn tables(&self, space: &AddressSpace, seen: &mut BTreeSet<u32>) {
        // Nothing that the machine frees meanwhile can be used again before the visit ends; as long as that takes, nobody needs it.
        space.for_each_table(|table| {
            let shared = table.refs > 1 || table.is_of_object();
            if shared && !seen.insert(table.frame.0) {
                return false;
            }
            self.table(&table);
            true
        });
    }

    fn table(&self, table: &TableView<'_>) {
        let mut slots = String::new();
        table.for_each_run(|SlotRun { slot, count }| {
            let separator = if slots.is_empty() { "" } else { "," };
            let (word, writable) = (slot.target.word(), u8::from(slot.writable));
            let _ = write!(
                slots,
                r#"{separator}[{},{count},"{word}",{},{},{writable}]"#,
                slot.index, slot.frame.0, slot.refs
            );
        });
        let TableView { frame, level, refs, .. } = table;
        let mut lineage = String::from("null");
        if let Some(number) = table.lineage {
            lineage.clear();
            let _ = write!(lineage, "{number}");
        }
        self.part(format_args!(
            r#""tables":[{{"frame":{},"level":{},"refs":{refs},"lineage":{lineage},"slots":[{slots}]}}]"#,
            frame.0, *level as u8
        ));
    }
}
