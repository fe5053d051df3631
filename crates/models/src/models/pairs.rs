//! Every operation against every other.

use Family::Two;
use Op::*;
use Who::{Child, Parent};

use super::{Model, actor, case, in_all_modes};
use crate::op::{Allow, Op};
use crate::stage::{Family, Who};

const OPERATIONS: &[(Who, Op)] = &[
    (Parent, Store(0, 11)),
    (Parent, Store(1, 12)),
    (Parent, Store(6, 13)),
    (Child, Store(0, 14)),
    (Parent, Store(16, 15)),
    (Parent, Store(20, 16)),
    (Parent, Load(0)),
    (Parent, Load(6)),
    (Parent, Load(17)),
    (Parent, Write(0, 17)),
    (Parent, Fork),
    (Child, Fork),
    (Child, Exit),
    (Parent, Unmap(0, 2)),
    (Child, Unmap(0, 1024)),
    (Parent, Protect(0, 7, Allow::Reading)),
    (Parent, Protect(0, 7, Allow::Nothing)),
    (Parent, Discard(0, 1)),
    (Parent, Map(0, 7)),
    (Parent, MapFile(14, 17)),
    (Parent, Move(0, 2, 1024)),
    (Child, Move(512, 1024, 1024)),
    (Parent, Clear),
    (Parent, WriteFile(0, 18)),
    (Parent, Maps),
    (Parent, Migrate(0)),
    (Child, Migrate(16)),
];

pub const PAIRS: Model = Model {
    name: "pairs",
    about: "every operation against every other, in each mode of fork",
    share: 8,
    cases: || {
        in_all_modes(|mode| {
            let mut cases = Vec::new();
            for (number, &(first_who, first)) in OPERATIONS.iter().enumerate() {
                for &(second_who, second) in &OPERATIONS[number..] {
                    // Who runs a space keeps it.
                    if first_who == second_who && [first, second].contains(&Exit) {
                        continue;
                    }
                    let warm = |who| if who == Parent { [Load(0), Load(16)] } else { [Load(0), Load(1)] };
                    cases.push(case(
                        Two,
                        mode,
                        &[
                            actor(first_who, &warm(first_who), &[first]),
                            actor(second_who, &warm(second_who), &[second]),
                        ],
                    ));
                }
            }
            cases
        })
    },
};
