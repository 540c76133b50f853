//! Merges several runs into one.
//!
//! A large merge is done in steps of about one file. After each step, keys of the merged part are
//! read from the new run, and the others from the old runs:
//!
//! ```text
//!   keys       a ........ m ........ z             a ........ m ........ z
//!   [1, 4]     ====================                ==========               into [1, 7]
//!   [5, 6]     ====================     step                 ==========     [1, 4] from m
//!   [7, 7]     ====================     --->                 ==========     [5, 6] from m
//!                                                            ==========     [7, 7] from m
//! ```
//!
//! So files of the old runs are removed during the merge, which needs little additional space, and
//! a merge that was stopped continues where it was.

use super::keys::{self, JobLocation, Order, Prefix};
use super::merge::{Merge, Source};
use super::pick::{DeadLimit, Size, pick};
use super::range_tombstones::RangeTombstones;
use super::run::{Run, RunCursor};
use super::version::Version;
use super::writer::{RunWriter, Tree};
use super::{Tables, table::Table};
use crate::error::DiskError;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

/// Entries between two checks of `stop`.
const LOOK: u64 = 64;

/// How to merge.
#[derive(Default)]
pub(crate) struct MergeOptions {
    /// Merges all runs also if only a little is deleted, and keeps no file longer than necessary.
    pub(crate) short_of_space: bool,
    /// What is not merged, because it failed: in the due tree, and in the ids tree.
    skipped: [Skipped; 2],
}

#[derive(Clone, Copy, PartialEq, Default)]
enum Skipped {
    #[default]
    Nothing,
    /// Merges of all runs, which free space. Others may avoid the run that cannot be read.
    FreeingSpace,
    All,
}

impl MergeOptions {
    /// Tries again what failed.
    pub(crate) fn skip_none(&mut self) {
        self.skipped = Default::default();
    }

    pub(crate) fn skip_all(&mut self) {
        self.skipped = [Skipped::All; 2];
    }

    fn skips_all(&self) -> bool {
        self.skipped == [Skipped::All; 2]
    }

    /// Whether something is not merged, because it failed.
    pub(crate) fn skips(&self) -> bool {
        self.skipped != [Skipped::Nothing; 2]
    }
}

impl Tables {
    /// Does one step of the merge that is needed most. Returns `false` if none is needed. If `stop`
    /// returns `true`, the step is abandoned, and repeated next time.
    ///
    /// After an error nothing has changed, and `options` skips the merge that failed.
    pub(crate) fn compact(
        &self,
        stop: impl Fn() -> bool,
        options: &mut MergeOptions,
    ) -> Result<bool, DiskError> {
        let _one_at_a_time = self.merging.lock().unwrap_or_else(PoisonError::into_inner);
        if options.short_of_space && !options.skips_all() && self.ledger().keeps_old_files() {
            // First, because merging needs space too.
            self.commit(Version::clone).inspect_err(|_| options.skip_all())?;
            return Ok(true);
        }
        let version = self.version();
        let Some((tree, runs)) = self.needed(&version, options) else { return Ok(false) };
        let step = Step::new(&version, tree, runs);
        let bytes: u64 = step.inputs.iter().map(|run| run.bytes()).sum();
        let large = step.goes_on || bytes > self.maker.options.linger;
        let ran = step.run(self, stop);
        // It keeps the files of the merged tables.
        drop(version);
        let merged = match ran {
            // Merged tables are removed with the manifest after the next, which may come late.
            Ok(true) if large => self.commit(Version::clone),
            ran => ran.map(drop),
        };
        merged.map(|()| true).inspect_err(|_| {
            let skipped = &mut options.skipped[tree as usize];
            *skipped = match skipped {
                Skipped::Nothing => Skipped::FreeingSpace,
                Skipped::FreeingSpace | Skipped::All => Skipped::All,
            };
        })
    }

    /// The tree and runs to merge. The ids tree comes first: its merges are short, and every put
    /// searches its runs.
    fn needed(&self, version: &Version, options: &MergeOptions) -> Option<(Tree, Range<usize>)> {
        let needed = |tree: Tree| {
            let besides = self.maker.options.dead(tree);
            let dead = match options.skipped[tree as usize] {
                Skipped::All => return None,
                Skipped::FreeingSpace => None,
                Skipped::Nothing if options.short_of_space => {
                    Some(DeadLimit { tenths: 1, besides: besides / 16 })
                }
                Skipped::Nothing => Some(DeadLimit { tenths: 3, besides }),
            };
            Some((tree, pick_tree(version, tree, &self.maker.options, dead)?))
        };
        needed(Tree::Ids).or_else(|| needed(Tree::Due))
    }
}

fn pick_tree(
    version: &Version,
    tree: Tree,
    options: &super::Options,
    dead: Option<DeadLimit>,
) -> Option<Range<usize>> {
    let runs = version.runs(tree);
    if let [run] = runs
        && run.from.is_empty()
        && run.generation > 0
        && run.clean == version.applied_range_tombstones()
    {
        // Merged since the last flush: how much of it is deleted is not known here.
        return None;
    }
    let sizes: Vec<_> = runs.iter().map(|run| Size::from(&**run)).collect();
    pick(&sizes, version.live, options.runs(tree), dead)
}

struct Step<'a> {
    version: &'a Version,
    tree: Tree,
    /// The runs to merge.
    inputs: &'a [Arc<Run>],
    /// Whether earlier steps merged a part of them.
    goes_on: bool,
    /// Whether no run is older than these, so that tombstones are not needed.
    oldest: bool,
    /// The resulting run, without tables.
    made: Run,
}

