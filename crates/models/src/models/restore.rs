//! An address space goes back to a snapshot, against all that happens in it and around it.

use Family::{One, Three, Two};
use Op::*;
use Who::{Child, Grandchild, Parent};

use super::{Model, actor, case, in_all_modes};
use crate::explore::Case;
use crate::op::{Allow, Op};
use crate::stage::{Family, Who};

/// A parent that goes back to what it was before it did `since`, and `other` beside it. Of each page it may load what was, or what is: so nobody loads two.
fn against(family: Family, mode: foldspace::space::ForkMode, since: &[Op], other: (Who, &[Op], &[Op])) -> Case {
    let warm = [&[Snapshot], since].concat();
    case(family, mode, &[actor(Parent, &warm, &[Restore]), actor(other.0, other.1, other.2)])
}

pub const RESTORE: Model = Model {
    name: "restore",
    about: "going back to a snapshot against stores, faults, changes of layout, forks and exits of relatives, truncation, and migration",
    share: 1,
    cases: || {
        in_all_modes(|mode| {
            vec![
                // Its own threads: what they store is there before, and gone, or after.
                against(One, mode, &[Store(0, 9)], (Parent, &[], &[Load(0)])),
                against(One, mode, &[Store(0, 9)], (Parent, &[], &[Store(0, 11), LoadElsewhere(0)])),
                against(One, mode, &[Store(0, 9)], (Parent, &[Load(0), LoadElsewhere(0)], &[Write(0, 11), Load(0)])),
                against(
                    One,
                    mode,
                    &[Store(0, 9), StoreElsewhere(0, 10)],
                    (Parent, &[StoreElsewhere(0, 8)], &[Store(0, 11), StoreElsewhere(0, 12)]),
                ),
                // Once a store stays, all later ones do, by whatever processor.
                against(
                    One,
                    mode,
                    &[Store(0, 9), Store(1, 9)],
                    (Parent, &[StoreElsewhere(1, 8)], &[Store(0, 11), StoreElsewhere(1, 12)]),
                ),
                // What is mapped then, and is not now; and the other way round.
                against(One, mode, &[Unmap(0, 2)], (Parent, &[], &[Load(0)])),
                against(One, mode, &[Unmap(0, 2)], (Parent, &[], &[Store(0, 11)])),
                against(One, mode, &[Map(1024, 1026), Store(1024, 9)], (Parent, &[Load(1024)], &[Load(1024)])),
                against(One, mode, &[Protect(0, 2, Allow::Nothing)], (Parent, &[], &[Store(0, 11)])),
                against(One, mode, &[Protect(0, 2, Allow::Reading)], (Parent, &[Load(0)], &[Store(0, 11), Load(0)])),
                case(
                    One,
                    mode,
                    &[
                        actor(
                            Parent,
                            &[Protect(0, 2, Allow::Nothing), Snapshot, Protect(0, 2, Allow::Reading)],
                            &[Restore],
                        ),
                        actor(Parent, &[Load(0), LoadElsewhere(0)], &[Load(0)]),
                    ],
                ),
                // Changes of layout come before or after.
                against(One, mode, &[Store(0, 9)], (Parent, &[], &[Unmap(0, 1), Load(0)])),
                against(One, mode, &[Store(0, 9)], (Parent, &[], &[Move(0, 2, 1024), Load(1024)])),
                against(One, mode, &[Move(0, 2, 1024), Store(1024, 9)], (Parent, &[], &[Discard(0, 1), Load(0)])),
                against(One, mode, &[Store(0, 9)], (Parent, &[], &[Clear])),
                against(One, mode, &[Brk(2)], (Parent, &[], &[Brk(1)])),
                // A table in the place of another, which is not of its lineage.
                against(
                    One,
                    mode,
                    &[Unmap(512, 1024), Map(512, 1024), Store(512, 9)],
                    (Parent, &[Load(512)], &[Load(512)]),
                ),
                // A fork is of one instant.
                against(One, mode, &[Store(0, 9), Store(512, 9)], (Parent, &[], &[Fork])),
                against(One, mode, &[Store(0, 9)], (Parent, &[], &[Fork, Store(0, 11)])),
                // Another snapshot, and back to that.
                against(One, mode, &[Store(0, 9)], (Parent, &[], &[Snapshot, Store(0, 11), Restore])),
                // A store may have found its table before the snapshot that links it too, and be put there after: what that shows stays what it was.
                case(
                    One,
                    mode,
                    &[
                        actor(Parent, &[Snapshot], &[Snapshot, Restore, Load(0), Restore, Load(0)]),
                        actor(Parent, &[], &[StoreElsewhere(0, 11), LoadElsewhere(0)]),
                    ],
                ),
                // Relatives have some of it, and go on.
                against(Two, mode, &[Store(0, 9)], (Child, &[Load(0)], &[Store(0, 12), Load(0)])),
                against(Two, mode, &[Store(0, 9), Store(512, 9)], (Child, &[], &[Exit])),
                against(Two, mode, &[Store(0, 9)], (Child, &[], &[Fork, Store(1, 12)])),
                against(Two, mode, &[Move(0, 2, 1024)], (Child, &[], &[Move(0, 2, 1030), Store(1030, 12)])),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[Snapshot, Store(0, 9)], &[Restore]),
                        actor(Child, &[Snapshot, Store(0, 10)], &[Restore]),
                        actor(Grandchild, &[Load(0)], &[Store(1, 13)]),
                    ],
                ),
                // Frames move.
                against(One, mode, &[Store(0, 9)], (Parent, &[], &[Migrate(0), Load(0)])),
                against(Two, mode, &[Store(0, 9)], (Child, &[], &[Migrate(0), Load(0)])),
                against(One, mode, &[Store(20, 9)], (Parent, &[], &[Migrate(20), Load(20)])),
                // What a file loses does not come back.
                against(One, mode, &[Store(16, 9)], (Parent, &[], &[Truncate(0)])),
                against(One, mode, &[Unmap(16, 19)], (Parent, &[], &[Truncate(0)])),
                against(Two, mode, &[Unmap(16, 23)], (Child, &[Load(20)], &[Truncate(1), Load(18)])),
                against(Two, mode, &[Store(20, 9), Unmap(16, 19)], (Child, &[], &[Punch(0, 3), Load(17)])),
            ]
        })
    },
};
