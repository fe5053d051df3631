//! Questions, answered again by looking at every VMA.

use std::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::vma::tree::{GapRequest, Version};

const SPACE: u64 = 2000;

/// VMAs with holes between some of them.
fn layout() -> impl Strategy<Value = Vec<Vma>> {
    let stack = VmaFlags::GROWS_DOWN;
    let flags = prop_oneof![20 => Just(VmaFlags::READ), 1 => Just(stack), 1 => Just(VmaFlags::LOCKED)];
    vec((prop_oneof![2 => 0..3u64, 1 => 0..30u64], 1..4u64, flags), 0..400).prop_map(|parts| {
        let mut at = 0;
        let mut vmas = Vec::new();
        for (gap, len, flags) in parts {
            if at + gap + len > SPACE {
                break;
            }
            vmas.push(vma(at + gap, at + gap + len, flags));
            at += gap + len;
        }
        vmas
    })
}

fn request() -> impl Strategy<Value = GapRequest> {
    (0..SPACE, 0..SPACE, 1..40u64, 0..4u32, 0..6u64).prop_map(|(a, b, len, align, guard)| GapRequest {
        align: PAGE_SIZE << align,
        stack_guard: guard * PAGE_SIZE,
        ..GapRequest::new(page(a.min(b)), page(a.max(b)), len * PAGE_SIZE)
    })
}

/// Every place where the request fits, upwards.
fn fits(vmas: &[Vma], request: &GapRequest) -> Vec<VirtAddr> {
    let all = (0..SPACE).map(page);
    let free = |at: VirtAddr| {
        let end = at.get() + request.len;
        // As in Linux, only the next VMA's guard counts, not that of one further up.
        vmas.iter().find(|v| v.end() > at).is_none_or(|next| {
            let guard = if next.flags.contains(VmaFlags::GROWS_DOWN) { request.stack_guard } else { 0 };
            end <= next.start().get().saturating_sub(guard)
        })
    };
    all.filter(|at| at.get() % request.align == 0 && *at >= request.low && at.get() + request.len <= request.high.get())
        .filter(|at| free(*at))
        .collect()
}

/// The highest place, searched for again below a guard that is in the way (`unmapped_area_topdown`): what is beside the guard is not looked at.
fn highest(vmas: &[Vma], request: &GapRequest) -> Option<VirtAddr> {
    let mut request = *request;
    loop {
        let at = *fits(vmas, &GapRequest { stack_guard: 0, ..request }).last()?;
        let next = vmas.iter().find(|v| v.start() > at);
        let Some(next) = next.filter(|v| v.flags.contains(VmaFlags::GROWS_DOWN)) else { return Some(at) };
        let guarded = VirtAddr(next.start().get().saturating_sub(request.stack_guard));
        if guarded >= next.start().min(request.high) {
            return Some(at);
        }
        request.high = guarded;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 100 } else { 1000 }))]

    #[test]
    fn gaps_are_the_highest_and_the_lowest(vmas in layout(), requests in vec(request(), 1..10)) {
        let epoch = Epoch::new();
        let cell = VersionCell::new(Version::empty());
        cell.splice(&epoch.pin(), pages(0, SPACE), vmas.clone()).expect("memory");
        let guard = epoch.pin();
        let version = cell.load(&guard);
        for request in requests {
            prop_assert_eq!(version.gap_top_down(&request), highest(&vmas, &request));
            prop_assert_eq!(version.gap_bottom_up(&request), fits(&vmas, &request).first().copied());
        }
    }

    #[test]
    fn look_ups_and_iteration(vmas in layout(), probes in vec((0..SPACE, 0..4096u64, 1..100u64), 1..20)) {
        let epoch = Epoch::new();
        let cell = VersionCell::new(Version::empty());
        cell.splice(&epoch.pin(), pages(0, SPACE), vmas.clone()).expect("memory");
        let guard = epoch.pin();
        let version = cell.load(&guard);
        check(version);
        let range_of = |v: Option<&Vma>| v.map(|v| v.range);
        for (at, offset, len) in probes {
            let addr = VirtAddr(page(at).get() + offset);
            let next = vmas.iter().find(|v| v.end() > addr);
            let before = vmas.iter().rev().find(|v| v.end() <= addr);
            prop_assert_eq!(range_of(version.find(addr)), range_of(next.filter(|v| v.start() <= addr)));
            prop_assert_eq!(range_of(version.find_at_or_after(addr)), range_of(next));
            prop_assert_eq!(range_of(version.find_before(addr)), range_of(before));
            let neighbours = version.neighbours(addr);
            prop_assert_eq!(range_of(neighbours.before), range_of(before));
            prop_assert_eq!(range_of(neighbours.at_or_after), range_of(next));
            for flags in [VmaFlags::LOCKED, VmaFlags::GROWS_DOWN | VmaFlags::LOCKED, VmaFlags::EXEC] {
                let expected = vmas.iter().find(|v| v.end() > addr && v.flags.intersects(flags));
                prop_assert_eq!(range_of(version.find_flag(flags, addr)), range_of(expected));
            }
            let rest: Vec<_> = version.iter_from(addr).map(|v| v.range).collect();
            let expected: Vec<_> = vmas.iter().filter(|v| v.end() > addr).map(|v| v.range).collect();
            prop_assert_eq!(rest, expected);
            let range = pages(at, at + len);
            let inside: Vec<_> = version.range(range).map(|v| v.range).collect();
            let expected: Vec<_> = vmas.iter().map(|v| v.range).filter(|r| r.intersect(range).is_some()).collect();
            prop_assert_eq!(inside, expected);
        }
    }
}

#[test]
fn requests_at_the_edge_of_numbers() {
    let epoch = Epoch::new();
    let cell = comb(&epoch, 50);
    let guard = epoch.pin();
    let (none, top) = (VirtAddr(0), VirtAddr(u64::MAX));
    for version in [cell.load(&guard), Version::empty().view()] {
        for (low, high, len, align) in [
            (top, none, 1, 0),
            (none, top, u64::MAX, 3),
            (top, top, 1, 1 << 63),
            (none, none, 0, 0),
            (VirtAddr(1), top, u64::MAX - 1, 1),
        ] {
            for stack_guard in [0, u64::MAX] {
                let request = GapRequest { low, high, len, align, stack_guard };
                for found in [version.gap_top_down(&request), version.gap_bottom_up(&request)].into_iter().flatten() {
                    assert!(found >= low && found.get() + len <= high.get());
                }
            }
        }
        assert!(version.find(top).is_none());
        assert!(version.iter_from(top).next().is_none());
    }
}
