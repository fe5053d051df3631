//! A guest's moments as steps.

use foldspace_wire::{Bytes, Moment, MomentProcess};

use super::record::{Node, Recording, Space, State, Step, Vma};
use crate::snapshot::Snapshot;

/// Each moment is a step, and shows what has changed since the one before.
pub fn recording(snapshot: &Snapshot) -> Recording {
    let mut before = State::default();
    let steps = snapshot.moments.iter().map(|moment| {
        let state = state(moment);
        let step = Step::between(moment.label.clone(), &before, &state);
        before = state;
        step
    });
    let words: Vec<String> =
        snapshot.command.iter().map(|Bytes(word)| String::from_utf8_lossy(word).into_owned()).collect();
    Recording { steps: steps.collect(), source: format!("a run of {}", words.join(" ")) }
}

fn state(moment: &Moment) -> State {
    let key = |process: &MomentProcess| format!("{} {}", process.pid, process.name);
    let mut state = State::default();
    for process in &moment.processes {
        let parent = moment.processes.iter().find(|parent| parent.pid == process.parent).map(key);
        let vmas = process.maps.iter().filter_map(|line| vma(line)).collect();
        state.spaces.insert(key(process), Space { parent, root: process.root, vmas });
    }
    for table in &moment.tables {
        let node = Node { level: table.level, refs: table.refs, lineage: table.lineage, slots: table.slots.clone() };
        state.nodes.insert(table.frame, node);
    }
    state.pages = state.pages_in_tables();
    state
}

/// A line of maps: `START-END ACCESS OFFSET DEVICE INODE NAME`.
fn vma(line: &str) -> Option<Vma> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let access = words.next()?.to_owned();
    let name = words.nth(3).unwrap_or_default().trim();
    let behind = if name.is_empty() { "anonymous" } else { name };
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(Vma(address(start)?, address(end)?, access, behind.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"foldspace_snapshot":1,"command":["sh","-c","x"],"moments":[
        {"number":1,"label":"before","processes":[{"pid":5,"parent":1,"name":"sh","root":9,"maps":[
            "00400000-00401000 r-xp 00000000 00:02 23                                 /bin/a b", "7000-8000 rw-p 00000000 00:00 0 "]}],
         "tables":[{"frame":9,"level":4,"refs":1,"lineage":null,"slots":[[0,1,"table",10,1,1]]},
                   {"frame":10,"level":3,"refs":1,"lineage":null,"slots":[]}]},
        {"number":2,"label":"forked","processes":[{"pid":5,"parent":1,"name":"sh","root":9,"maps":[]},{"pid":6,"parent":5,"name":"sh","root":11,"maps":[]}],
         "tables":[{"frame":9,"level":4,"refs":1,"lineage":2,"slots":[[0,1,"table",10,2,0]]},
                   {"frame":11,"level":4,"refs":1,"lineage":2,"slots":[[0,1,"table",10,2,0]]},
                   {"frame":10,"level":3,"refs":2,"lineage":null,"slots":[]}]}]}"#;

    #[test]
    fn moments_are_steps_and_what_changed_between_them() {
        let recording = recording(&Snapshot::parse(FILE.as_bytes()).unwrap());
        let [first, second] = &recording.steps[..] else { panic!("two steps") };
        assert_eq!((first.what.as_str(), first.tables, second.tables_added), ("before", 2, 1));
        assert_eq!(first.spaces["5 sh"].vmas[0], Vma(0x40_0000, 0x40_1000, "r-xp".to_owned(), "/bin/a b".to_owned()));
        assert_eq!(first.spaces["5 sh"].vmas[1].3, "anonymous");
        assert_eq!(second.spaces["6 sh"].parent.as_deref(), Some("5 sh"));
        assert_eq!(second.nodes[&10].refs, 2);
    }

    #[test]
    fn only_snapshots_are_read() {
        assert!(Snapshot::begins_like(FILE.as_bytes()) && !Snapshot::begins_like(b"7 mmap(NULL, ..."));
        assert!(Snapshot::parse(br#"{"steps":[]}"#).is_err());
        assert!(
            Snapshot::parse(FILE.replace("\"foldspace_snapshot\":1", "\"foldspace_snapshot\":2").as_bytes()).is_err()
        );
    }
}
