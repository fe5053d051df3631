//! Changes of layout against faults, of the same address space and of those that share its tables, and against readers of maps.

use Family::{One, Three, Two};
use Op::*;
use Who::{Child, Grandchild, Parent};
use foldspace::space::ForkMode::Full;

use super::{Model, actor, case, in_all_modes};
use crate::op::{Allow, Op};
use crate::stage::{Family, Who};

pub const MUNMAP: Model = Model {
    name: "munmap",
    about: "munmap, reuse of the range and discarding against faults, also of the other sharer",
    share: 1,
    cases: || {
        let mut cases = in_all_modes(|mode| {
            vec![
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[], &[Unmap(0, 2)]), actor(Parent, &[Load(0)], &[Store(0, 11), Load(1)])],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Unmap(0, 2), Map(0, 2), Store(0, 11)]),
                        actor(Child, &[], &[Store(0, 12), Load(1)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Unmap(6, 8), Map(6, 8), Load(6)]),
                        actor(Child, &[], &[Store(6, 12), Load(7)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[], &[Map(0, 7)]), actor(Parent, &[Load(0)], &[Store(0, 11), Load(6)])],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[MapFile(15, 18), Load(15)]),
                        actor(Child, &[Load(16)], &[Load(15), Store(16, 12)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[], &[Discard(0, 1), Load(0)]), actor(Child, &[Load(0)], &[Store(0, 12)])],
                ),
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[], &[Discard(0, 1)]), actor(Parent, &[Load(0)], &[Store(0, 11), Load(0)])],
                ),
                // Whole tables: dropped while they are shared, and while a fault is on its way into them.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Unmap(512, 1024)]),
                        actor(Parent, &[Load(512)], &[Store(512, 11), Store(600, 12)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Unmap(512, 1024), Map(512, 1024), Store(512, 11)]),
                        actor(Child, &[], &[Store(512, 12), Store(600, 13)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Unmap(0, 1024)]),
                        actor(Child, &[Load(512)], &[Store(513, 12), Unmap(0, 1024)]),
                    ],
                ),
            ]
        });
        cases.extend([
            // Who has seen what is new stores to it: that stays.
            case(
                One,
                Full,
                &[actor(Parent, &[], &[MapFile(5, 8)]), actor(Parent, &[], &[Load(6), Store(6, 11), Load(6)])],
            ),
            case(
                One,
                Full,
                &[
                    actor(Parent, &[], &[Unmap(512, 1024)]),
                    actor(Parent, &[Store(512, 9)], &[Store(513, 11), Store(600, 12)]),
                ],
            ),
            case(
                One,
                Full,
                &[
                    actor(Parent, &[], &[Unmap(512, 1024), Map(512, 514)]),
                    actor(Parent, &[], &[Load(600), Store(512, 12)]),
                ],
            ),
            case(
                One,
                Full,
                &[
                    actor(Parent, &[], &[Unmap(6, 8)]),
                    actor(Parent, &[], &[Map(7, 9), Store(7, 11)]),
                    actor(Parent, &[], &[Store(6, 12), Load(7)]),
                ],
            ),
        ]);
        cases
    },
};

pub const MPROTECT: Model = Model {
    name: "mprotect",
    about: "mprotect against faults, also of the other sharer",
    share: 1,
    cases: || {
        in_all_modes(|mode| {
            vec![
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Protect(0, 7, Allow::Reading)]),
                        actor(Parent, &[Load(0)], &[Store(0, 11), Load(0)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Protect(0, 7, Allow::Nothing)]),
                        actor(Child, &[Load(0)], &[Store(0, 11), Load(1)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(
                            Parent,
                            &[],
                            &[Protect(0, 7, Allow::Reading), Protect(0, 7, Allow::Writing), Store(0, 11)],
                        ),
                        actor(Child, &[Load(0)], &[Store(0, 12), Load(6)]),
                    ],
                ),
                case(
                    One,
                    mode,
                    &[
                        actor(Parent, &[], &[Protect(0, 7, Allow::Reading)]),
                        actor(Parent, &[Store(0, 9), Load(6)], &[Store(0, 11), Store(6, 12)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Protect(16, 18, Allow::Reading), Load(16)]),
                        actor(Child, &[Load(16)], &[Store(16, 12)]),
                    ],
                ),
            ]
        })
    },
};

