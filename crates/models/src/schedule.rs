//! Which thread runs next.

use std::collections::HashMap;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

/// Every schedule with at most one preemption: threads run in each order of priorities, one after the other, and at one point the one that runs
/// falls behind all others. (That is PCT of depth 2, all of it instead of samples.) Who waits falls behind, too.
///
/// If there are more than are wanted, points at equal distances.
#[derive(Debug)]
pub struct OnePreemption {
    /// Threads beside the first one, which starts them and goes first.
    threads: usize,
    most: usize,
    /// Where points begin, if not all are tried.
    offset: usize,
    /// The order that is being tried, and the point in it: `None` while there is none.
    order: Vec<usize>,
    point: Option<usize>,
    stride: usize,
    started: bool,
    /// Priorities of this execution: who has the lowest goes first.
    priorities: HashMap<TaskId, usize>,
    next: usize,
    /// Choices so far in this execution.
    choices: usize,
}

impl OnePreemption {
    /// Some `most` executions at most, the first of each order without a preemption.
    pub fn new(threads: usize, most: usize, offset: usize) -> OnePreemption {
        OnePreemption {
            threads,
            most,
            offset,
            order: (0..threads).collect(),
            point: None,
            stride: 1,
            started: false,
            priorities: HashMap::new(),
            next: 0,
            choices: 0,
        }
    }

    /// The point after the last; `None` if the last execution ended before it would have come there.
    fn next_point(&mut self) -> Option<usize> {
        let next = match self.point {
            Some(point) => point + self.stride,
            None => {
                let orders: usize = (1..=self.threads).product();
                self.stride = (self.choices * orders).div_ceil(self.most.max(1)).max(1);
                1 + self.offset % self.stride
            }
        };
        (next <= self.choices).then_some(next)
    }
}

/// The next permutation in the order of the alphabet; false after the last.
fn advance(order: &mut [usize]) -> bool {
    let Some(pivot) = (1..order.len()).rev().find(|&at| order[at - 1] < order[at]) else { return false };
    let swap = (pivot..order.len()).rev().find(|&at| order[at] > order[pivot - 1]).expect("one is larger");
    order.swap(pivot - 1, swap);
    order[pivot..].reverse();
    true
}

impl Scheduler for OnePreemption {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.started {
            self.point = self.next_point();
            if self.point.is_none() && !advance(&mut self.order) {
                return None;
            }
        }
        self.started = true;
        self.choices = 0;
        self.priorities = (0..=self.threads)
            .map(|task| (TaskId::from(task), if task == 0 { 0 } else { 1 + self.order[task - 1] }))
            .collect();
        self.next = self.threads + 1;
        Some(Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        if runnable.len() > 1 {
            self.choices += 1;
            if let Some(current) = current
                && (is_yielding || self.point == Some(self.choices))
            {
                self.priorities.insert(current, self.next);
                self.next += 1;
            }
        }
        runnable.iter().map(|task| task.id()).min_by_key(|id| self.priorities.get(id).copied().unwrap_or(usize::MAX))
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}
