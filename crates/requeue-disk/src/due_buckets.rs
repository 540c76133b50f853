//! Jobs in memory by time: sorted where it is needed, in heaps elsewhere.
//!
//! Most jobs are put for later, and leave the memory before they are due. Sorting them as they
//! come would be the dearest part of a put; so they are thrown into a bucket of their time, and
//! a bucket is sorted when it is the first.
//!
//! A line is not told when a job moves: whoever asks for the first says which are still there.

use requeue_jobs::JobId;
use std::collections::BTreeMap;

/// A bucket holds 2¹⁶ ms, about a minute: a day of jobs is 1300 buckets.
const BUCKET_BITS: u32 = 16;

/// What a place in line takes, at most.
pub(crate) const PLACE_BYTES: usize = 64;

/// A time in milliseconds, and the order within it.
pub(crate) type At = (u64, u64);

#[derive(Default)]
pub(crate) struct DueBuckets {
    /// By what their times have in common. None is empty.
    buckets: BTreeMap<u64, Bucket>,
}

#[derive(Default)]
struct Bucket {
    /// Once this is the first bucket: sorted, the first last. Before that, as they came.
    jobs: Vec<(At, JobId)>,
    /// What has come since it was sorted.
    late: BTreeMap<At, JobId>,
    is_sorted: bool,
}

impl DueBuckets {
    pub(crate) fn push(&mut self, at: At, id: JobId) {
        let bucket = self.buckets.entry(at.0 >> BUCKET_BITS).or_default();
        if bucket.is_sorted {
            bucket.late.insert(at, id);
        } else {
            bucket.jobs.push((at, id));
        }
    }

    /// The first that is `there`; those before it that are not are forgotten.
    pub(crate) fn first(&mut self, there: impl Fn(At, &JobId) -> bool) -> Option<(At, &JobId)> {
        while let Some(mut entry) = self.buckets.first_entry() {
            let bucket = entry.get_mut();
            bucket.sort();
            bucket.forget(&there);
            if !bucket.jobs.is_empty() || !bucket.late.is_empty() {
                break;
            }
            entry.remove();
        }
        self.buckets.first_key_value()?.1.first()
    }

    /// All that may be there and due before `end`, in no order, perhaps more than once.
    pub(crate) fn before(&self, end: u64) -> impl Iterator<Item = (At, &JobId)> {
        let buckets = self.buckets.range(..=end >> BUCKET_BITS).map(|(_, bucket)| bucket);
        let jobs = buckets.flat_map(|bucket| {
            let late = bucket.late.iter().map(|(at, id)| (*at, id));
            bucket.jobs.iter().map(|(at, id)| (*at, id)).chain(late)
        });
        jobs.filter(move |(at, _)| at.0 < end)
    }
}

impl Bucket {
    fn sort(&mut self) {
        if !self.is_sorted {
            self.jobs.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
            self.is_sorted = true;
        }
    }

    fn forget(&mut self, there: impl Fn(At, &JobId) -> bool) {
        while let Some(first) = self.late.first_entry()
            && !there(*first.key(), first.get())
        {
            first.remove();
        }
        while self.jobs.last().is_some_and(|(at, id)| !there(*at, id)) {
            self.jobs.pop();
        }
    }

    fn first(&self) -> Option<(At, &JobId)> {
        let late = self.late.first_key_value().map(|(at, id)| (*at, id));
        let sorted = self.jobs.last().map(|(at, id)| (*at, id));
        late.into_iter().chain(sorted).min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn id(n: u64) -> JobId {
        JobId::new(n.to_string()).unwrap()
    }

    #[test]
    fn the_first_is_the_first_whenever_it_came() {
        for seed in 0..20 {
            println!("seed {seed}");
            let mut random = requeue_testkit::Random::new(seed);
            let (mut line, mut model) = (DueBuckets::default(), BTreeSet::new());
            for seq in 0..2000_u64 {
                if random.below(3) > 0 {
                    let at = (random.below(1 << 20) as u64, seq);
                    line.push(at, id(seq));
                    model.insert(at);
                } else {
                    let first =
                        line.first(|at, _| model.contains(&at)).map(|(at, id)| (at, id.clone()));
                    assert_eq!(first, model.first().map(|at| (*at, id(at.1))));
                    if let Some((at, _)) = first {
                        model.remove(&at);
                    }
                    if random.below(4) == 0 {
                        let any = model.iter().nth(random.below(model.len() + 1));
                        any.copied().map(|at| model.remove(&at));
                    }
                }
                let end = random.below(1 << 20) as u64;
                let before: BTreeSet<At> =
                    line.before(end).map(|(at, _)| at).filter(|at| model.contains(at)).collect();
                assert_eq!(before, model.range(..(end, 0)).copied().collect());
            }
        }
    }
}
