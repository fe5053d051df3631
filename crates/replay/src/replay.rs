//! A whole log through everything, with samples on the way.

use foldspace_classic::{Operation, Rule, Tally, World};
use serde::Serialize;

use crate::manager::{Census, Manager, ManagerError};
use crate::stores::Stores;
use crate::strace::{Damage, Log};
use crate::translate::{Done, Translator};

/// How a log is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What is stored to.
    pub stores: Stores,
    /// Operations between two samples.
    pub sample: u64,
    /// Bytes of Foldspace's memory.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { stores: Stores::default(), sample: 64, memory: 4 << 30 }
    }
}

/// Lines that are kept to be shown, of those that were not understood.
const SHOWN: usize = 20;
/// Pages whose mappings are looked up at each sample.
const LOOK_UPS: usize = 64;

/// A line that was passed over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Damaged {
    /// Counted from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
}

/// A mean and a maximum over the samples.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    /// Mean.
    pub mean: f64,
    /// Maximum.
    pub peak: u64,
    #[serde(skip)]
    sum: u64,
    #[serde(skip)]
    count: u64,
}

impl Figures {
    fn add(&mut self, value: u64) {
        self.sum += value;
        self.count += 1;
        self.peak = self.peak.max(value);
        self.mean = self.sum as f64 / self.count as f64;
    }
}

/// Work that all forks did together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Fork {
    /// Objects of the reverse map that they made.
    pub objects: u64,
    /// Links that they made.
    pub links: u64,
    /// Frames that they took (Foldspace; Linux takes as many as the parent has tables).
    pub frames: u64,
}

/// Who.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// No reuse.
    PerFork,
    /// Before the series.
    Before,
    /// With patch 1/2.
    FirstPatch,
    /// With both.
    BothPatches,
    /// Linux today.
    Today,
    /// Lineages.
    Foldspace,
}

/// What one of them came to.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Variant {
    /// Which.
    pub name: Name,
    /// VMAs.
    pub vmas: Figures,
    /// anon_vmas, or lineages.
    pub objects: Figures,
    /// Chain links, or places in explicit lists.
    pub links: Figures,
    /// Bytes of both; for Foldspace with the homes and links in the records of all frames in use.
    pub bytes: Figures,
    /// Page tables (Foldspace).
    pub tables: Option<Figures>,
    /// Objects that were ever made (classic).
    pub objects_made: Option<u64>,
    /// Links that were ever made (classic).
    pub links_made: Option<u64>,
    /// The longest chain of a VMA (classic).
    pub longest_chain: Option<u64>,
    /// Places looked at for a look-up of a page's mappings, and the mappings found (classic): means of the looks at samples.
    pub looked_at: Option<f64>,
    /// Mappings that there were.
    pub found: Option<f64>,
    /// Work at fork.
    pub fork: Fork,
}

/// All that is known at the end.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Lines of the log.
    pub lines: u64,
    /// Lines that were passed over.
    pub damaged: u64,
    /// The first of them.
    pub damaged_lines: Vec<Damaged>,
    /// Calls that changed an address space.
    pub calls: u64,
    /// Calls that did not.
    pub without_effect: u64,
    /// Programs started.
    pub execs: u64,
    /// Address spaces copied.
    pub forks: u64,
    /// Threads, and children in their parent's address space.
    pub clones: u64,
    /// Threads whose beginning is not in the log.
    pub orphans: u64,
    /// Operations of the stream.
    pub operations: u64,
    /// Stores among them: the model's.
    pub stores: u64,
    /// Samples taken.
    pub samples: u64,
    /// Everybody.
    pub variants: Vec<Variant>,
}

struct Classic {
    world: World,
    variant: Variant,
    looks: u64,
    looked_at: u64,
    found: u64,
}

/// A replay in progress.
pub struct Replay {
    options: Options,
    log: Log,
    translator: Translator,
    classics: Vec<Classic>,
    manager: Manager,
    foldspace: Variant,
    report: Report,
}