impl<'a> Step<'a> {
    fn new(version: &'a Version, tree: Tree, range: Range<usize>) -> Self {
        let runs = version.runs(tree);
        let inputs = &runs[range.clone()];
        let hull = |runs: &[Arc<Run>]| {
            let lo = runs.iter().map(|run| run.lo).min();
            let hi = runs.iter().map(|run| run.hi).max();
            lo.zip(hi).expect("a merge has runs")
        };
        let (lo, hi) = hull(inputs);
        let begun = range.start.checked_sub(1).map(|at| &runs[at]).filter(|run| run.hi >= lo);
        let made = match begun {
            Some(begun) => Run { tables: Vec::new(), ..Run::clone(begun) },
            None => Run {
                lo,
                hi,
                generation: inputs
                    .iter()
                    .map(|run| run.generation.saturating_add(1))
                    .max()
                    .unwrap_or(1),
                clean: version.applied_range_tombstones(),
                from: Vec::new(),
                tables: Vec::new(),
            },
        };
        Step {
            version,
            tree,
            inputs,
            goes_on: !inputs[0].from.is_empty(),
            oldest: range.start == usize::from(begun.is_some()),
            made,
        }
    }

    /// Returns `false` if it was stopped.
    fn run(self, tables: &Tables, stop: impl Fn() -> bool) -> Result<bool, DiskError> {
        let sources = self.inputs.iter().rev().map(|run| RunCursor::new(run.clone(), &[]));
        let mut merge = Merge::new(sources.collect(), Vec::new());
        let mut fronts = Fronts::new(&self.version.range_tombstones);
        let mut writer = RunWriter::new(&tables.maker, self.tree, tables.maker.options.file);
        let mut rest = None;
        let mut count = 0_u64;
        while merge.next()? {
            count += 1;
            if count.is_multiple_of(LOOK) && stop() {
                return Ok(false);
            }
            let source = merge.source();
            if writer.closed() > 0 {
                rest = Some(source.key().to_vec());
                break;
            }
            let mut value = source.value();
            match self.tree {
                Tree::Due => {
                    if let Some(front) = fronts.covering(source) {
                        merge.skip(&front);
                        continue;
                    }
                }
                Tree::Ids => {
                    if let Some(bytes) = value
                        && self.is_consumed(source, bytes)?
                    {
                        value = None;
                    }
                }
            }
            if value.is_some() || !self.oldest {
                writer.push(source.key(), value)?;
            }
        }
        drop(merge);
        let new = writer.finish()?;
        tables.commit(|version| {
            let mut version = version.clone();
            install(version.runs_mut(self.tree), &self.made, new, self.goes_on, rest);
            version.trim();
            version.drop_range_tombstones();
            version
        })?;
        writer.keep();
        Ok(true)
    }

    fn is_consumed(&self, source: &RunCursor, value: &[u8]) -> Result<bool, DiskError> {
        let kind = source.key().first_chunk().map(|kind| u32::from_be_bytes(*kind));
        let (Some(kind), Some(location)) = (kind, JobLocation::decode(value)) else {
            return Err(source.damage("the entry has an invalid key"));
        };
        Ok(self.version.is_deleted(kind, &location))
    }
}

/// Replaces tables by the `new` tables that they were merged into, as the run `made`. From the key
/// `rest` on, the old runs are still used.
fn install(
    runs: &mut Vec<Arc<Run>>,
    made: &Run,
    new: Vec<Arc<Table>>,
    goes_on: bool,
    rest: Option<Vec<u8>>,
) {
    // Tables, or whole runs, may have been removed during the merge.
    let start = runs.partition_point(|run| run.hi < made.lo);
    let count = runs[start..].iter().take_while(|run| run.lo <= made.hi).count();
    let old: Vec<_> = runs.drain(start..start + count).collect();
    let (begun, inputs): (Vec<_>, Vec<_>) =
        old.into_iter().partition(|run| goes_on && run.from.is_empty());
    let tables = begun.iter().flat_map(|run| run.tables.iter().cloned()).chain(new).collect();
    let mut put = vec![Run { tables, ..made.clone() }];
    for run in inputs {
        let Some(rest) = &rest else { continue };
        let tables = run.tables.iter().filter(|table| table.largest >= *rest).cloned().collect();
        put.push(Run { from: rest.clone(), tables, ..Run::clone(&run) });
    }
    put.retain(|run| !run.tables.is_empty());
    runs.splice(start..start, put.into_iter().map(Arc::new));
}

/// The key below which each list is deleted by range tombstones, for the runs of one merge.
struct Fronts<'a> {
    range_tombstones: &'a RangeTombstones,
    /// The last result, for which run and prefix.
    last: Vec<(u64, Prefix, Order)>,
}

impl<'a> Fronts<'a> {
    fn new(range_tombstones: &'a RangeTombstones) -> Self {
        Fronts { range_tombstones, last: Vec::new() }
    }

    /// The key to continue from, if the current entry of the source is deleted.
    fn covering(&mut self, source: &RunCursor) -> Option<[u8; keys::DUE_KEY]> {
        let (prefix, order) = keys::split(source.key())?;
        let hi = source.run().hi;
        let front = match self.last.iter_mut().find(|(run, _, _)| *run == hi) {
            Some((_, last, front)) => {
                if *last != prefix {
                    *last = prefix;
                    *front = self.range_tombstones.at(&prefix, hi).copied().unwrap_or_default();
                }
                *front
            }
            None => {
                let front = self.range_tombstones.at(&prefix, hi).copied().unwrap_or_default();
                self.last.push((hi, prefix, front));
                front
            }
        };
        (order < front).then(|| keys::due_key(prefix, front))
    }
}
