//! Words that a kernel reads and changes for a program (futexes), and frames that are said to fail, by address.

use foldspace::space::{Access, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, VirtAddr};
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
