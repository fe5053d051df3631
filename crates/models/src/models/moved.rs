//! Private memory that mremap moves while it is shared: who counts its slots, and who tells whom.

use Family::{Three, Two};
use Op::*;
use Who::{Child, Grandchild, Parent};

use super::{Model, actor, case, in_all_modes};
use crate::op::Op;
use crate::stage::{Family, Who};

/// Two pages to a table of their own.
const AWAY: Op = Move(0, 2, 1024);
/// And on from there.
const ON: Op = Move(1024, 1026, 1031);

pub const MOVED: Model = Model {
    name: "moved",
    about: "private memory that was moved while it was shared, against all who have it still: each slot is found, and counted",
    share: 1,
    cases: || {
        in_all_modes(|mode| {
            vec![
                // The first list, and those who copy the table that it is begun from.
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[Store(2, 9)], &[AWAY]),
                        actor(Child, &[], &[Store(3, 12)]),
                        actor(Grandchild, &[], &[Store(3, 13)]),
                    ],
                ),
                case(Two, mode, &[actor(Parent, &[], &[AWAY]), actor(Child, &[], &[Move(0, 2, 1030)])]),
                case(Two, mode, &[actor(Parent, &[], &[AWAY, ON]), actor(Child, &[], &[Store(0, 12), Unmap(1, 2)])]),
                case(Two, mode, &[actor(Parent, &[], &[AWAY, Unmap(1024, 1025)]), actor(Child, &[], &[Unmap(0, 2)])]),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[], &[AWAY, Load(1024)]),
                        actor(Child, &[Load(0)], &[Exit]),
                        actor(Grandchild, &[Load(0)], &[Store(0, 13), Load(1)]),
                    ],
                ),
                // There is a list: who copies, drops, moves on.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[AWAY], &[Fork, Store(1024, 11)]),
                        actor(Child, &[], &[Fork, Store(0, 12)]),
                        actor(Child, &[], &[Store(1, 13)]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[AWAY], &[Store(1024, 11), Store(1025, 11)]),
                        actor(Child, &[], &[Store(0, 12)]),
                        actor(Grandchild, &[], &[Store(0, 13), Store(1, 13)]),
                    ],
                ),
                case(Two, mode, &[actor(Parent, &[AWAY], &[Unmap(1024, 1026)]), actor(Child, &[], &[Unmap(0, 2)])]),
                case(Two, mode, &[actor(Parent, &[AWAY], &[ON, Load(1031)]), actor(Child, &[], &[Unmap(0, 1)])]),
                case(Two, mode, &[actor(Parent, &[AWAY], &[Clear]), actor(Child, &[], &[Exit])]),
                // Its frame moves, too.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[AWAY], &[Migrate(1024), Load(1024)]),
                        actor(Child, &[Load(0)], &[Store(0, 12), Load(0)]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[AWAY], &[Unmap(1024, 1025)]),
                        actor(Child, &[], &[Unmap(0, 1)]),
                        actor(Grandchild, &[Load(0)], &[Migrate(0), Load(0)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[AWAY, Load(1025)]),
                        actor(Child, &[Load(1)], &[Migrate(1), Store(1, 12), Load(1)]),
                    ],
                ),
                // Whoever asks meanwhile.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[AWAY, ON]),
                        actor(Child, &[], &[Store(0, 12)]),
                        actor(Child, &[], &[WhoMaps(1)]),
                    ],
                ),
                // Tables.
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[Move(512, 1024, 1024)], &[Store(1024, 11)]),
                        actor(Child, &[], &[Store(512, 12)]),
                        actor(Grandchild, &[Load(512)], &[Exit]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Move(512, 1024, 1024)], &[Unmap(1024, 1536)]),
                        actor(Child, &[], &[Move(512, 1024, 1024), Store(1025, 12)]),
                    ],
                ),
                // Private copies of a file's pages, which a truncation holds until it has shot down.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Store(16, 9), Fork], &[Move(16, 18, 1024), Load(1024)]),
                        actor(Child, &[Store(17, 9), Fork], &[Truncate(0)]),
                    ],
                ),
                case(Two, mode, &[actor(Child, &[], &[Move(18, 19, 1024)]), actor(Parent, &[], &[Truncate(0)])]),
                case(
                    Three,
                    mode,
                    &[
                        actor(Grandchild, &[], &[Move(18, 19, 1024), Load(1024)]),
                        actor(Child, &[Store(17, 9)], &[Move(18, 19, 1030)]),
                        actor(Parent, &[], &[Truncate(0)]),
                    ],
                ),
            ]
        })
    },
};
