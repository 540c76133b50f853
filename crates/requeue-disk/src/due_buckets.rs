//! Jobs in memory by time, in buckets that are sorted lazily.
//!
//! Most jobs are put for later, and leave the memory before they are due. Sorting them on insertion
//! would be the most expensive part of a put. So they are appended to a bucket for their time, and
//! a bucket is sorted when it becomes the first.
//!
//! Entries are not removed when a job moves. The caller of [`first`](DueBuckets::first) specifies
//! which entries are still valid.

use requeue_jobs::JobId;
use std::collections::BTreeMap;
use std::iter;
use std::ops::Bound;

/// A bucket covers 2¹⁶ ms, about a minute. A day has about 1300 buckets.
const BUCKET_BITS: u32 = 16;

/// The largest memory use of an entry.
pub(crate) const BUCKET_ENTRY_BYTES: usize = 64;

/// The key of a job in its list: a time in milliseconds, and the order within it.
pub(crate) type ListKey = (u64, u64);

#[derive(Default)]
pub(crate) struct DueBuckets {
    /// By the upper bits of their times. No bucket is empty.
    buckets: BTreeMap<u64, Bucket>,
}

#[derive(Default)]
struct Bucket {
    /// In insertion order; once the bucket is sorted, in descending order.
    jobs: Vec<(ListKey, JobId)>,
    /// Entries that were added after the bucket was sorted.
    late: BTreeMap<ListKey, JobId>,
    is_sorted: bool,
}

impl DueBuckets {
    pub(crate) fn push(&mut self, at: ListKey, id: JobId) {
        let bucket = self.buckets.entry(at.0 >> BUCKET_BITS).or_default();
        if bucket.is_sorted {
            bucket.late.insert(at, id);
        } else {
            bucket.jobs.push((at, id));
        }
    }

    /// The first entry for which `is_valid` holds. Entries before it are dropped.
    pub(crate) fn first(
        &mut self,
        is_valid: impl Fn(ListKey, &JobId) -> bool,
    ) -> Option<(ListKey, &JobId)> {
        while let Some(mut entry) = self.buckets.first_entry() {
            let bucket = entry.get_mut();
            bucket.sort();
            bucket.drop_invalid(&is_valid);
            if !bucket.jobs.is_empty() || !bucket.late.is_empty() {
                break;
            }
            entry.remove();
        }
        self.buckets.first_key_value()?.1.first()
    }

    /// The entries whose keys are greater than `after` and at most `through`, valid or not, in the
    /// order of their keys, or the reverse. A key may come more than once. Sorts the buckets that are
    /// read.
    pub(crate) fn range<'a>(
        &'a mut self,
        after: ListKey,
        through: ListKey,
        newest_first: bool,
    ) -> Box<dyn Iterator<Item = (ListKey, &'a JobId)> + 'a> {
        let numbers =
            after.0 >> BUCKET_BITS..(through.0 >> BUCKET_BITS) + u64::from(after < through);
        let buckets = self.buckets.range_mut(numbers);
        let entries = move |(_, bucket): (&u64, &'a mut Bucket)| {
            bucket.sort();
            bucket.range(after, through, newest_first)
        };
        match newest_first {
            false => Box::new(buckets.flat_map(entries)),
            true => Box::new(buckets.rev().flat_map(entries)),
        }
    }
}

impl Bucket {
    fn sort(&mut self) {
        if !self.is_sorted {
            self.jobs.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
            self.is_sorted = true;
        }
    }

    fn drop_invalid(&mut self, is_valid: impl Fn(ListKey, &JobId) -> bool) {
        while let Some(first) = self.late.first_entry()
            && !is_valid(*first.key(), first.get())
        {
            first.remove();
        }
        while self.jobs.last().is_some_and(|(at, id)| !is_valid(*at, id)) {
            self.jobs.pop();
        }
    }

    /// See [`DueBuckets::range`]. The bucket must be sorted, and `after` less than `through`.
    fn range(
        &self,
        after: ListKey,
        through: ListKey,
        newest_first: bool,
    ) -> impl Iterator<Item = (ListKey, &JobId)> {
        let start = self.jobs.partition_point(|(at, _)| *at > through);
        let end = self.jobs.partition_point(|(at, _)| *at > after);
        let mut sorted = self.jobs[start..end].iter();
        let mut late = self.late.range((Bound::Excluded(after), Bound::Included(through)));
        let next = move || if newest_first { sorted.next() } else { sorted.next_back() };
        let mut sorted = iter::from_fn(next).map(|(at, id)| (*at, id)).peekable();
        let next = move || if newest_first { late.next_back() } else { late.next() };
        let mut late = iter::from_fn(next).map(|(at, id)| (*at, id)).peekable();
        iter::from_fn(move || match (sorted.peek(), late.peek()) {
            (Some((a, _)), Some((b, _))) if a != b && (b > a) == newest_first => late.next(),
            (None, _) => late.next(),
            (Some(_), _) => sorted.next(),
        })
    }

    fn first(&self) -> Option<(ListKey, &JobId)> {
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
    fn first_returns_the_smallest_key_in_any_order_of_insertion() {
        for seed in 0..20 {
            println!("seed {seed}");
            let mut random = requeue_testkit::Random::new(seed);
            let (mut buckets, mut model) = (DueBuckets::default(), BTreeSet::new());
            for seq in 0..2000_u64 {
                if random.below(3) > 0 {
                    let at = (random.below(1 << 20) as u64, seq);
                    buckets.push(at, id(seq));
                    model.insert(at);
                } else {
                    let first =
                        buckets.first(|at, _| model.contains(&at)).map(|(at, id)| (at, id.clone()));
                    assert_eq!(first, model.first().map(|at| (*at, id(at.1))));
                    if let Some((at, _)) = first {
                        model.remove(&at);
                    }
                    if random.below(4) == 0 {
                        let any = model.iter().nth(random.below(model.len() + 1));
                        any.copied().map(|at| model.remove(&at));
                    }
                }
                let [a, b] =
                    [(); 2].map(|()| (random.below(1 << 20) as u64, random.below(2000) as u64));
                let (after, through) = (a.min(b), a.max(b));
                let between = buckets.range(after, through, false).map(|(at, _)| at);
                let between: Vec<ListKey> = between.filter(|at| model.contains(at)).collect();
                assert!(
                    model.range((Bound::Excluded(after), Bound::Included(through))).eq(&between)
                );
                let reverse = buckets.range(after, through, true).map(|(at, _)| at);
                let reverse: Vec<ListKey> = reverse.filter(|at| model.contains(at)).collect();
                assert!(reverse.iter().rev().eq(&between));
                assert_eq!(buckets.range(after, after, false).count(), 0);
            }
        }
    }
}
