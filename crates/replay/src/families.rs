//! Families of processes with which a reverse map grows: a chain of forks, and many children of one parent.

use foldspace::VirtAddr;
use foldspace::addr::PAGE_SHIFT;
use foldspace_classic::{Area, Backing, Operation, Process, Rule, VmaFlags, World};
use serde::Serialize;

use crate::manager::{Manager, ManagerError};
use crate::replay::Name;

/// Pages that all have from the first of a family.
const PAGES: u64 = 256;
const FIRST: u64 = 0x1000;
const AREA: Area = Area { start: FIRST, end: FIRST + PAGES };
/// Children of one parent store to one of so many pages.
const OWN: u64 = 8;
/// The parent stores to this one when all children are there.
const PARENTS: u64 = FIRST + PAGES - 1;
/// What nobody has stored to since the first fork.
const SHARED: u64 = FIRST + PAGES / 2;

/// What finding a page's mappings takes.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct LookUp {
    /// Places that are looked at for one page, mean: VMAs, or tables of the last level.
    pub looked_at: f64,
    /// The most for one page.
    pub most: u64,
    /// Mappings that there are of one, mean.
    pub found: f64,
}

impl LookUp {
    fn of(looks: impl IntoIterator<Item = (u64, u64)>) -> LookUp {
        let (mut looked_at, mut found, mut most, mut count) = (0, 0, 0, 0);
        for (looked, right) in looks {
            (looked_at, found, most, count) = (looked_at + looked, found + right, most.max(looked), count + 1);
        }
        let mean = |sum: u64| sum as f64 / f64::from(count.max(1));
        LookUp { looked_at: mean(looked_at), most, found: mean(found) }
    }
}

/// What a reverse map is at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Size {
    /// Whose.
    pub name: Name,
    /// Forks so far.
    pub forks: u32,
    /// anon_vmas, or lineages.
    pub objects: u64,
    /// Chain links, or places in explicit lists.
    pub links: u64,
    /// Bytes of both; for Foldspace with the homes and links in the records of all frames in use.
    pub bytes: u64,
    /// Page tables (Foldspace).
    pub tables: Option<u64>,
    /// Objects and links that the last fork made.
    pub by_last_fork: u64,
}

/// A chain of forks after so many: each child forks, its parent exits, each stores to two pages.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Link {
    /// What there is.
    #[serde(flatten)]
    pub size: Size,
    /// Any page of the only one that is left.
    pub page: LookUp,
}

/// Children of one parent, each with a page of its own, and then the parent with one.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Brood {
    /// What there is.
    #[serde(flatten)]
    pub size: Size,
    /// A child's own page.
    pub childs: LookUp,
    /// The page that the parent has stored to after the forks.
    pub parents: LookUp,
    /// A page that all have still.
    pub shared: LookUp,
}

/// The published reverse maps and Foldspace, with one family.
struct Family {
    worlds: Vec<World>,
    manager: Manager,
    /// Of each world, what was made until now, and by the last fork.
    made: Vec<(u64, u64)>,
    forks: u32,
}

impl Family {
    /// The first of a family: it has stored to all of its pages.
    fn new(memory: u64) -> Result<Family, ManagerError> {
        let worlds: Vec<World> = Rule::ALL.into_iter().map(World::new).collect();
        let mut family = Family { made: vec![(0, 0); worlds.len()], worlds, manager: Manager::new(memory)?, forks: 0 };
        let (process, flags) = (Process(0), VmaFlags::READ | VmaFlags::WRITE);
        family.apply(Operation::Start { process })?;
        family.apply(Operation::Map { process, area: AREA, backing: Backing::Anonymous, flags })?;
        (AREA.start..AREA.end).try_for_each(|page| family.apply(Operation::Store { process, page }))?;
        Ok(family)
    }

    fn apply(&mut self, operation: Operation) -> Result<(), ManagerError> {
        for world in &mut self.worlds {
            world.apply(&operation).expect("the stream is in order");
        }
        self.manager.apply(&operation)
    }

    fn fork(&mut self, parent: u32, child: u32) -> Result<(), ManagerError> {
        let all = |world: &World| world.made().0 + world.made().1;
        let before: Vec<u64> = self.worlds.iter().map(all).collect();
        self.apply(Operation::Fork { parent: Process(parent), child: Process(child) })?;
        self.made = before.into_iter().zip(&self.worlds).map(|(before, world)| (before, all(world))).collect();
        self.forks += 1;
        Ok(())
    }

