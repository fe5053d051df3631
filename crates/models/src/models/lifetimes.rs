//! Who goes while others go on, who is found meanwhile, and what happens where there is nothing left.

use Family::{One, Three, Two};
use Op::*;
use Who::{Child, Grandchild, Parent};
use foldspace::space::ForkMode::Full;

use super::{Model, actor, case, in_all_modes};
use crate::explore::{Case, Rule};
use crate::op::{Allow, Op};
use crate::stage::{Family, Who};

pub const EXIT: Model = Model {
    name: "exit",
    about: "exit and exec of one sharer against faults, unsharing and fork of another",
    share: 1,
    cases: || {
        let mut cases = in_all_modes(|mode| {
            vec![
                case(
                    Two,
                    mode,
                    &[actor(Child, &[], &[Exit]), actor(Parent, &[Load(0)], &[Store(0, 11), Store(1, 12)])],
                ),
                case(Two, mode, &[actor(Child, &[Store(1, 9)], &[Exit]), actor(Parent, &[], &[Fork, Store(0, 11)])]),
                case(Two, mode, &[actor(Child, &[], &[Exit]), actor(Parent, &[], &[Unmap(0, 2), Load(2)])]),
                case(
                    Two,
                    mode,
                    &[actor(Child, &[], &[Store(0, 7), Exit]), actor(Parent, &[Load(0)], &[Store(0, 11), Load(0)])],
                ),
                case(Two, mode, &[actor(Parent, &[Load(0)], &[Clear]), actor(Child, &[], &[Store(0, 11), Load(1)])]),
                case(Two, mode, &[actor(Parent, &[], &[Exit]), actor(Child, &[], &[Exit])]),
                // A page is copied by one while the other gets it alone, stores to it, and shares it again.
                case(
                    Two,
                    mode,
                    &[
                        actor(Child, &[], &[Exit]),
                        actor(Parent, &[], &[Store(0, 11)]),
                        actor(Parent, &[], &[Store(0, 12), Fork]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[], &[Exit]),
                        actor(Child, &[], &[Exit]),
                        actor(Grandchild, &[Load(0)], &[Store(0, 11), Load(1)]),
                    ],
                ),
                case(
                    Two,
                    mode,
                    &[
                        actor(Child, &[], &[Exit]),
                        actor(Parent, &[Load(1)], &[Store(0, 11)]),
                        actor(Parent, &[Load(0)], &[Store(1, 12), Load(0)]),
                    ],
                ),
            ]
        });
        cases.push(case(
            One,
            Full,
            &[actor(Parent, &[Load(0)], &[Clear]), actor(Parent, &[Load(0)], &[Store(0, 11), Load(6)])],
        ));
        cases
    },
};

pub const LINEAGE: Model = Model {
    name: "lineage",
    about: "tables join and leave lineages while frames are looked up in them",
    share: 1,
    cases: || {
        in_all_modes(|mode| {
            vec![
                case(
                    Two,
                    mode,
                    &[
                        actor(Parent, &[], &[Store(0, 11)]),
                        actor(Child, &[], &[WhoMaps(1), WhoMaps(0)]),
                        actor(Child, &[], &[Store(1, 12)]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[], &[Store(0, 11)]),
                        actor(Child, &[Store(2, 9)], &[Exit]),
                        actor(Grandchild, &[], &[WhoMaps(1), Store(1, 12), WhoMaps(2)]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[Store(2, 9)], &[Exit]),
                        actor(Child, &[Store(2, 9)], &[Exit]),
                        actor(Grandchild, &[Store(2, 9)], &[WhoMaps(0), Store(0, 12)]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[], &[Store(0, 11)]),
                        actor(Child, &[], &[Store(0, 12)]),
                        actor(Grandchild, &[Store(2, 9)], &[Exit]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[Load(17)], &[Store(16, 11)]),
                        actor(Child, &[Load(17)], &[WhoMaps(17), Unmap(16, 18)]),
                        actor(Grandchild, &[], &[Load(17), Store(0, 12)]),
                    ],
                ),
                // A page of a file that one store gives up has its place named by a table that founds a lineage meanwhile.
                case(
                    One,
                    mode,
                    &[
                        actor(Parent, &[Load(16)], &[Store(16, 11)]),
                        actor(Parent, &[], &[Fork, Store(1, 12), Load(20)]),
                    ],
                ),
                case(
                    Three,
                    mode,
                    &[
                        actor(Parent, &[Store(2, 9)], &[Clear, MapFile(16, 19), Load(16)]),
                        actor(Child, &[Store(2, 9)], &[Exit]),
                        actor(Grandchild, &[], &[Store(512, 12), WhoMaps(513)]),
                    ],
                ),
            ]
        })
    },
};

pub const MEMORY: Model = Model {
    name: "memory",
    about: "frames run out on the way",
    share: 4,
    cases: || {
        let operations: [&[Op]; 8] = [
            &[Store(0, 11), Store(6, 12)],
            &[Fork, Store(0, 13)],
            &[Unmap(0, 2), Map(0, 2), Store(0, 14)],
            &[Protect(0, 7, Allow::Reading), Protect(0, 7, Allow::Writing)],
            &[Move(512, 1024, 1024), Move(0, 2, 1024)],
            &[Load(6), Load(16), Store(16, 15)],
            &[Truncate(1), Discard(0, 4)],
            &[Clear],
        ];
        let mut cases: Vec<Case> = Vec::new();
        for frames in [0, 1, 2, 3, 5, 8] {
            for (number, first) in operations.iter().enumerate() {
                for (who, second) in [(Child, operations[0]), (Parent, operations[(number + 3) % operations.len()])] {
                    let actors = [actor(Parent, &[Load(0)], first), actor(who, &[Load(1)], second)];
                    cases.push(Case { rule: Rule::OutOfMemory(frames), ..case(Two, Full, &actors) });
                }
            }
        }
        cases
    },
};
