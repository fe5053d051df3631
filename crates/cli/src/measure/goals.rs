//! The goals, as `goals.toml` has them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

const TEXT: &str = include_str!("../../goals.toml");

/// The goals by the name of their row.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct Goals(BTreeMap<String, Goal>);

/// What is asked of one row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// What a lean build of Linux 7.2 takes.
    pub linux: f64,
    at_most: Option<f64>,
    within: Option<Within>,
}

/// A row shall cost the same as others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Within {
    percent: f64,
    of: Vec<String>,
}

/// Whether a goal is met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    Yes,
    No,
    /// A row that it depends on was not measured.
    Unknown,
}

impl Goals {
    pub fn load() -> Result<Self> {
        toml::from_str(TEXT).context("goals.toml")
    }

    pub fn of(&self, row: &str) -> Option<&Goal> {
        self.0.get(row)
    }
}

impl Goal {
    /// The rows whose values this one is compared with.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        self.within.iter().flat_map(|within| within.of.iter().map(String::as_str))
    }

    /// Judges a value, given the values of the other rows.
    pub fn judge(&self, value: f64, measured: impl Fn(&str) -> Option<f64>) -> Met {
        if self.at_most.is_some_and(|most| value > most) {
            return Met::No;
        }
        let Some(within) = &self.within else { return Met::Yes };
        let mut all = Met::Yes;
        for other in &within.of {
            match measured(other) {
                Some(other) if (value - other).abs() > other * within.percent / 100.0 => return Met::No,
                Some(_) => {}
                None => all = Met::Unknown,
            }
        }
        all
    }

    /// The goal in a few words.
    pub fn words(&self) -> String {
        let at_most = self.at_most.map(|most| format!("≤ {}", super::table::number(most)));
        let within = self.within.as_ref().map(|w| format!("±{} % of {}", w.percent, w.of.join(", ")));
        at_most.into_iter().chain(within).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goals_are_sound() {
        let goals = Goals::load().unwrap();
        for (row, goal) in &goals.0 {
            assert!(goal.at_most.is_some() || goal.within.is_some(), "{row} asks for nothing");
            assert!(goal.at_most.is_none_or(|most| most < goal.linux), "{row} asks for less than Linux does");
        }
    }

    #[test]
    fn a_goal_has_two_parts() {
        let goal: Goal =
            toml::from_str("linux = 100\nat_most = 50\nwithin = { percent = 10, of = ['a', 'b'] }").unwrap();
        let judge = |value, a: Option<f64>, b: Option<f64>| goal.judge(value, |row| if row == "a" { a } else { b });
        assert_eq!(judge(51.0, Some(51.0), Some(51.0)), Met::No);
        assert_eq!(judge(50.0, Some(50.0), Some(46.0)), Met::Yes);
        assert_eq!(judge(50.0, Some(50.0), Some(45.0)), Met::No);
        assert_eq!(judge(40.0, Some(50.0), Some(40.0)), Met::No);
        assert_eq!(judge(50.0, Some(50.0), None), Met::Unknown);
        assert_eq!(judge(50.0, None, Some(10.0)), Met::No);
    }
}
