//! Protection keys: memory of every kind has that of its VMA in the entries that map it, and in no table that others have with another.

use foldspace::space::{Access, MapRequest, Placement};
use foldspace::vma::{Backing, ProtectionKey, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::model::PAGE;

const AT: u64 = 0x4000_0000;
const PAGES: u64 = 1024;
const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);

fn pages(first: u64, count: u64) -> PageRange {
    PageRange::from_len(VirtAddr(AT + first * PAGE), count * PAGE).unwrap()
}

fn map(space: &AddressSpace, flags: VmaFlags, backing: Backing) {
    let placement = Placement::Fixed(VirtAddr(AT));
    space.map(MapRequest { placement, len: PAGES * PAGE, flags, backing, page_offset: 0 }).unwrap();
}

fn key(number: u32) -> ProtectionKey {
    ProtectionKey::new(number).unwrap()
}

/// Every kind of memory, touched in part, before and after it gets a key, in parent and child: the checker compares each entry with its VMA.
#[test]
fn what_is_mapped_has_the_key_of_its_vma() {
    for kind in 0..4 {
        let host = Host::new(32 << 20).unwrap();
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        let object = Object::anonymous(host.memory(), PAGES * PAGE).unwrap();
        let (flags, backing) = match kind {
            0 => (RW, Backing::Anonymous),
            1 => (RW | VmaFlags::SHARED, Backing::Object(object.clone())),
            2 => (RW - VmaFlags::WRITE, Backing::Object(object.clone())),
            _ => (RW, Backing::Reference(foldspace::backing::Reference::new(host.memory(), &[7]).unwrap())),
        };
        map(&space, flags, backing);
        let check = |spaces: &[&AddressSpace]| host.memory().check(spaces, &[&object]).unwrap();
        let touch = |space: &AddressSpace, page: u64| {
            space.fault(pages(page, 1).start(), Access::Read).unwrap();
            if flags.contains(VmaFlags::WRITE) {
                space.fault(pages(page + 1, 1).start(), Access::Write).unwrap();
            }
        };
        touch(&space, 0);
        touch(&space, 600);
        let child = space.fork().unwrap();
        let access = flags & VmaFlags::ACCESS;
        space.protect_with_key(pages(0, 700), access, key(3)).unwrap();
        check(&[&space, &child]);
        [0, 2, 300, 601, 800].into_iter().for_each(|page| touch(&space, page));
        touch(&child, 300);
        check(&[&space, &child]);
        let grandchild = space.fork().unwrap();
        space.protect_with_key(pages(100, 300), access, key(9)).unwrap();
        space.protect_with_key(pages(650, 50), access, ProtectionKey::DEFAULT).unwrap();
        touch(&space, 300);
        touch(&grandchild, 302);
        check(&[&space, &child, &grandchild]);
        let keys: Vec<u32> = space.vmas().view().iter().map(|vma| vma.tag.key().number()).collect();
        assert_eq!(keys, [3, 9, 3, 0], "kind {kind}");
        let snapshot = space.snapshot().unwrap();
        space.protect_with_key(pages(0, PAGES), access, key(1)).unwrap();
        touch(&space, 0);
        check(&[&space, &child, &grandchild]);
        space.restore(&snapshot).unwrap();
        touch(&space, 300);
        check(&[&space, &child, &grandchild]);
    }
}

/// What can only be executed has a key that no program may use, until something else is allowed.
#[test]
fn mprotect_takes_the_key_away_of_memory_that_could_only_be_executed() {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&space, RW | VmaFlags::MAY_EXEC, Backing::Anonymous);
    let (own, other) =
        space.update_layout(|layout| (layout.keys.give_execute_only().unwrap(), layout.keys.give().unwrap()));
    space.write(pages(0, 1).start(), &[1]);
    space.protect_with_key(pages(0, 10), VmaFlags::EXEC, own).unwrap();
    space.protect_with_key(pages(10, 10), VmaFlags::READ, other).unwrap();
    space.protect(pages(5, 10), VmaFlags::READ).unwrap();
    let keys: Vec<_> = space.vmas().view().iter().map(|vma| vma.tag.key()).collect();
    assert_eq!(keys, [own, ProtectionKey::DEFAULT, other, ProtectionKey::DEFAULT]);
    space.protect(pages(0, 1), VmaFlags::READ).unwrap();
    assert_eq!(space.read(pages(0, 1).start(), &mut [0]), 1);
    host.memory().check(&[&space], &[]).unwrap();
}
