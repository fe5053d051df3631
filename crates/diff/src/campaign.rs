//! Many sequences, one after the other, on both sides; what is found is shrunk.

use std::collections::BTreeMap;

use crate::compare::{Aspect, Difference, Rule, TIMES_AGAIN, Tally, Verdict, compare, show_outcome};
use crate::generate::{Menu, sequence};
use crate::hosted::{Machine, MachineError, Ran};
use crate::op::Op;
use crate::{Helper, HelperError, Step, c_call, c_program, shrink};

/// Why a campaign cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// Linux's side.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// Foldspace's side.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

/// Counts of what was done.
#[derive(Clone, Default)]
pub struct Counts {
    /// Sequences that were compared.
    pub sequences: u64,
    /// Operations whose steps were compared.
    pub ops: u64,
    /// Sequences that parted as a rule says.
    pub parted: u64,
    /// By kind of operation and by errno (0: success; from 1000 on: 1000 and the signal), how many.
    pub outcomes: BTreeMap<(usize, i64), u64>,
    /// Rules that were needed.
    pub rules: Tally,
}

impl Counts {
    /// Counts one sequence, compared with `verdict`.
    pub fn note(&mut self, ops: &[Op], steps: &[Step], verdict: &Verdict) {
        let compared = match verdict {
            Verdict::Equal => ops.len(),
            Verdict::Parted(at) => *at,
            Verdict::Different(difference) => difference.at,
        };
        self.sequences += 1;
        self.ops += compared as u64;
        self.parted += u64::from(matches!(verdict, Verdict::Parted(_)));
        for (op, step) in ops.iter().zip(steps).take(compared) {
            *self.outcomes.entry(class(op, step)).or_default() += 1;
        }
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Counts) {
        self.sequences += other.sequences;
        self.ops += other.ops;
        self.parted += other.parted;
        for (key, count) in &other.outcomes {
            *self.outcomes.entry(*key).or_default() += count;
        }
        self.rules.iter_mut().zip(other.rules).for_each(|(sum, count)| *sum += count);
    }
}

/// A difference, shrunk.
#[derive(Clone, Debug)]
pub struct Found {
    /// Number of the sequence.
    pub sequence: u64,
    /// The shortest that shows it.
    pub ops: Vec<Op>,
    /// What differs there.
    pub difference: Difference,
    /// A C program that shows what Linux does.
    pub program: String,
}

/// Both sides.
pub struct Pair {
    helper: Helper,
    machine: Machine,
}

impl Pair {
    /// Over a helper that was started while this program had one thread.
    ///
    /// # Errors
    /// See [`CampaignError`].
    pub fn new(helper: Helper) -> Result<Pair, CampaignError> {
        Ok(Pair { helper, machine: Machine::new()? })
    }

    /// Does sequence `number` of `seed` on both sides. A difference is shrunk.
    ///
    /// # Errors
    /// See [`CampaignError`].
    pub fn sequence(
        &mut self,
        seed: u64,
        number: u64,
        menu: &Menu,
        counts: &mut Counts,
    ) -> Result<Option<Found>, CampaignError> {
        let ops = sequence(seed, number, menu);
        let (mut both, mut tally) = (self.both(&ops)?, Tally::default());
        let mut verdict = both.verdict(&ops, &mut tally);
        for _ in 0..TIMES_AGAIN {
            if !verdict.may_be_reclaim() {
                break;
            }
            (both, tally) = (self.both(&ops)?, Tally::default());
            verdict = both.verdict(&ops, &mut tally);
            Rule::Reclaimed.count(&mut tally, u64::from(!verdict.may_be_reclaim()));
        }
        counts.rules.iter_mut().zip(tally).for_each(|(sum, count)| *sum += count);
        counts.note(&ops, &both.theirs, &verdict);
        match verdict {
            Verdict::Different(difference) => {
                Ok(Some(self.shrink(number, &ops[..(difference.at + 1).min(ops.len())], difference)?))
            }
            _ => Ok(None),
        }
    }

    /// Does these operations on both sides and says what differs.
    ///
    /// # Errors
    /// See [`CampaignError`].
    pub fn compare(&mut self, ops: &[Op]) -> Result<Verdict, CampaignError> {
        Ok(self.both(ops)?.verdict(ops, &mut Tally::default()))
    }

    /// Linux first, as it runs beside us.
    fn both(&mut self, ops: &[Op]) -> Result<Both, CampaignError> {
        self.helper.begin(ops)?;
        let ours = self.machine.run(ops);
        let (theirs, crash) = self.helper.finish()?;
        let Ran { steps, unsound } = ours?;
        Ok(Both { ours: steps, unsound, theirs, crash: crash.map(|crash| crash.status) })
    }

    fn shrink(&mut self, sequence: u64, ops: &[Op], difference: Difference) -> Result<Found, CampaignError> {
        let same = |found: &Difference| found.aspect == difference.aspect;
        let short = shrink(ops, |tried| {
            let shown = self.both(tried).map(|both| both.verdict(tried, &mut Tally::default()));
            matches!(shown, Ok(Verdict::Different(found)) if same(&found))
        });
        let both = self.both(&short)?;
        let Verdict::Different(difference) = both.verdict(&short, &mut Tally::default()) else {
            // Not seen again: something else than the sequence has a part in it.
            return Ok(Found { sequence, ops: ops.to_vec(), program: c_program(ops, &[]), difference });
        };
        let comment = (difference.at, format!("Different: {}", difference.text));
        let said =
            both.ours.iter().enumerate().map(|(at, step)| (at, format!("Foldspace: {}", show_outcome(&step.outcome))));
        let comments: Vec<_> = said.chain([comment]).collect();
        Ok(Found { sequence, program: c_program(&short, &comments), ops: short, difference })
    }
}

/// The steps of both sides.
struct Both {
    ours: Vec<Step>,
    /// What is wrong in Foldspace, whatever Linux did.
    unsound: Option<String>,
    theirs: Vec<Step>,
    crash: Option<u32>,
}

impl Both {
    fn verdict(&self, ops: &[Op], tally: &mut Tally) -> Verdict {
        let verdict = compare(ops, &self.ours, &self.theirs, tally);
        if let Some(text) = &self.unsound {
            // It is looked for at the end.
            let at = ops.len().saturating_sub(1);
            return Verdict::Different(Difference { at, aspect: Aspect::Invariants, text: text.clone() });
        }
        match verdict {
            Verdict::Different(mut difference) => {
                if let Some(status) = self.crash {
                    difference.text += &format!("\na process of the host ended with wait status {status:#x}");
                }
                Verdict::Different(difference)
            }
            verdict => verdict,
        }
    }
}

impl Found {
    /// In words: the operations, and what differs.
    pub fn text(&self) -> String {
        let mut text = format!("sequence {}, {} operations:\n", self.sequence, self.ops.len());
        for op in &self.ops {
            text += &format!("  {}: {}\n", op.process, c_call(&op.call));
        }
        text +=
            &format!("at operation {} ({:?}): {}\n", self.difference.at, self.difference.aspect, self.difference.text);
        text
    }
}

fn class(op: &Op, step: &Step) -> (usize, i64) {
    let kind = if step.outcome.value == crate::NOBODY { crate::PASSED_OVER } else { op.call.kind() };
    let result = match step.outcome {
        crate::Outcome { signal: (signal, _), .. } if signal != 0 => 1000 + i64::from(signal),
        crate::Outcome { value, .. } if (-4095..0).contains(&value) => -value,
        _ => 0,
    };
    (kind, result)
}
