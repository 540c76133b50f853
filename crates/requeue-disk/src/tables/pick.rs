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

use super::run::Run;
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

/// How much may be deleted before all runs are merged: so many tenths, and so many bytes besides.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeadLimit {
    pub(super) tenths: u64,
    pub(super) besides: u64,
}

/// The runs to merge; the oldest is 0. `live` is the number of entries that are not deleted. Up to
/// `limit` runs nothing is merged, unless more than `dead` is deleted.
pub(super) fn pick(
    runs: &[Size],
    live: u64,
    limit: usize,
    dead: Option<DeadLimit>,
) -> Option<Range<usize>> {
    // A merge that was begun is finished first: until then, old and new runs take space.
    if let Some(first) = runs.iter().position(|run| run.merging) {
        let count = runs[first..].iter().take_while(|run| run.merging).count();
        return Some(first..first + count);
    }
    if dead.is_some_and(|dead| much_is_dead(runs, live, dead)) {
        return Some(0..runs.len());
    }
    if runs.len() <= limit {
        return None;
    }
    let newest_up_to =
        |generation| runs.iter().rev().take_while(|run| run.generation <= generation).count();
    let count = (0..=u8::MAX).map(newest_up_to).find(|&count| count > 1)?;
    Some(runs.len() - count..runs.len())
}

/// Whether merging all runs pays. Below 3 tenths, tables and tombstones take less than about 1.5
/// times the space of the valid entries.
fn much_is_dead(runs: &[Size], live: u64, DeadLimit { tenths, besides }: DeadLimit) -> bool {
    let entries: u64 = runs.iter().map(|run| run.entries).sum();
    let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
    let dead = entries.saturating_sub(live);
    let dead_bytes = u128::from(bytes) * u128::from(dead) / u128::from(entries.max(1));
    dead_bytes > u128::from(bytes) * u128::from(tenths) / 10 + u128::from(besides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(generation: u8) -> Size {
        Size { generation, entries: 10, bytes: 100, merging: false }
    }

    const DEAD: Option<DeadLimit> = Some(DeadLimit { tenths: 3, besides: 150 });

    fn picked(generations: &[u8]) -> Option<Range<usize>> {
        let runs: Vec<_> = generations.iter().map(|&generation| size(generation)).collect();
        pick(&runs, 10 * runs.len() as u64, 3, DEAD)
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
        assert_eq!(pick(&runs, 30, 3, DEAD), Some(1..2));
    }

    #[test]
    fn all_is_merged_when_much_of_it_is_dead() {
        let runs = [size(1), size(0), size(0), size(0), size(0), size(0)];
        let picked = |live, runs: &[Size]| pick(runs, live, 3, DEAD);
        assert_eq!(picked(27, &runs), Some(1..6));
        assert_eq!(picked(26, &runs), Some(0..6));
        assert_eq!(picked(0, &runs[..1]), None, "too little to pay");
        assert_eq!(pick(&runs, 26, 3, None), Some(1..6), "that has failed");
        let short = Some(DeadLimit { tenths: 1, besides: 9 });
        assert_eq!(pick(&runs[..2], 18, 3, DEAD), None);
        assert_eq!(pick(&runs[..2], 18, 3, short), None);
        assert_eq!(pick(&runs[..2], 17, 3, short), Some(0..2), "space is short");
    }

    #[test]
    fn entries_are_rarely_written_again() {
        let (mut runs, mut written) = (Vec::new(), 0);
        for flush in 1..=600_u64 {
            runs.push(size(0));
            if let Some(range) = pick(&runs, 10 * flush, 10, DEAD) {
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
