//! Places of objects' frames while their entries are on their way out: what others do between an entry's end and its shootdown.

use std::sync::{Arc, Mutex};

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::isolation::{Callback, Stopping};

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);
const AT: VirtAddr = VirtAddr(0x4000_0000);

fn mapping(host: &Host, file: &Arc<Object>, at: VirtAddr) -> Arc<AddressSpace> {
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&space, file, at);
    space
}

fn map(space: &AddressSpace, file: &Arc<Object>, at: VirtAddr) {
    let (placement, backing) = (Placement::Fixed(at), Backing::Object(file.clone()));
    space.map(MapRequest { placement, len: 2 * PAGE_SIZE, flags: RW, backing, page_offset: 0 }).unwrap();
}

/// A private copy takes the place of a file's page. Before its shootdown the table is shared by a fork, founds a lineage, and another mapper
/// makes the page one that is listed: then the entry that is given up is listed under the lineage.
#[test]
fn an_entry_is_let_go_of_although_its_table_has_founded_a_lineage_since() {
    let callback: Arc<Mutex<Option<Callback>>> = Arc::default();
    let kept = callback.clone();
    let host = Host::with_platform(2 << 20, |inner| Box::new(Stopping { inner, callback: kept })).unwrap();
    let file = Object::anonymous(host.memory(), 2 * PAGE_SIZE).unwrap();
    let parent = mapping(&host, &file, AT);
    let mapper = mapping(&host, &file, VirtAddr(0x5000_3000));
    assert_eq!(parent.read(AT, &mut [0]), 1);
    let child: Arc<Mutex<Option<Arc<AddressSpace>>>> = Arc::default();
    let meanwhile = {
        let (parent, mapper, child) = (parent.clone(), mapper.clone(), child.clone());
        move || {
            let forked = parent.fork().unwrap();
            assert_eq!(forked.write(VirtAddr(AT.get() + PAGE_SIZE), &[1]), 1);
            assert_eq!(mapper.read(VirtAddr(0x5000_3000), &mut [0]), 1);
            *child.lock().unwrap() = Some(forked);
        }
    };
    *callback.lock().unwrap() = Some(Box::new(meanwhile));
    assert_eq!(parent.write(AT, &[1]), 1);
    let child = child.lock().unwrap().take().expect("the store has shot a translation down");
    host.memory().check(&[&parent, &mapper, &child], &[&file]).unwrap();
}
