//! What the model shows of itself.

use std::fmt::Write;

use foldspace::VirtAddr;
use foldspace::space::Usage;
use foldspace::vma::VmaFlags;

use super::{Content, Model, NAMES, ObjectKind, PAGE};

/// Device of all files of the tests.
pub const DEVICE: (u32, u32) = (8, 1);

/// The path of a file.
pub fn path(inode: u64) -> String {
    format!("/tmp/file {inode}")
}

fn given_name(name: u8) -> &'static str {
    std::str::from_utf8(NAMES[name as usize]).expect("names are text")
}

impl Model {
    /// `/proc/PID/maps` of a space. `shared_inode` names the inode of a piece of shared anonymous memory: the manager chooses them.
    pub fn maps(&self, space: usize) -> String {
        let space = &self.spaces[space];
        let layout = &space.layout;
        let mut text = String::new();
        for (start, area) in &space.areas {
            let (from, until) = (VirtAddr(start * PAGE), VirtAddr(area.end * PAGE));
            let flag = |flag, letter| if area.flags.contains(flag) { letter } else { '-' };
            let mut line = format!(
                "{:08x}-{:08x} {}{}{}{} ",
                from.get(),
                until.get(),
                flag(VmaFlags::READ, 'r'),
                flag(VmaFlags::WRITE, 'w'),
                flag(VmaFlags::EXEC, 'x'),
                if area.flags.contains(VmaFlags::SHARED) { 's' } else { 'p' },
            );
            let name = match area.content {
                Content::Anonymous | Content::Reference(_) => {
                    line += "00000000 00:00 0 ";
                    // Linux's vma_is_initial_heap and vma_is_initial_stack.
                    if from < layout.brk && until > layout.start_brk {
                        "[heap]".into()
                    } else if from <= layout.start_stack && until >= layout.start_stack {
                        "[stack]".into()
                    } else {
                        area.name.map_or(String::new(), |name| format!("[anon:{}]", given_name(name)))
                    }
                }
                Content::Object(object) => {
                    let (device, inode, name) = match self.objects[object].kind {
                        ObjectKind::File { inode, .. } => (DEVICE, inode, path(inode)),
                        ObjectKind::Anonymous => {
                            let name = area.name.map(|name| format!("[anon_shmem:{}]", given_name(name)));
                            ((0, 1), 0, name.unwrap_or("/dev/zero (deleted)".into()))
                        }
                    };
                    write!(line, "{:08x} {:02x}:{:02x} {inode} ", area.offset * PAGE, device.0, device.1).unwrap();
                    name
                }
            };
            if !name.is_empty() {
                write!(line, "{:width$}{name}", "", width = 72_usize.saturating_sub(line.len()) + 1).unwrap();
            }
            text += &line;
            text.push('\n');
        }
        text
    }

    /// Sizes, as far as they are known: resident pages of objects depend on what the manager maps ahead, the number of tables on what it shares.
    pub fn usage(&self, space: usize, known: Usage) -> Usage {
        let space = &self.spaces[space];
        let mut usage = Usage { mapped: 0, locked: 0, data: 0, stack: 0, resident_anon: 0, ..known };
        for (start, area) in &space.areas {
            let pages = area.end - start;
            usage.mapped += pages;
            if area.flags.contains(VmaFlags::LOCKED) {
                usage.locked += pages;
            }
            // Linux's is_stack_mapping and is_data_mapping.
            if area.flags.contains(VmaFlags::GROWS_DOWN) {
                usage.stack += pages;
            } else if area.flags & (VmaFlags::WRITE | VmaFlags::SHARED) == VmaFlags::WRITE {
                usage.data += pages;
            }
        }
        usage.resident_anon = space.private.len() as u64;
        usage
    }
}