    fn store(&mut self, process: u32, page: u64) -> Result<(), ManagerError> {
        self.apply(Operation::Store { process: Process(process), page })
    }

    /// Everybody's size, Foldspace last.
    fn sizes(&self) -> Vec<Size> {
        let forks = self.forks;
        let mut sizes: Vec<Size> = self
            .worlds
            .iter()
            .zip(&self.made)
            .map(|(world, (before, after))| {
                let (name, tally) = (Name::of(world.rule()), world.tally());
                let (objects, links, bytes) = (tally.anon_vmas, tally.links, tally.bytes());
                Size { name, forks, objects, links, bytes, tables: None, by_last_fork: after - before }
            })
            .collect();
        let census = self.manager.census();
        sizes.push(Size {
            name: Name::Foldspace,
            forks,
            objects: census.reverse.lineages,
            links: census.reverse.listed_places,
            bytes: census.reverse_bytes(),
            tables: Some(census.tables),
            by_last_fork: 0,
        });
        sizes
    }

    /// What finding the pages that are at these places takes, for each reverse map in the order of [`Family::sizes`].
    fn look_ups(&self, places: &[(u32, u64)]) -> Vec<LookUp> {
        let classic = self.worlds.iter().map(|world| {
            LookUp::of(places.iter().filter_map(|(process, page)| {
                let lookup = world.look_up(world.page_at(Process(*process), *page)?);
                Some((lookup.candidates.len() as u64, lookup.found.len() as u64))
            }))
        });
        classic.chain([self.look_ups_here(places)]).collect()
    }

    fn look_ups_here(&self, places: &[(u32, u64)]) -> LookUp {
        let (host, memory) = (self.manager.host(), self.manager.host().memory());
        LookUp::of(places.iter().filter_map(|(process, page)| {
            let space = self.manager.space_of(Process(*process))?;
            let frame = host.translate(space, VirtAddr(page << PAGE_SHIFT)).ok()?.frame;
            let mut found = 0;
            memory.mappings(frame, |_, _| found += 1).ok()?;
            Some((memory.visited_tables(frame), found))
        }))
    }
}

/// A chain of `forks` forks: each child forks and its parent exits, each stores to two pages. What each reverse map is after 1, 10, 100, ... forks, and at the
/// end. `step` is called after each fork. `memory`: bytes of Foldspace's machine.
///
/// # Errors
/// [`ManagerError`].
pub fn chain(forks: u32, memory: u64, mut step: impl FnMut()) -> Result<Vec<Link>, ManagerError> {
    let mut family = Family::new(memory)?;
    let (mut moments, mut next) = (Vec::new(), 1);
    for child in 1..=forks {
        family.fork(child - 1, child)?;
        family.apply(Operation::Exit { process: Process(child - 1) })?;
        for page in [u64::from(child) % PAGES, u64::from(child) * 7 % PAGES] {
            family.store(child, FIRST + page)?;
        }
        step();
        if child == next || child == forks {
            next *= 10;
            let places: Vec<(u32, u64)> = (AREA.start..AREA.end).map(|page| (child, page)).collect();
            let (sizes, pages) = (family.sizes(), family.look_ups(&places));
            moments.extend(sizes.into_iter().zip(pages).map(|(size, page)| Link { size, page }));
        }
    }
    Ok(moments)
}

/// `count` children of one parent; each stores to a page, and then the parent to one. `step` is called after each fork. `memory`: as for [`chain`].
///
/// # Errors
/// [`ManagerError`].
pub fn children(count: u32, memory: u64, mut step: impl FnMut()) -> Result<Vec<Brood>, ManagerError> {
    let mut family = Family::new(memory)?;
    let own = |child: u32| (child, FIRST + u64::from(child) % OWN);
    for child in 1..=count {
        family.fork(0, child)?;
        step();
    }
    for (child, page) in (1..=count).map(own) {
        family.store(child, page)?;
    }
    family.store(0, PARENTS)?;
    let sizes = family.sizes();
    let childs = family.look_ups(&(1..=count).map(own).collect::<Vec<_>>());
    let (parents, shared) = (family.look_ups(&[(0, PARENTS)]), family.look_ups(&[(0, SHARED)]));
    let looks = childs.into_iter().zip(parents).zip(shared);
    Ok(sizes
        .into_iter()
        .zip(looks)
        .map(|(size, ((childs, parents), shared))| Brood { size, childs, parents, shared })
        .collect())
}
