//! Programs: whatever a file says of itself, loading it succeeds or gives a reason, and what it leaves behind is in order.

use foldspace::{AddressSpace, Object};
use foldspace_hosted::{Host, Layouts};
use foldspace_image::{Base, Headers, PIE_BASE};

pub(crate) fn elf(bytes: &[u8]) {
    let host = Host::new(8 << 20).expect("an arena");
    let memory = host.memory();
    let fresh = memory.stats();
    {
        let Ok(file) = Object::anonymous(memory, bytes.len() as u64) else { return };
        if file.write_at(0, bytes) != Ok(bytes.len()) {
            return;
        }
        if let Ok(headers) = Headers::read(&file) {
            let path = headers.interpreter(&file);
            assert!(path.is_err() || path.is_ok_and(|path| path.is_none_or(|path| !path.contains(&0))));
            for base in [Base::Program(PIE_BASE), Base::Anywhere] {
                let space = AddressSpace::new(memory, Layouts::process()).expect("a space");
                if let Ok(image) = headers.load(&space, &file, base) {
                    assert!(space.vmas().view().iter().count() > 0, "nothing is mapped of {image:?}");
                    assert!(image.code.0 <= image.code.1 && image.data.0 <= image.data.1, "{image:?}");
                    let mut all = [0; 64];
                    space.read(image.entry, &mut all);
                }
                memory.check(&[&space], &[&file]).expect("in order");
            }
        }
    }
    memory.reclaim();
    let end = memory.stats();
    assert_eq!((end.data, end.tables), (fresh.data, fresh.tables), "frames were left behind");
}
