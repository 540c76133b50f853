//! Decides which runs to merge. Reads and writes nothing.
//!
//! Up to a limit of runs nothing is merged. If there is one more, the newest runs of the lowest
//! generation that has at least two runs become one run of the next generation:
//!
//! ```text
//!   limit 3:   0 0 0 0  ->  1      0 0 0 and one of 1  ->  1 1      then 0 0  ->  1 1 1
//!              1 1 1 0  ->  2      …
//! ```
//!
//! With a limit of r, entries are merged k times only after more than (r + k choose k) flushes. No
//! strategy that merges neighbours needs fewer merges.

use super::Options;
use super::run::Run;
use super::writer::Tree;
use std::ops::Range;

/// A run, as far as the decision needs it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size {
    pub(super) generation: u8,
    /// The number of entries without tombstones, which take little space.
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// Whether the run is being merged: a part of it is in another run already.
    pub(super) merging: bool,
}

impl From<&Run> for Size {
    fn from(run: &Run) -> Self {
        Size {
            generation: run.generation,
            entries: run.entries() - run.tombstones(),
            bytes: run.bytes(),
            merging: !run.from.is_empty(),
        }
    }
}

/// The runs to merge; the oldest is 0. `live` is the number of entries that are not deleted.
pub(super) fn pick(
    runs: &[Size],
    live: u64,
    tree: Tree,
    options: &Options,
) -> Option<Range<usize>> {
    // A merge that was begun is finished first: until then, old and new runs take space.
    if let Some(first) = runs.iter().position(|run| run.merging) {
        let count = runs[first..].iter().take_while(|run| run.merging).count();
        return Some(first..first + count);
    }
    if much_is_dead(runs, live, options.dead(tree)) {
        return Some(0..runs.len());
    }
    if runs.len() <= options.runs(tree) {
        return None;
    }
    let newest_up_to =
        |generation| runs.iter().rev().take_while(|run| run.generation <= generation).count();
    let count = (0..=u8::MAX).map(newest_up_to).find(|&count| count > 1)?;
    Some(runs.len() - count..runs.len())
}

/// Whether merging all runs pays, because more than 3 in 10 bytes and `besides` are deleted. Below
/// that, tables and tombstones take less than about 1.5 times the space of the valid entries.
fn much_is_dead(runs: &[Size], live: u64, besides: u64) -> bool {
    let entries: u64 = runs.iter().map(|run| run.entries).sum();
    let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
    let dead = entries.saturating_sub(live);
    let dead_bytes = u128::from(bytes) * u128::from(dead) / u128::from(entries.max(1));
    dead_bytes > u128::from(bytes) * 3 / 10 + u128::from(besides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(generation: u8) -> Size {
        Size { generation, entries: 10, bytes: 100, merging: false }
    }

    fn options() -> Options {
        Options { due_runs: 3, due_dead: 150, ..Options::default() }
    }

    fn picked(generations: &[u8]) -> Option<Range<usize>> {
        let runs: Vec<_> = generations.iter().map(|&generation| size(generation)).collect();
        pick(&runs, 10 * runs.len() as u64, Tree::Due, &options())
    }

    #[test]
    fn the_newest_of_the_lowest_generation_are_merged() {
        assert_eq!(picked(&[0, 0, 0]), None);
        assert_eq!(picked(&[0, 0, 0, 0]), Some(0..4));
        assert_eq!(picked(&[1, 0, 0, 0]), Some(1..4));
        assert_eq!(picked(&[1, 1, 0, 0]), Some(2..4));
        assert_eq!(picked(&[1, 1, 1, 0]), Some(0..4));
        assert_eq!(picked(&[2, 1, 1, 0]), Some(1..4));
        assert_eq!(picked(&[9, 2, 1, 0]), Some(2..4));
    }

    #[test]
    fn a_merge_that_was_begun_is_ended() {
        let mut runs = [size(1), size(0), size(0)];
        runs[1].merging = true;
        assert_eq!(pick(&runs, 30, Tree::Due, &options()), Some(1..2));
    }

    #[test]
    fn all_is_merged_when_much_of_it_is_dead() {
        let runs = [size(1), size(0), size(0), size(0), size(0), size(0)];
        let picked = |live, runs: &[Size]| pick(runs, live, Tree::Due, &options());
        assert_eq!(picked(27, &runs), Some(1..6));
        assert_eq!(picked(26, &runs), Some(0..6));
        assert_eq!(picked(0, &runs[..1]), None, "too little to pay");
    }

    #[test]
    fn entries_are_rarely_written_again() {
        let options = Options { due_runs: 10, ..Options::default() };
        let (mut runs, mut written) = (Vec::new(), 0);
        for flush in 1..=600_u64 {
            runs.push(size(0));
            if let Some(range) = pick(&runs, 10 * flush, Tree::Due, &options) {
                let merged = runs.splice(range.clone(), [size(0)]).collect::<Vec<_>>();
                let run = &mut runs[range.start];
                run.generation = merged.iter().map(|run| run.generation).max().unwrap() + 1;
                run.entries = merged.iter().map(|run| run.entries).sum();
                run.bytes = merged.iter().map(|run| run.bytes).sum();
                written += run.bytes;
            }
            assert!(runs.len() <= 10);
        }
        assert!(written < 3 * 600 * 100, "{written} bytes for 60,000");
    }
}
