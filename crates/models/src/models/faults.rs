//! Faults among themselves, with forks, and what processors remember meanwhile.

use Family::{One, Three, Two};
use Op::*;
use Who::{Child, Grandchild, Parent};
use foldspace::space::ForkMode::{Copy, Full, Leaf};

use super::{Model, actor, case, in_all_modes};
use crate::op::Op;
use crate::stage::{Family, Who};

pub const FAULT: Model = Model {
    name: "fault",
    about: "fault against fault of one address space: first touches, copies, pages of a file",
    share: 1,
    cases: || {
        let mut cases = vec![
            // The same untouched page; two beside each other; a load and a store; untouched tables.
            case(
                One,
                Full,
                &[actor(Parent, &[], &[Store(6, 11), Load(6)]), actor(Parent, &[], &[Store(6, 12), Load(6)])],
            ),
            case(One, Full, &[actor(Parent, &[], &[Store(6, 11)]), actor(Parent, &[], &[Store(7, 12), Load(6)])]),
            case(One, Full, &[actor(Parent, &[], &[Load(6), Load(6)]), actor(Parent, &[], &[Store(6, 12)])]),
            case(
                One,
                Full,
                &[actor(Parent, &[], &[Store(700, 11)]), actor(Parent, &[Load(700)], &[Store(701, 12), Load(700)])],
            ),
            // A page of a file, private and shared.
            case(
                One,
                Full,
                &[actor(Parent, &[], &[Store(16, 11)]), actor(Parent, &[Load(16)], &[Load(16), Store(16, 12)])],
            ),
            case(One, Full, &[actor(Parent, &[], &[Store(20, 11)]), actor(Parent, &[], &[Store(20, 12), Load(16)])]),
            case(
                One,
                Full,
                &[
                    actor(Parent, &[], &[Load(20), WriteFile(0, 7)]),
                    actor(Parent, &[Load(16)], &[Store(16, 12), Load(20)]),
                ],
            ),
        ];
        cases.extend(in_all_modes(|mode| {
            vec![
                // A page that a child shares: the same one, and two of one table.
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[Load(0)], &[Store(0, 11)]), actor(Parent, &[Load(0)], &[Store(0, 12), Load(0)])],
                ),
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[], &[Store(0, 11), Load(1)]), actor(Parent, &[], &[Store(1, 12), Load(0)])],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Load(0)], &[Store(0, 11)]),
                        actor(Parent, &[Load(0)], &[Write(0, 12)]),
                        actor(Parent, &[Load(0)], &[Load(0), Load(0)]),
                    ],
                ),
            ]
        }));
        cases
    },
};

pub const UNSHARE: Model = Model {
    name: "unshare",
    about: "faults of both sharers of tables and pages, with readers that remember",
    share: 1,
    cases: || {
        in_all_modes(|mode| {
            vec![
                case(Two, mode, &[actor(Parent, &[], &[Store(0, 11)]), actor(Child, &[], &[Store(0, 12)])]),
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[], &[Store(0, 11), Load(1)]), actor(Child, &[], &[Store(1, 12), Load(0)])],
                ),
                case(Two, mode, &[actor(Parent, &[], &[Store(6, 11)]), actor(Child, &[], &[Store(6, 12), Load(0)])]),
                case(Two, mode, &[actor(Parent, &[], &[Store(16, 11)]), actor(Child, &[], &[Store(16, 12), Load(17)])]),
                // Twice each, so that what one has left the other may reuse.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[Load(0), Load(1)], &[Store(0, 11), Store(1, 13)]),
                        actor(Child, &[Load(0), Load(1)], &[Store(1, 12), Store(0, 14)]),
                    ],
                ),
                // A reader of the parent remembers the page that the child may reuse in place.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Store(0, 11)]),
                        actor(Child, &[], &[Store(0, 12)]),
                        actor(Parent, &[Load(0)], &[Load(0), Load(0)]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[], &[Store(0, 11)]),
                        actor(Child, &[Load(0)], &[Store(0, 12)]),
                        actor(Grandchild, &[], &[Store(0, 13), Load(1)]),
                    ],
                ),
            ]
        })
    },
};

