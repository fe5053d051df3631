//! The kernel's own copies to and from user memory, which no shootdown stops: what they have found stays what it is until they are done.

use Family::{One, Two};
use Op::*;
use Who::{Child, Parent};
use foldspace::space::ForkMode::Full;

use super::{Model, actor, case, in_all_modes};
use crate::op::Op;
use crate::stage::{Family, Who};

pub const KERNEL: Model = Model {
    name: "kernel",
    about: "the kernel's copies to and from user memory, against whatever takes it away and puts it to another use",
    share: 1,
    cases: || {
        let mut cases = vec![
            // The frame that is copied to, or from, dies, and is what a store takes next.
            case(
                One,
                Full,
                &[actor(Parent, &[], &[Write(0, 17)]), actor(Parent, &[], &[Unmap(0, 2), Store(6, 13), Load(6)])],
            ),
            case(
                One,
                Full,
                &[actor(Parent, &[], &[Read(0)]), actor(Parent, &[], &[Unmap(0, 2), Store(6, 13), Load(6)])],
            ),
            // The table that is on the path does, and becomes one of another place.
            case(
                One,
                Full,
                &[
                    actor(Parent, &[], &[Read(512)]),
                    actor(Parent, &[], &[Unmap(512, 1024), Map(1024, 1536), Store(1024, 13)]),
                ],
            ),
            // What is marked as stored to has gone meanwhile, or is something else.
            case(
                One,
                Full,
                &[actor(Parent, &[Free(0, 1)], &[Write(0, 17)]), actor(Parent, &[], &[Unmap(0, 2), Load(2)])],
            ),
            case(
                One,
                Full,
                &[
                    actor(Parent, &[Free(0, 1)], &[Read(0)]),
                    actor(Parent, &[], &[Discard(0, 1), Store(0, 13), Load(0)]),
                ],
            ),
            case(
                One,
                Full,
                &[actor(Parent, &[], &[Read(20), Write(6, 17)]), actor(Parent, &[Load(6)], &[Truncate(0), Load(6)])],
            ),
        ];
        cases.extend(in_all_modes(|mode| {
            vec![
                case(Two, mode, &[actor(Parent, &[], &[Write(0, 17), Read(0)]), actor(Child, &[], &[Write(0, 18)])]),
                case(Two, mode, &[actor(Parent, &[], &[Write(0, 17)]), actor(Parent, &[], &[Fork, Read(0)])]),
                case(
                    Two,
                    mode,
                    &[actor(Parent, &[], &[Read(0)]), actor(Parent, &[], &[Store(0, 11), Unmap(0, 2), Store(6, 13)])],
                ),
                case(Two, mode, &[actor(Parent, &[], &[Read(0), Read(512)]), actor(Child, &[], &[Exit])]),
            ]
        }));
        cases
    },
};
