//! Are two steps equal? Where Foldspace is known to differ, a rule says exactly how, and is counted.

mod rules;
mod show;

use crate::op::{Call, Op};
use crate::window::PROCESSES;
use crate::{Look, Step};
pub use rules::{RULES, Rule};
pub use show::{show_areas, show_outcome};

/// How often each rule was needed.
pub type Tally = [u64; RULES.len()];

/// What was not equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// At which operation.
    pub at: usize,
    /// Of what kind: two differences of one kind may have one cause.
    pub aspect: Aspect,
    /// In words.
    pub text: String,
}

/// Parts of a step that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aspect {
    /// Result, errno, signal.
    Outcome,
    /// Lines of maps, flags.
    Areas,
    /// Sizes in smaps: which one.
    Size(&'static str),
    /// mincore.
    InCore,
    /// mincore: Linux has not a page of a file that it should have. What it reclaims meanwhile looks so, too, but only once.
    Missing,
    /// Sizes in smaps: Linux has a page of private memory that MADV_FREE and MADV_PAGEOUT should have taken. What is not on its lists of pages at that
    /// moment it leaves, but not each time.
    Kept,
    /// Bytes.
    Content,
    /// One of the two came to an end before the other.
    Length,
    /// None: Foldspace's own invariants.
    Invariants,
}

/// How often a sequence is done again, before what may be how Linux's lists happened to be is a difference. On a busy computer a page can be in a batch of another
/// processor's for some time.
pub const TIMES_AGAIN: usize = 3;

/// How a comparison ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Equal, with the help of rules perhaps.
    Equal,
    /// From the given step on the two may go separate ways, as a rule says.
    Parted(usize),
    /// Not equal.
    Different(Difference),
}

impl Verdict {
    /// Whether the difference may be how Linux's lists of pages happened to be: the sequence is to be done again ([`Rule::Reclaimed`]), so often at
    /// most as [`TIMES_AGAIN`] says.
    pub fn may_be_reclaim(&self) -> bool {
        matches!(self, Verdict::Different(difference) if matches!(difference.aspect, Aspect::Missing | Aspect::Kept))
    }
}

/// Compares what came of `ops` in Foldspace (`ours`) and on Linux (`theirs`).
pub fn compare(ops: &[Op], ours: &[Step], theirs: &[Step], tally: &mut Tally) -> Verdict {
    let mut history = rules::History::default();
    let mut last: [Option<(&Look, &Look)>; PROCESSES] = [None; PROCESSES];
    for (at, (op, (our, their))) in ops.iter().zip(ours.iter().zip(theirs)).enumerate() {
        let before = last[op.process as usize];
        history.note(&op.call, &their.outcome, before.map(|(_, theirs)| theirs));
        let differ = |aspect, text| Verdict::Different(Difference { at, aspect, text });
        let part = |tally: &mut Tally| {
            Rule::Ends.count(tally, 1);
            Verdict::Parted(at)
        };
        if our.outcome != their.outcome {
            if rules::parts(op, before, our.look.as_ref().zip(their.look.as_ref()), &their.outcome) {
                return part(tally);
            }
            if history.miscounts_locked([&our.outcome, &their.outcome]) {
                Rule::LockCount.count(tally, 1);
                return Verdict::Parted(at);
            }
            let (our, their) = (show_outcome(&our.outcome), show_outcome(&their.outcome));
            return differ(Aspect::Outcome, format!("Foldspace: {our}; Linux: {their}"));
        }
        let said = &their.outcome;
        match (&our.look, &their.look) {
            (None, None) => {}
            (Some(our), Some(their)) => {
                if let Err((aspect, text)) = rules::same_look(our, their, &history, tally) {
                    if rules::parts(op, before, Some((our, their)), said) {
                        return part(tally);
                    }
                    if history.miscounts_locked([said, said]) {
                        Rule::LockCount.count(tally, 1);
                        return Verdict::Parted(at);
                    }
                    return differ(aspect, text);
                }
                last[op.process as usize] = Some((our, their));
                if let Call::Fork { child } = op.call {
                    last[child as usize] = None;
                }
            }
            (our, their) => {
                let seen = |look: bool| if look { "is there" } else { "is gone" };
                let text =
                    format!("the process {} in Foldspace, {} on Linux", seen(our.is_some()), seen(their.is_some()));
                return differ(Aspect::Length, text);
            }
        }
    }
    if ours.len() != theirs.len() {
        let at = ours.len().min(theirs.len());
        let text = format!("Foldspace came to step {}, Linux to {}", ours.len(), theirs.len());
        return Verdict::Different(Difference { at, aspect: Aspect::Length, text });
    }
    Verdict::Equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Area;

    /// Only a page of a file that Linux alone has not may have been reclaimed; whatever else mincore says differently is a difference at once.
    #[test]
    fn what_linux_may_have_reclaimed_is_told_from_what_differs() {
        let step = |file: u32, in_core: bool| {
            let area = Area { start: 0x4000_0000, end: 0x4000_1000, access: *b"rw-s", file, ..Area::default() };
            let look = Look { areas: vec![area], in_core: vec![in_core], content: 0 };
            [Step { look: Some(look), ..Step::default() }]
        };
        let ops = [Op { process: 0, call: Call::LookDeep }];
        let verdict = |file, ours, theirs| compare(&ops, &step(file, ours), &step(file, theirs), &mut Tally::default());
        assert!(verdict(1, true, false).may_be_reclaim());
        assert!(!verdict(1, false, true).may_be_reclaim());
        assert!(!verdict(0, true, false).may_be_reclaim());
        assert_eq!(verdict(1, true, true), Verdict::Equal);
    }

    /// Only what was freed and paged out may be there still, and on Linux only.
    #[test]
    fn what_linux_may_have_kept_is_told_from_what_differs() {
        let step = |kib: u64| {
            let mut sizes = [0; crate::look::SIZES.len()];
            sizes[0] = kib;
            let area = Area { start: 0x4000_0000, end: 0x4000_1000, access: *b"rw-p", sizes, ..Area::default() };
            Step { look: Some(Look { areas: vec![area], in_core: vec![true], content: 0 }), ..Step::default() }
        };
        let advise = |advice| Op { process: 0, call: Call::Advise { addr: 0x4000_0000, len: 0x1000, advice } };
        let [free, page_out] = [advise(libc::MADV_FREE), advise(libc::MADV_PAGEOUT)];
        let verdict = |ops: [Op; 2], ours, theirs| {
            compare(&ops, &[step(4), step(ours)], &[step(4), step(theirs)], &mut Tally::default())
        };
        assert!(verdict([free, page_out], 0, 4).may_be_reclaim());
        assert!(!verdict([free, page_out], 4, 0).may_be_reclaim());
        assert!(!verdict([free, free], 0, 4).may_be_reclaim());
        assert!(!verdict([page_out, page_out], 0, 4).may_be_reclaim());
    }
}
