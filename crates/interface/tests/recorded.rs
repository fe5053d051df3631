//! The public interfaces are those that are recorded.
//!
//! After a change that is meant: `SNAPSHOTS=overwrite cargo test -p foldspace-interface`, and look at the difference before it is committed. What has gone or
//! reads differently breaks who uses it: that takes a new minor version before 1.0, a major one after.

use foldspace_interface::{FORMAT, Interface, interface};
use snapbox::Data;

fn compare(package: &str, recorded: Data) {
    match interface(package).expect("the library can be documented") {
        Interface::Items(items) => snapbox::assert_data_eq!(items, recorded.raw()),
        Interface::OtherFormat(other) => {
            println!(
                "{package} is not compared: this rustdoc writes version {other} of its JSON, {FORMAT} can be read"
            );
        }
    }
}

#[test]
fn foldspace() {
    compare("foldspace", snapbox::file!["../../foldspace/interface.txt"]);
}

#[test]
fn foldspace_hosted() {
    compare("foldspace-hosted", snapbox::file!["../../hosted/interface.txt"]);
}
