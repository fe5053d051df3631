//! Words that a kernel reads and changes for a program (futexes), and frames that are said to fail, by address.

use foldspace::migrate::Lost;
use foldspace::space::{Access, Fault, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, VirtAddr};
use foldspace_hosted::{Host, Layouts};
use std::sync::Arc;

use crate::model::PAGE;

const AT: VirtAddr = VirtAddr(0x4000_0000);

fn space_with(host: &Host, access: VmaFlags) -> Arc<AddressSpace> {
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let request = MapRequest {
        placement: Placement::FixedNoReplace(AT),
        len: 2 * PAGE,
        flags: access | VmaFlags::MAY_READ | VmaFlags::MAY_WRITE | VmaFlags::MAY_EXEC,
        backing: Backing::Anonymous,
        page_offset: 0,
    };
    space.map(request).unwrap();
    space
}

fn at(offset: u64) -> VirtAddr {
    VirtAddr(AT.get() + offset)
}

#[test]
fn a_word_is_read_and_changed_only_where_that_would_not_fault() {
    let host = Host::new(8 << 20).unwrap();
    let space = space_with(&host, VmaFlags::READ | VmaFlags::WRITE);
    assert_eq!(space.word_now(at(8)), None, "nothing is there yet");
    assert_eq!(space.update_word_now(at(8), |_| Some(1)), None);
    space.fault(at(8), Access::Read).unwrap();
    assert_eq!(space.word_now(at(8)), Some(0));
    assert_eq!(space.update_word_now(at(8), |_| Some(1)), None, "what is read only so far faults");
    space.fault(at(8), Access::Write).unwrap();
    assert_eq!(space.update_word_now(at(8), |word| Some(word + 7)), Some(0));
    assert_eq!(space.update_word_now(at(8), |_| None), Some(7), "left as it is");
    assert_eq!(space.word_now(at(8)), Some(7));
    let mut bytes = [0; 8];
    assert_eq!(space.read(at(4), &mut bytes), 8);
    assert_eq!(bytes, [0, 0, 0, 0, 7, 0, 0, 0]);

    let child = space.fork().unwrap();
    assert_eq!(space.update_word_now(at(8), |_| Some(9)), None, "shared since the fork");
    space.fault(at(8), Access::Write).unwrap();
    assert_eq!(space.update_word_now(at(8), |_| Some(9)), Some(7));
    assert_eq!((space.word_now(at(8)), child.word_now(at(8))), (Some(9), Some(7)));

    for nowhere in [at(9), at(2 * PAGE), VirtAddr(1 << 47), VirtAddr(u64::MAX - 3)] {
        assert_eq!((space.word_now(nowhere), space.update_word_now(nowhere, |_| Some(1))), (None, None));
    }
}

#[test]
fn only_a_page_with_a_frame_of_its_own_can_fail_by_its_address() {
    let host = Host::new(8 << 20).unwrap();
    let space = space_with(&host, VmaFlags::READ | VmaFlags::WRITE);
    for (address, expected) in [(at(2 * PAGE), Error::NotMapped), (at(0), Error::Busy)] {
        assert_eq!(space.poison(address).err(), Some(expected));
        assert_eq!(space.soft_offline(address).err(), Some(expected));
    }
    assert_eq!(space.write(at(0), b"kept"), 4);
    space.soft_offline(at(0)).unwrap();
    let mut bytes = [0; 4];
    assert_eq!(space.read(at(0), &mut bytes), 4);
    assert_eq!(&bytes, b"kept");
    space.poison(at(0)).unwrap();
    assert_eq!(space.read(at(0), &mut bytes), 0);
    assert_eq!(space.poison(at(0)).err(), Some(Error::NotMapped), "it cannot be loaded from any more");
}

/// A page is made present, and leaves a frame, only with memory for it; without, nothing has changed, and later it can be asked again.
#[test]
fn frames_that_are_said_to_fail_without_memory_stay_as_they_are() {
    let host = Host::new(8 << 20).unwrap();
    let space = space_with(&host, VmaFlags::READ | VmaFlags::WRITE);
    assert_eq!(space.write(at(0), b"kept"), 4);
    let file = Object::anonymous(host.memory(), PAGE).unwrap();
    let shown = at(8 * PAGE);
    let (placement, flags) = (Placement::Fixed(shown), VmaFlags::READ | VmaFlags::MAY_READ | VmaFlags::SHARED);
    space
        .map(MapRequest { placement, len: PAGE, flags, backing: Backing::Object(file.clone()), page_offset: 0 })
        .unwrap();
    let kept = space.frame_at(at(0)).unwrap();
    let before = host.memory().stats();

    host.memory().fail_after(Some(0));
    assert_eq!(space.soft_offline(at(0)), Err(Error::OutOfMemory), "there is no frame to move to");
    assert_eq!(space.poison(shown).err(), Some(Error::OutOfMemory), "there is no frame to become present in");
    assert_eq!(space.frame_at(shown), Err(Fault::OutOfMemory));
    host.memory().fail_after(None);
    assert_eq!((space.frame_at(at(0)), host.memory().stats()), (Ok(kept), before));
    host.memory().check(&[&space], &[&file]).unwrap();

    space.soft_offline(at(0)).unwrap();
    assert_ne!(space.frame_at(at(0)), Ok(kept));
    assert_eq!(space.poison(shown), Ok(Lost::Page { dirty: false }));
    assert_eq!(space.frame_at(shown), Err(Fault::Poisoned));
    let mut bytes = [0; 4];
    assert_eq!(space.read(at(0), &mut bytes), 4);
    assert_eq!(&bytes, b"kept");
    host.memory().check(&[&space], &[&file]).unwrap();
}
