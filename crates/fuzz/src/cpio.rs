//! Archives: whatever the bytes are, the entries lie in them, and there are no more than the bytes can hold.

use foldspace_image::archive;

/// The least bytes of an entry: a header in the old binary format.
const LEAST: usize = 26;

pub(crate) fn cpio(bytes: &[u8]) {
    let mut count = 0;
    for entry in archive::entries(bytes) {
        count += 1;
        let (content, all) = (entry.content().as_ptr_range(), bytes.as_ptr_range());
        assert!(
            entry.content().is_empty() || all.start <= content.start && content.end <= all.end,
            "outside the archive"
        );
        for name in entry.components() {
            assert!(!name.is_empty() && !name.contains(&b'/') && name != b".", "{name:?} as a name");
        }
        assert_eq!(entry.link().is_some(), entry.header().nlink() > 1);
    }
    assert!(count * LEAST <= bytes.len(), "{count} entries in {} bytes", bytes.len());
    if archive::is_whole(bytes) {
        assert!(bytes.windows(10).any(|name| name == b"TRAILER!!!"));
    }
}