pub const FORK: Model = Model {
    name: "fork",
    about: "fork against stores of one and two threads: a child is one instant",
    share: 1,
    cases: || {
        let mut cases = in_all_modes(|mode| {
            vec![
                case(
                    One,
                    mode,
                    &[actor(Parent, &[], &[Fork]), actor(Parent, &[Store(0, 9)], &[Store(0, 11), Store(1, 12)])],
                ),
                // Through two processors, one of which remembers that it may write.
                case(
                    One,
                    mode,
                    &[
                        actor(Parent, &[], &[Fork]),
                        actor(Parent, &[StoreElsewhere(1, 9), Load(0)], &[Store(0, 11), StoreElsewhere(1, 12)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Fork]),
                        actor(Parent, &[StoreElsewhere(1, 9)], &[Store(0, 11), StoreElsewhere(1, 12)]),
                    ],
                ),
                case(
                    One,
                    mode,
                    &[
                        actor(Parent, &[], &[Fork]),
                        actor(Parent, &[Store(0, 9)], &[Store(0, 11), Store(6, 13)]),
                        actor(Parent, &[Store(1, 9)], &[Store(1, 12), Load(0)]),
                    ],
                ),
                case(Two, mode, &[actor(Parent, &[], &[Fork]), actor(Child, &[], &[Store(0, 11), Fork, Store(0, 12)])]),
            ]
        });
        cases.extend([
            case(One, Full, &[actor(Parent, &[], &[Fork]), actor(Parent, &[], &[Fork, Store(0, 11)])]),
            case(One, Leaf, &[actor(Parent, &[], &[Fork, Store(0, 12)]), actor(Parent, &[], &[Unmap(0, 2), Fork])]),
            case(
                One,
                Copy,
                &[
                    actor(Parent, &[], &[Fork]),
                    actor(Parent, &[], &[Protect(0, 2, crate::op::Allow::Reading), Load(0)]),
                ],
            ),
        ]);
        cases
    },
};

pub const SHOOTDOWN: Model = Model {
    name: "shootdown",
    about: "after an operation no other processor uses what it remembered",
    share: 1,
    cases: || {
        let reader = |mode| actor(Parent, &[LoadElsewhere(0), LoadElsewhere(1)], mode);
        let mut cases = in_all_modes(|mode| {
            vec![
                // Zeros that are linked as a whole table, and a page of one's own among them.
                case(
                    One,
                    mode,
                    &[
                        actor(Parent, &[LoadElsewhere(700)], &[Store(701, 11), LoadElsewhere(701)]),
                        actor(Parent, &[], &[Load(702)]),
                    ],
                ),
                case(
                    One,
                    mode,
                    &[
                        actor(Parent, &[LoadElsewhere(2)], &[Load(700), Unmap(600, 702), LoadElsewhere(701)]),
                        actor(Parent, &[], &[Load(702)]),
                    ],
                ),
                case(Two, mode, &[reader(&[Store(0, 11), LoadElsewhere(0)]), actor(Child, &[], &[Store(0, 12)])]),
                case(Two, mode, &[reader(&[Unmap(0, 1), LoadElsewhere(0)]), actor(Child, &[], &[Store(0, 12)])]),
                case(Two, mode, &[reader(&[Discard(0, 2), LoadElsewhere(1)]), actor(Child, &[], &[Store(1, 12)])]),
                case(Two, mode, &[reader(&[Move(0, 1, 1024), LoadElsewhere(0)]), actor(Child, &[], &[Store(0, 12)])]),
                case(Two, mode, &[reader(&[Clear, LoadElsewhere(0)]), actor(Child, &[], &[Store(0, 12)])]),
                case(
                    Two,
                    mode,
                    &[
                        reader(&[Map(0, 2), LoadElsewhere(0)]),
                        actor(Child, &[], &[Store(0, 12)]),
                        actor(Parent, &[Load(0), Load(1)], &[Store(1, 13)]),
                    ],
                ),
                // A page that one store copies is given up by one, taken over by the other, and looked at by a third.
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Store(1, 11)]),
                        actor(Child, &[], &[Store(1, 12), Store(2, 12)]),
                        actor(Parent, &[Load(1), Load(2)], &[Load(1), Load(2)]),
                    ],
                ),
                case(
                    One,
                    mode,
                    &[
                        actor(Parent, &[StoreElsewhere(0, 9)], &[Fork, StoreElsewhere(0, 11)]),
                        actor(Parent, &[Store(1, 9)], &[Store(1, 12)]),
                    ],
                ),
                case(
                    One,
                    mode,
                    &[
                        actor(
                            Parent,
                            &[StoreElsewhere(0, 9)],
                            &[Protect(0, 1, crate::op::Allow::Reading), StoreElsewhere(0, 11)],
                        ),
                        actor(Parent, &[Store(0, 9)], &[Store(0, 12)]),
                    ],
                ),
            ]
        });
        // Zeros that a load links over more than what is unmapped, after the edges were made exclusive.
        cases.push(case(
            One,
            Full,
            &[actor(Parent, &[Map(1024, 1536)], &[Unmap(1100, 1200)]), actor(Parent, &[], &[Load(1300), Load(1024)])],
        ));
        cases.push(case(
            One,
            Full,
            &[
                actor(Parent, &[Map(1024, 1536)], &[Protect(1100, 1200, crate::op::Allow::Reading)]),
                actor(Parent, &[], &[Load(1300), Store(1024, 12)]),
            ],
        ));
        cases
    },
};
