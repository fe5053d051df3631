//! Frames move while they are used.

use Family::{One, Three, Two};
use Op::*;
use Who::{Child, Grandchild, Parent};

use super::{Model, actor, case, in_all_modes};
use crate::explore::Case;
use crate::op::{Allow, Op};
use crate::stage::{Family, Who};

/// One who has stored to a page by two processors, and goes on; and one who moves its frame.
fn against(family: Family, mode: foldspace::space::ForkMode, page: u64, ops: &[Op]) -> Case {
    let warm = [StoreElsewhere(page, 8), Store(page, 9), LoadElsewhere(page)];
    case(family, mode, &[actor(Parent, &warm, ops), actor(Parent, &[], &[Migrate(page)])])
}

pub const MIGRATE: Model = Model {
    name: "migrate",
    about: "migration of a frame against stores, forks, unsharing, exit, and changes of what maps it",
    share: 1,
    cases: || {
        in_all_modes(|mode| {
            let mut cases = vec![
                against(One, mode, 0, &[Store(0, 11), LoadElsewhere(0), StoreElsewhere(0, 12), Load(0)]),
                against(One, mode, 0, &[Write(0, 11), Load(0), Write(0, 12)]),
                against(One, mode, 0, &[Fork, Store(0, 11)]),
                against(Two, mode, 0, &[Store(0, 11), LoadElsewhere(0)]),
                against(One, mode, 0, &[Unmap(0, 1), LoadElsewhere(0)]),
                against(One, mode, 0, &[Discard(0, 2), LoadElsewhere(0)]),
                against(One, mode, 0, &[Protect(0, 2, Allow::Reading), StoreElsewhere(0, 12), LoadElsewhere(0)]),
                against(One, mode, 0, &[Move(0, 2, 1024), Load(1024)]),
                against(One, mode, 0, &[Clear, LoadElsewhere(0)]),
                against(One, mode, 20, &[Store(20, 11), LoadElsewhere(20), StoreElsewhere(20, 12)]),
                against(One, mode, 20, &[WriteFile(0, 11), LoadElsewhere(20), Write(20, 12)]),
                against(One, mode, 20, &[Truncate(0), LoadElsewhere(20)]),
                against(
                    Two,
                    mode,
                    20,
                    &[Protect(20, 22, Allow::Reading), Protect(20, 22, Allow::Writing), Store(20, 12)],
                ),
                against(One, mode, 20, &[Unmap(20, 21), Load(16)]),
                against(One, mode, 20, &[Load(16), Store(16, 12), LoadElsewhere(16)]),
            ];
            cases.extend([
                // A fork, and a store by a processor that remembers that it may.
                case(
                    One,
                    mode,
                    &[
                        actor(Parent, &[], &[Fork]),
                        actor(Parent, &[StoreElsewhere(0, 9)], &[StoreElsewhere(0, 12)]),
                        actor(Parent, &[], &[Migrate(0)]),
                    ],
                ),
                // A file is cut, and what two had copied of it goes: first from one of them.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Store(0, 9)], &[Truncate(0)]),
                        actor(Child, &[Load(18)], &[Migrate(18), Load(0)]),
                    ],
                ),
                // Both sharers of a page, one of whom goes.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Load(0)], &[Store(0, 11), Load(0)]),
                        actor(Child, &[Load(0)], &[Exit]),
                        actor(Parent, &[LoadElsewhere(0)], &[Migrate(0), LoadElsewhere(0)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Load(0)], &[Store(1, 11), Load(0)]),
                        actor(Child, &[Load(0)], &[Store(0, 12), Load(1)]),
                        actor(Parent, &[LoadElsewhere(0)], &[Migrate(0), LoadElsewhere(0)]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[Load(0)], &[Store(0, 11)]),
                        actor(Child, &[Load(0)], &[Fork, Store(0, 12)]),
                        actor(Grandchild, &[Load(0)], &[Migrate(0), Load(0)]),
                    ],
                ),
                // A table is unshared by a store to another of its pages, and then that page is written by one who may have forgotten nothing.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Load(0), LoadElsewhere(0)], &[Store(1, 11), Store(0, 13), LoadElsewhere(0)]),
                        actor(Child, &[Load(0)], &[Migrate(0)]),
                    ],
                ),
                // A file's page, of two address spaces and of one that never asked.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Store(20, 9), LoadElsewhere(20)], &[Store(20, 11), LoadElsewhere(20)]),
                        actor(Child, &[Store(20, 9)], &[Store(20, 12), Load(20)]),
                        actor(Parent, &[], &[Migrate(20)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Store(20, 9)], &[WriteFile(0, 11)]),
                        actor(Child, &[Load(16)], &[Store(16, 12), Load(20)]),
                        actor(Parent, &[], &[Migrate(20), Load(20)]),
                    ],
                ),
                // Two who move.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Store(0, 9)], &[Migrate(0), Store(0, 11)]),
                        actor(Child, &[Load(0)], &[Migrate(0), Load(0)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Store(0, 9)], &[Migrate(0), Load(1)]),
                        actor(Child, &[Load(1)], &[Migrate(1), Store(0, 11)]),
                    ],
                ),
            ]);
            cases
        })
    },
};
