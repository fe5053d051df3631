//! Frames: that they run out in good order, and blocks of them for the embedder.

use foldspace::AddressSpace;
use foldspace::VirtAddr;
use foldspace::space::ForkMode;
use foldspace_hosted::Host;

use crate::cost::{filled, map};
use crate::model::PAGE;

#[test]
fn an_embedder_gets_contiguous_frames_back_and_forth() {
    let host = Host::new(8 << 20).unwrap();
    let before = host.memory().stats();
    let blocks: Vec<_> = (0..8).map(|order| (host.memory().alloc_contiguous(order).unwrap(), order)).collect();
    for (frame, order) in &blocks {
        assert_eq!(frame.address() % (PAGE << order), 0, "aligned to its size");
    }
    assert_eq!(host.memory().stats().free, before.free - 255);
    for (frame, order) in blocks {
        host.memory().free_contiguous(frame, order);
    }
    assert_eq!(host.memory().stats(), before);
}

#[test]
fn running_out_is_said_and_survived() {
    let (host, space, mut processor) = filled(4 << 20, &[]);
    let before = host.memory().stats();
    map(&space, 0x4000_0000, 64 << 20);
    let mut stored = 0;
    let refusal = loop {
        match processor.store(VirtAddr(0x4000_0000 + stored * PAGE), &stored.to_le_bytes()) {
            Ok(()) => stored += 1,
            Err(error) => break error.refusal,
        }
    };
    assert_eq!(refusal, foldspace_hosted::Refusal::Fault(foldspace::space::Fault::OutOfMemory));
    assert!(stored * 100 >= before.free * 98, "nearly every frame holds a page: {stored} of {}", before.free);
    for page in 0..stored {
        let mut seen = [0; 8];
        processor.load(VirtAddr(0x4000_0000 + page * PAGE), &mut seen).unwrap();
        assert_eq!(u64::from_le_bytes(seen), page);
    }
    host.memory().check(&[&space], &[]).unwrap();
    drop(processor);
    drop(space);
    host.memory().reclaim();
    assert_eq!(host.memory().stats().free, before.free + 1, "all back, the root too");
}

/// Forks until nothing is left: the last one says so, and all who live still work and go.
#[test]
fn forks_without_end_end_with_an_error() {
    let (host, space, mut processor) = filled(4 << 20, &[(0x4000_0000, 600)]);
    let before = host.memory().stats();
    for mode in [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy] {
        space.set_fork_mode(mode);
        let mut children = Vec::new();
        let error = loop {
            match space.fork() {
                Ok(child) => children.push(child),
                Err(error) => break error,
            }
        };
        assert_eq!(error, foldspace::Error::OutOfMemory);
        let living: Vec<&AddressSpace> = children.iter().map(|child| &**child).chain([&*space]).collect();
        host.memory().check(&living, &[]).unwrap();
        for child in children.iter().step_by(10) {
            processor.activate(child);
            let mut seen = [0; 8];
            processor.load(VirtAddr(0x4000_0000 + 599 * PAGE), &mut seen).unwrap();
            assert_eq!(u64::from_le_bytes(seen), 599);
        }
        processor.activate(&space);
        let half = children.len() / 2;
        children.truncate(half);
        processor.store(VirtAddr(0x4000_0000), b"x").unwrap();
        drop(children);
        host.memory().reclaim();
        // The parent's tables are its own again, or were never anybody else's.
        assert_eq!(host.memory().stats(), before, "{mode:?}");
    }
}

/// Frames for the embedder: every block is aligned, none overlaps another or a page, and what is given back makes large blocks again.
#[test]
fn blocks_do_not_overlap_and_grow_together_again() {
    let (host, space, mut processor) = filled(16 << 20, &[(0x4000_0000, 1000)]);
    let memory = host.memory();
    let mut taken = std::collections::BTreeMap::new();
    let mut seed = 12345_u64;
    loop {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let order = (seed >> 60) as u8 % 8;
        let Ok(first) = memory.alloc_contiguous(order) else { break };
        assert_eq!(first.0 % (1 << order), 0);
        let before = taken.range(..=first.0).next_back().map(|(start, order): (&u32, &u8)| start + (1 << order));
        assert!(before.is_none_or(|end| end <= first.0), "overlaps the block below");
        let after = taken.range(first.0..).next().map(|(start, _)| *start);
        assert!(after.is_none_or(|start| first.0 + (1 << order) <= start), "overlaps the block above");
        // SAFETY: the block is ours.
        unsafe { memory.frame_ptr(first).write_bytes(0xee, PAGE as usize) };
        taken.insert(first.0, order);
    }
    for page in 0..1000 {
        let mut seen = [0; 8];
        processor.load(VirtAddr(0x4000_0000 + page * PAGE), &mut seen).unwrap();
        assert_eq!(u64::from_le_bytes(seen), page, "a block overlaps a page");
    }
    memory.check(&[&space], &[]).unwrap();
    drop(processor);
    drop(space);
    for (first, order) in taken {
        memory.free_contiguous(foldspace::Frame(first), order);
    }
    memory.reclaim();
    let large: Vec<_> = std::iter::from_fn(|| memory.alloc_contiguous(10).ok()).collect();
    assert!(large.len() >= 3, "of 4 blocks of 4 MiB one holds the records: {}", large.len());
    for first in large {
        memory.free_contiguous(first, 10);
    }
    assert_eq!(memory.stats(), Host::new(16 << 20).unwrap().memory().stats());
}
