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
    /// What a lean build of Linux 7.2 takes, where it is known and Linux can do it.
    pub linux: Option<f64>,
    at_most: Option<f64>,
    within: Option<Within>,
    no_more: Option<NoMore>,
}

/// A row shall cost the same as others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Within {
    percent: f64,
    of: Vec<String>,
}

/// A row shall not cost more than others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoMore {
    /// So much more is still the same.
    percent: f64,
    than: Vec<String>,
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
        let within = self.within.iter().flat_map(|within| &within.of);
        within.chain(self.no_more.iter().flat_map(|most| &most.than)).map(String::as_str)
    }

    /// Judges a value, given the values of the other rows.
    pub fn judge(&self, value: f64, measured: impl Fn(&str) -> Option<f64>) -> Met {
        if self.at_most.is_some_and(|most| value > most) {
            return Met::No;
        }
        let mut all = Met::Yes;
        let mut compare = |others: &[String], missed: &dyn Fn(f64) -> bool| {
            for other in others {
                match measured(other) {
                    Some(other) if missed(other) => all = Met::No,
                    None if all == Met::Yes => all = Met::Unknown,
                    _ => {}
                }
            }
        };
        if let Some(within) = &self.within {
            compare(&within.of, &|other| (value - other).abs() > other * within.percent / 100.0);
        }
        if let Some(most) = &self.no_more {
            compare(&most.than, &|other| value > other + other * most.percent / 100.0);
        }
        all
    }

    /// The goal in a few words.
    pub fn words(&self) -> String {
        let at_most = self.at_most.map(|most| format!("≤ {}", super::table::number(most)));
        let within = self.within.as_ref().map(|w| format!("±{} % of {}", w.percent, w.of.join(", ")));
        let no_more = self.no_more.as_ref().map(|most| match most.percent {
            0.0 => format!("≤ {}", most.than.join(", ")),
            percent => format!("≤ {} + {percent} %", most.than.join(", ")),
        });
        at_most.into_iter().chain(within).chain(no_more).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goals_are_sound() {
        let goals = Goals::load().unwrap();
        for (row, goal) in &goals.0 {
            let asks = goal.at_most.is_some() || goal.within.is_some() || goal.no_more.is_some();
            assert!(asks, "{row} asks for nothing");
            let less = goal.at_most.zip(goal.linux).is_some_and(|(most, linux)| most >= linux);
            assert!(!less, "{row} asks for less than Linux does");
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
    #[test]
    fn no_more_is_one_sided() {
        let goal: Goal = toml::from_str("no_more = { percent = 5, than = ['a'] }").unwrap();
        let judge = |value, a: Option<f64>| goal.judge(value, |_| a);
        assert_eq!(judge(105.0, Some(100.0)), Met::Yes);
        assert_eq!(judge(106.0, Some(100.0)), Met::No);
        assert_eq!(judge(1.0, Some(100.0)), Met::Yes);
        assert_eq!(judge(1.0, None), Met::Unknown);
        assert_eq!(goal.words(), "≤ a + 5 %");
        assert_eq!(goal.others().collect::<Vec<_>>(), ["a"]);
    }
}
