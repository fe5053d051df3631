//! Random histories: the counts are right, and no mapping is missed.

mod steps;

use foldspace_classic::{Operation, Refusal, Rule, World};
use proptest::prelude::*;
use steps::{Step, histories, operations, runner};

/// Carries a history out, looking after each step.
fn live(rule: Rule, steps: &[Step]) -> Result<World, String> {
    let mut world = World::new(rule);
    for operation in operations(steps) {
        match world.apply(&operation) {
            Ok(()) | Err(Refusal::CannotMove | Refusal::CannotGrow) => {}
            Err(refusal) => return Err(format!("{operation:?}: {refusal}")),
        }
        let checked = world.check().and_then(|()| world.check_reverse());
        checked.map_err(|wrong| format!("after {operation:?}: {wrong}"))?;
    }
    Ok(world)
}

#[test]
fn rules_that_count_right_miss_no_mapping() {
    for rule in [Rule::PerFork, Rule::Today] {
        let all =
            runner(1500).run(&histories(120), |steps| live(rule, &steps).map(|_| ()).map_err(TestCaseError::fail));
        all.unwrap_or_else(|wrong| panic!("{rule}: {wrong}"));
    }
}

#[test]
fn all_rules_give_the_same_pages_to_the_same_places() {
    let all = runner(300).run(&histories(120), |steps| {
        let operations = operations(&steps);
        let mut worlds: Vec<World> = Rule::ALL.into_iter().map(World::new).collect();
        for operation in &operations {
            let results: Vec<_> = worlds.iter_mut().map(|world| world.apply(operation).is_ok()).collect();
            // What lies in one VMA is the rule's to decide: a move, or growth, may be refused by some.
            if !matches!(operation, Operation::Move { .. } | Operation::Grow { .. }) {
                prop_assert!(results.iter().all(|done| *done));
            } else if !results.iter().all(|done| *done == results[0]) {
                return Ok(());
            }
        }
        let places = |world: &World| {
            let mut places: Vec<_> = world.walk().into_values().collect();
            places.sort();
            places
        };
        for world in &worlds[1..] {
            prop_assert_eq!(places(world), places(&worlds[0]));
        }
        Ok(())
    });
    all.unwrap();
}