impl Replay {
    /// One that has seen nothing.
    ///
    /// # Errors
    /// [`ManagerError`].
    pub fn new(options: Options) -> Result<Replay, ManagerError> {
        let classics = Rule::ALL.into_iter().map(|rule| Classic {
            world: World::new(rule),
            variant: Variant::new(Name::of(rule)),
            looks: 0,
            looked_at: 0,
            found: 0,
        });
        Ok(Replay {
            options,
            log: Log::new(),
            translator: Translator::new(options.stores),
            classics: classics.collect(),
            manager: Manager::new(options.memory)?,
            foldspace: Variant::new(Name::Foldspace),
            report: Report {
                lines: 0,
                damaged: 0,
                damaged_lines: Vec::new(),
                calls: 0,
                without_effect: 0,
                execs: 0,
                forks: 0,
                clones: 0,
                orphans: 0,
                operations: 0,
                stores: 0,
                samples: 0,
                variants: Vec::new(),
            },
        })
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// [`ManagerError`]: Foldspace has no more memory. A damaged line is no error: it is noted.
    pub fn line(&mut self, text: &str) -> Result<(), ManagerError> {
        self.report.lines += 1;
        let line = self.report.lines;
        match self.log.line(text) {
            Ok(Some(event)) => {
                let done = self.translator.event(line, event);
                self.take(done)
            }
            Ok(None) => Ok(()),
            Err(damage) => {
                self.note(line, damage);
                Ok(())
            }
        }
    }

    fn take(&mut self, done: Done) -> Result<(), ManagerError> {
        for (line, damage) in done.damaged {
            self.note(line, damage);
        }
        self.apply(&done.operations)
    }

    fn note(&mut self, line: u64, damage: Damage) {
        self.report.damaged += 1;
        if self.report.damaged_lines.len() < SHOWN {
            self.report.damaged_lines.push(Damaged { line, reason: damage.to_string() });
        }
    }

    /// Takes operations that come from no log.
    ///
    /// # Errors
    /// As [`Replay::line`].
    pub fn operations(&mut self, operations: &[Operation]) -> Result<(), ManagerError> {
        self.report.forks +=
            operations.iter().filter(|operation| matches!(operation, Operation::Fork { .. })).count() as u64;
        self.apply(operations)
    }

    fn apply(&mut self, operations: &[Operation]) -> Result<(), ManagerError> {
        for operation in operations {
            let is_fork = matches!(operation, Operation::Fork { .. });
            for classic in &mut self.classics {
                let before = classic.world.made();
                // A move or growth that this rule's VMAs do not allow: the log's kernel had others.
                let _ = classic.world.apply(operation);
                if is_fork {
                    let after = classic.world.made();
                    classic.variant.fork.objects += after.0 - before.0;
                    classic.variant.fork.links += after.1 - before.1;
                }
            }
            self.manager.apply(operation)?;
            self.report.operations += 1;
            self.report.stores += u64::from(matches!(operation, Operation::Store { .. }));
            if self.report.operations.is_multiple_of(self.options.sample) {
                self.sample();
            }
        }
        Ok(())
    }

    fn sample(&mut self) {
        self.report.samples += 1;
        for classic in &mut self.classics {
            classic.sample();
        }
        let census = self.manager.census();
        let variant = &mut self.foldspace;
        variant.vmas.add(census.vmas);
        variant.objects.add(census.reverse.lineages);
        variant.links.add(census.reverse.listed_places);
        variant.bytes.add(census.reverse_bytes());
        variant.tables.get_or_insert_default().add(census.tables);
        variant.fork.frames = census.fork_frames;
    }

    /// The end of the log.
    ///
    /// # Errors
    /// As [`Replay::line`].
    pub fn finish(mut self) -> Result<Report, ManagerError> {
        let rest = self.translator.finish();
        self.take(rest)?;
        self.sample();
        let notes = self.translator.notes();
        let mut report = Report {
            calls: notes.calls,
            without_effect: notes.without_effect,
            execs: notes.execs,
            forks: self.report.forks + notes.forks,
            clones: notes.clones,
            orphans: notes.orphans,
            ..self.report
        };
        report.variants = self.classics.into_iter().map(Classic::finish).collect();
        report.variants.push(self.foldspace);
        Ok(report)
    }

    /// Verifies the published reverse maps, as far as they count right, and Foldspace. O(everything).
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        let sound = self.classics.iter().filter(|classic| [Rule::PerFork, Rule::Today].contains(&classic.world.rule()));
        for classic in sound {
            classic.world.check()?;
            classic.world.check_reverse()?;
        }
        self.manager.check()
    }
}

impl Classic {
    fn sample(&mut self) {
        let tally: Tally = self.world.tally();
        let variant = &mut self.variant;
        variant.vmas.add(tally.vmas);
        variant.objects.add(tally.anon_vmas);
        variant.links.add(tally.links);
        variant.bytes.add(tally.bytes());
        let longest = variant.longest_chain.get_or_insert_default();
        *longest = (*longest).max(tally.longest_chain);
        for page in self.world.some_pages(LOOK_UPS) {
            let lookup = self.world.look_up(page);
            self.looks += 1;
            self.looked_at += lookup.candidates.len() as u64;
            self.found += lookup.found.len() as u64;
        }
    }

    fn finish(mut self) -> Variant {
        let (objects, links) = self.world.made();
        self.variant.objects_made = Some(objects);
        self.variant.links_made = Some(links);
        if self.looks > 0 {
            self.variant.looked_at = Some(self.looked_at as f64 / self.looks as f64);
            self.variant.found = Some(self.found as f64 / self.looks as f64);
        }
        self.variant
    }
}

impl Variant {
    fn new(name: Name) -> Variant {
        Variant {
            name,
            vmas: Figures::default(),
            objects: Figures::default(),
            links: Figures::default(),
            bytes: Figures::default(),
            tables: None,
            objects_made: None,
            links_made: None,
            longest_chain: None,
            looked_at: None,
            found: None,
            fork: Fork::default(),
        }
    }
}

impl Name {
    /// What a rule is called here.
    pub(crate) fn of(rule: Rule) -> Name {
        match rule {
            Rule::PerFork => Name::PerFork,
            Rule::Reuse => Name::Before,
            Rule::CopiesDoNot => Name::FirstPatch,
            Rule::Neighbours => Name::BothPatches,
            Rule::Today => Name::Today,
        }
    }
}

impl Census {
    /// What the reverse map takes: of each record in use its home (8 bytes), of each table's the links and number of its lineage (12); 4 for each
    /// lineage; in lists 16 for each place and 32 for each frame.
    pub(crate) fn reverse_bytes(&self) -> u64 {
        (self.tables + self.data) * 8
            + self.tables * 12
            + self.reverse.lineages * 4
            + self.reverse.listed_places * 16
            + self.reverse.listed_frames * 32
    }
}
