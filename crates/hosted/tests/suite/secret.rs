//! Secret memory: what is for the program alone, and for nobody who would look at it from outside.

use foldspace::space::{Access, Failures, LockMode, MapRequest, Placement, PopulateError};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::model::PAGE;

const AT: VirtAddr = VirtAddr(0x4000_0000);
const SECRET: VmaFlags = VmaFlags::MAY_READ
    .union(VmaFlags::MAY_WRITE)
    .union(VmaFlags::READ)
    .union(VmaFlags::WRITE)
    .union(VmaFlags::SHARED)
    .union(VmaFlags::LOCKED)
    .union(VmaFlags::SECRET);

#[test]
fn nobody_but_the_program_reaches_secret_memory() {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let object = Object::anonymous(host.memory(), 2 * PAGE).unwrap();
    let (placement, backing) = (Placement::Fixed(AT), Backing::Object(object));
    space.map(MapRequest { placement, len: 2 * PAGE, flags: SECRET, backing, page_offset: 0 }).unwrap();
    let range = PageRange::from_len(AT, 2 * PAGE).unwrap();

    let refused = Err(PopulateError::AccessDenied);
    for access in [Access::Read, Access::Write] {
        assert_eq!(space.populate(range, access, &mut || false), refused);
    }
    assert_eq!(space.populate_mapped(range, Failures::Stop, &mut || false), refused);
    assert_eq!(space.populate_mapped(range, Failures::Skip, &mut || false), Ok(()));
    assert_eq!(space.usage().resident_shared, 0, "nothing has been made present");

    // The program's own calls do reach it.
    assert_eq!(space.write(AT, b"secret"), 6);
    let mut seen = [0; 6];
    assert_eq!(space.read(AT, &mut seen), 6);
    assert_eq!(&seen, b"secret");

    let mut out = [0; 6];
    assert_eq!(space.read_forced(AT, &mut out), 0);
    assert_eq!(space.write_forced(AT, b"public"), 0);
    assert_eq!(space.poison(AT).map(drop), Err(Error::NotMapped));
    assert_eq!(space.soft_offline(AT), Err(Error::NotMapped));
    assert_eq!(space.read(AT, &mut seen), 6);
    assert_eq!(&seen, b"secret");

    // Its lock is not to be taken from it, and a child, which inherits none, gets none.
    let locked = |space: &AddressSpace| space.vmas().view().summary().totals.pages.locked;
    space.unlock(range).unwrap();
    space.unlock_all();
    assert_eq!(locked(&space), 2);
    let child = space.fork().unwrap();
    child.lock(range, LockMode::Now).unwrap();
    assert_eq!(locked(&child), 0);
    assert_eq!(child.read_forced(AT, &mut out), 0);
    assert_eq!(child.read(AT, &mut seen), 6);
    assert_eq!(&seen, b"secret");
}
