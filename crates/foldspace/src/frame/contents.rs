//! What the frames with content hold.

use super::{Kind, Memory};

/// Frames with content, by whose it is, each counted once however many map it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Of private memory.
    pub anonymous: u64,
    /// Of objects.
    pub objects: u64,
    /// Of these, those that an address space maps, or a table of the object's own.
    pub objects_mapped: u64,
}

impl Memory {
    /// What the frames with content hold, found by looking at every record: for reports that are rarely asked for. O(frames).
    pub fn contents(&self) -> Contents {
        let mut contents = Contents::default();
        for record in self.records() {
            let refs = record.refs();
            match record.kind() {
                _ if refs == 0 => {}
                Kind::Anon => contents.anonymous += 1,
                Kind::Object => {
                    contents.objects += 1;
                    contents.objects_mapped += u64::from(refs > u32::from(record.is_pinned()));
                }
                _ => {}
            }
        }
        contents
    }
}
