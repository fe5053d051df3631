//! What can be asked of an address space at once.

use foldspace::space::{ForkMode, Layout};
use foldspace::vma::VmaFlags;
use foldspace::{AddressSpace, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::cost::map;
use crate::model::PAGE;

#[test]
fn flags_that_some_area_has_are_known_without_looking_at_each() {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    assert!(!space.some_have(VmaFlags::WRITE), "nothing is mapped");
    for number in 0..100 {
        map(&space, 0x4000_0000 + number * 2 * PAGE, PAGE);
    }
    assert!(space.some_have(VmaFlags::WRITE | VmaFlags::LOCKED));
    assert!(!space.some_have(VmaFlags::LOCKED | VmaFlags::EXEC));
    let child = space.fork().unwrap();
    space.clear();
    assert!(!space.some_have(VmaFlags::WRITE));
    assert!(child.some_have(VmaFlags::WRITE));
}

#[test]
fn a_layout_is_looked_at_and_changed_in_place_and_handed_on() {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let before: Layout = space.layout();
    space.update_layout(|layout| layout.start_stack = VirtAddr(before.start_stack.get() + 8));
    assert_eq!(space.with_layout(|layout| layout.start_stack.get()), before.start_stack.get() + 8);
    for mode in [ForkMode::Copy, ForkMode::Leaf, ForkMode::Full] {
        space.set_fork_mode(mode);
        let child = space.fork().unwrap();
        assert_eq!(child.fork_mode(), mode);
        assert_eq!(child.with_layout(|layout| layout.start_stack.get()), before.start_stack.get() + 8);
    }
}