pub const MREMAP: Model = Model {
    name: "mremap",
    about: "mremap of pages and of whole tables that are shared, against faults",
    share: 1,
    cases: || {
        in_all_modes(|mode| {
            vec![
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Move(512, 1024, 1024), Store(1024, 11)]),
                        actor(Child, &[Load(512)], &[Store(512, 12), Load(513)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Move(512, 1024, 1024)]),
                        actor(Parent, &[Load(512)], &[Store(512, 11), Load(1025)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Move(0, 2, 1024), Store(1024, 11)]),
                        actor(Child, &[Load(0)], &[Store(0, 12), Load(1)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Move(0, 2, 6)]),
                        actor(Parent, &[Load(0), Load(6)], &[Store(0, 11), Load(7)]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[], &[Move(0, 2, 1024)]),
                        actor(Child, &[], &[Store(0, 12)]),
                        actor(Grandchild, &[Load(0)], &[Store(1, 13), Load(0)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Move(512, 1024, 1024)]),
                        actor(Child, &[], &[Move(512, 1024, 1024), Store(1024, 12)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Load(16)], &[Move(16, 18, 1024), Load(1024)]),
                        actor(Child, &[Load(16)], &[Store(17, 12), Load(16)]),
                    ],
                ),
            ]
        })
    },
};

pub const TRUNCATE: Model = Model {
    name: "truncate",
    about: "truncation and holes of a file against faults of all who map it",
    share: 1,
    cases: || {
        in_all_modes(|mode| {
            vec![
                case(Two, mode, &[actor(Parent, &[], &[Truncate(0)]), actor(Child, &[], &[Load(20)])]),
                case(Two, mode, &[actor(Parent, &[Load(16)], &[Truncate(0)]), actor(Parent, &[], &[Store(16, 11)])]),
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[Load(16)], &[Truncate(0)]), actor(Child, &[Load(16)], &[Store(16, 11)])],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Load(16)], &[Truncate(1), LoadElsewhere(17)]),
                        actor(Child, &[Load(17)], &[Load(17)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[Store(20, 9)], &[Punch(0, 1)]), actor(Child, &[Load(20)], &[Store(20, 11)])],
                ),
                case(Two, mode, &[actor(Parent, &[Load(16)], &[Punch(0, 1)]), actor(Child, &[Load(16)], &[Fork])]),
                case(Two, mode, &[actor(Parent, &[Load(17)], &[Truncate(1)]), actor(Child, &[Load(17)], &[Exit])]),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Store(17, 9)], &[Truncate(1), Truncate(3)]),
                        actor(Parent, &[Load(17)], &[Load(17)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[], &[Truncate(1)]), actor(Parent, &[], &[Truncate(2), WriteFile(1, 7)])],
                ),
                // What is cut has moved on, from where the version says that it is.
                case(
                    Two,
                    mode,
                    &[actor(Child, &[], &[Truncate(0)]), actor(Parent, &[Load(16)], &[Move(16, 18, 1024), Load(1024)])],
                ),
            ]
        })
    },
};

pub const MAPS: Model = Model {
    name: "maps",
    about: "readers of maps and queries against every change: each sees a state that there was",
    share: 1,
    cases: || {
        let changes: [&[Op]; 11] = [
            &[Unmap(0, 2), Map(0, 2)],
            &[Unmap(2, 4), Unmap(0, 6)],
            &[Map(14, 18), Unmap(15, 16)],
            &[Protect(0, 7, Allow::Reading), Protect(2, 4, Allow::Writing)],
            &[Move(0, 2, 1024), Move(1024, 1026, 0)],
            &[MapFile(0, 3), Map(0, 16)],
            &[Clear],
            &[Fork, Unmap(0, 2)],
            &[Unmap(512, 1024), Map(512, 1024)],
            // Which area is the heap is said by addresses beside the tree.
            &[Brk(2), Brk(5), Brk(1)],
            &[Brk(3), Brk(0), Brk(1)],
        ];
        let mut cases = Vec::new();
        for ops in changes {
            cases.push(case(One, Full, &[actor(Parent, &[], ops), actor(Parent, &[], &[Maps, Maps])]));
            cases.push(case(One, Full, &[actor(Parent, &[], ops), actor(Parent, &[], &[Query(0), Maps, Query(3)])]));
            cases.push(case(
                Two,
                Full,
                &[actor(Parent, &[], ops), actor(Parent, &[], &[Maps]), actor(Child, &[], &[Unmap(0, 1), Maps])],
            ));
        }
        cases.push(case(
            One,
            Full,
            &[
                actor(Parent, &[], &[Map(0, 2)]),
                actor(Parent, &[], &[Unmap(1, 3)]),
                actor(Parent, &[], &[Maps, Query(1)]),
            ],
        ));
        cases
    },
};
