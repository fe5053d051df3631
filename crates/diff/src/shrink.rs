//! The shortest sequence that still shows a difference: operations are dropped, arguments made simple, as long as it stays.

use crate::op::{Call, Op};
use crate::window::{BASE, MIDDLE, PAGE};

/// The smallest sequence that can be had from `ops` for which `shows` says yes. `shows` must say yes for `ops`, and must not depend on anything else.
pub fn shrink(ops: &[Op], mut shows: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    let mut best = ops.to_vec();
    loop {
        let before = best.clone();
        drop_parts(&mut best, &mut shows);
        simplify(&mut best, &mut shows);
        if best == before {
            return best;
        }
    }
}

/// Drops as many operations as can be: halves first, then smaller parts, from the end.
fn drop_parts(best: &mut Vec<Op>, shows: &mut impl FnMut(&[Op]) -> bool) {
    let mut part = best.len().div_ceil(2);
    while part > 0 {
        let mut end = best.len();
        while end > 0 {
            let start = end.saturating_sub(part);
            let mut tried = best.clone();
            tried.drain(start..end);
            if shows(&tried) {
                *best = tried;
            }
            end = start;
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
}

/// Makes arguments simpler, one at a time.
fn simplify(best: &mut Vec<Op>, shows: &mut impl FnMut(&[Op]) -> bool) {
    for at in 0..best.len() {
        for simpler in simpler(best[at]) {
            let mut tried = best.clone();
            tried[at] = simpler;
            if best[at] != simpler && shows(&tried) {
                *best = tried;
            }
        }
    }
}

/// What might do as well, simplest first.
fn simpler(op: Op) -> Vec<Op> {
    let mut found = Vec::new();
    if op.process != 0 {
        found.push(Op { process: 0, ..op });
    }
    let mut add = |call: Call| found.push(Op { call, ..op });
    match op.call {
        Call::Map { addr, len, prot, flags, fd, offset } => {
            for bit in (5..22).map(|bit| 1 << bit).filter(|bit| flags & bit != 0) {
                add(Call::Map { addr, len, prot, flags: flags & !bit, fd, offset });
            }
            if flags & 0x20 != 0 {
                add(Call::Map { addr, len, prot, flags, fd: -1, offset });
            }
            add(Call::Map { addr, len, prot, flags, fd, offset: 0 });
            add(Call::Map { addr, len, prot: 3, flags, fd, offset });
            lengths(len).for_each(|len| add(Call::Map { addr, len, prot, flags, fd, offset }));
            addresses(addr).for_each(|addr| add(Call::Map { addr, len, prot, flags, fd, offset }));
        }
        Call::Unmap { addr, len } => {
            lengths(len).for_each(|len| add(Call::Unmap { addr, len }));
            addresses(addr).for_each(|addr| add(Call::Unmap { addr, len }));
        }
        Call::Protect { addr, len, prot } => {
            for prot in [0, 1, 3] {
                add(Call::Protect { addr, len, prot });
            }
            lengths(len).for_each(|len| add(Call::Protect { addr, len, prot }));
            addresses(addr).for_each(|addr| add(Call::Protect { addr, len, prot }));
        }
        Call::Remap { addr, old_len, new_len, flags, target } => {
            if flags & 6 == 0 {
                add(Call::Remap { addr, old_len, new_len, flags, target: 0 });
            }
            lengths(old_len).for_each(|len| add(Call::Remap { addr, old_len: len, new_len: len, flags, target }));
            lengths(old_len).for_each(|old_len| add(Call::Remap { addr, old_len, new_len, flags, target }));
            lengths(new_len).for_each(|new_len| add(Call::Remap { addr, old_len, new_len, flags, target }));
        }
        Call::Advise { addr, len, advice } => {
            lengths(len).for_each(|len| add(Call::Advise { addr, len, advice }));
            addresses(addr).for_each(|addr| add(Call::Advise { addr, len, advice }));
        }
        Call::Lock { addr, len } => lengths(len).for_each(|len| add(Call::Lock { addr, len })),
        Call::Unlock { addr, len } => lengths(len).for_each(|len| add(Call::Unlock { addr, len })),
        Call::Lock2 { addr, len, flags } => {
            add(Call::Lock { addr, len });
            lengths(len).for_each(|len| add(Call::Lock2 { addr, len, flags }));
        }
        Call::Store { addr, value, pages } => {
            add(Call::Store { addr, value, pages: 1 });
            add(Call::Store { addr, value: 1, pages });
            add(Call::Store { addr: addr & !(PAGE - 1), value, pages });
        }
        Call::Load { addr, pages } => {
            add(Call::Load { addr, pages: 1 });
            add(Call::Load { addr: addr & !(PAGE - 1), pages });
        }
        Call::Create { file, read_only, .. } => add(Call::Create { file, flags: 3, read_only }),
        Call::WriteFile { file, offset, value } => {
            add(Call::WriteFile { file, offset, value: 1 });
            add(Call::WriteFile { file, offset: 0, value });
            add(Call::Truncate { file, len: offset.saturating_add(8) });
        }
        Call::Truncate { file, .. } => add(Call::Truncate { file, len: 0 }),
        Call::LookDeep => add(Call::Look),
        _ => {}
    }
    found
}

fn lengths(len: u64) -> impl Iterator<Item = u64> {
    let pages = len / PAGE;
    [PAGE, 2 * PAGE, pages / 2 * PAGE, pages.saturating_sub(1) * PAGE, len.next_multiple_of(PAGE)]
        .into_iter()
        .filter(move |shorter| (*shorter < len || !len.is_multiple_of(PAGE)) && *shorter > 0 && len < 1 << 46)
}

/// Nearer to the middle, where sequences happen.
fn addresses(addr: u64) -> impl Iterator<Item = u64> {
    [MIDDLE, addr.saturating_sub(PAGE), addr & !(PAGE - 1)]
        .into_iter()
        .filter(move |nearer| (BASE..=addr).contains(nearer))
}
