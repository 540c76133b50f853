//! Splits batches into script calls. A call has jobs of one kind, and no job twice.

use crate::reply::unexpected;
use futures_util::future::join_all;
use requeue_jobs::{JobId, Kind, StoreError};
use std::collections::HashSet;
use std::mem;

/// Max. entries per call: the server is blocked while a script runs.
const MAX_ENTRIES: usize = 250;
/// Max. bytes of contents, results and errors per call.
const MAX_BYTES: usize = 1 << 20;

/// An entry of a batch.
pub(crate) trait Entry {
    fn kind(&self) -> &Kind;
    fn id(&self) -> &JobId;
    fn bytes(&self) -> usize;
}

/// Runs a batch as script calls, and returns one result per entry, in their order. Calls for
/// different kinds run concurrently, and so do calls for one kind that have no job in common. If a
/// call fails, each of its entries gets the error.
pub(crate) async fn run_batch<T: Entry, A, E: From<StoreError>, F>(
    entries: Vec<T>,
    call: impl Fn(Kind, Vec<T>) -> F,
) -> Vec<Result<A, E>>
where
    F: Future<Output = Result<Vec<Result<A, E>>, StoreError>>,
{
    let call = &call;
    let mut results: Vec<Option<Result<A, E>>> = entries.iter().map(|_| None).collect();
    let kinds = by_kind(entries).into_iter().map(async |(kind, entries)| {
        let mut of_kind = Vec::new();
        for wave in waves(entries) {
            let calls = wave.into_iter().map(async |numbered| {
                let (numbers, entries): (Vec<_>, Vec<_>) = numbered.into_iter().unzip();
                let failed =
                    |error: StoreError| numbers.iter().map(|_| Err(error.clone().into())).collect();
                let results = call(kind.clone(), entries).await.unwrap_or_else(failed);
                numbers.into_iter().zip(results).collect::<Vec<_>>()
            });
            of_kind.extend(join_all(calls).await.into_iter().flatten());
        }
        of_kind
    });
    for (number, result) in join_all(kinds).await.into_iter().flatten() {
        results[number] = Some(result);
    }
    let missing = || Err(unexpected("an entry has no result").into());
    results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
}

/// Entries with their positions in the batch.
type Numbered<T> = Vec<(usize, T)>;

fn by_kind<T: Entry>(entries: Vec<T>) -> Vec<(Kind, Numbered<T>)> {
    let mut kinds: Vec<(Kind, Numbered<T>)> = Vec::new();
    for (number, entry) in entries.into_iter().enumerate() {
        // Most batches have one kind, and few have many.
        match kinds.iter_mut().find(|(kind, _)| kind == entry.kind()) {
            Some((_, entries)) => entries.push((number, entry)),
            None => kinds.push((entry.kind().clone(), vec![(number, entry)])),
        }
    }
    kinds
}

/// Splits the entries of a kind into calls. The calls of a wave have no job in common and run concurrently; the
/// waves run one after the other.
fn waves<T: Entry>(entries: Numbered<T>) -> Vec<Vec<Numbered<T>>> {
    let (mut waves, mut wave, mut call) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ids, mut bytes) = (HashSet::new(), 0);
    for (number, entry) in entries {
        let is_twice = ids.contains(entry.id());
        let is_full = call.len() == MAX_ENTRIES || bytes + entry.bytes() > MAX_BYTES;
        if is_twice || is_full && !call.is_empty() {
            wave.push(mem::take(&mut call));
            bytes = 0;
        }
        if is_twice {
            waves.push(mem::take(&mut wave));
            ids.clear();
        }
        ids.insert(entry.id().clone());
        bytes += entry.bytes();
        call.push((number, entry));
    }
    wave.push(call);
    waves.push(wave);
    // The first call runs alone. If it has to load the script or create the kind, the next call
    // would overtake it and get lower generations.
    let others = waves[0].split_off(1);
    if !others.is_empty() {
        waves.insert(1, others);
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_testkit::block_on;
    use std::cell::RefCell;

    #[derive(Debug, PartialEq)]
    struct Thing(Kind, JobId, usize);

    impl Entry for Thing {
        fn kind(&self) -> &Kind {
            &self.0
        }
        fn id(&self) -> &JobId {
            &self.1
        }
        fn bytes(&self) -> usize {
            self.2
        }
    }

    fn thing(kind: &str, id: &str, bytes: usize) -> Thing {
        Thing(Kind::new(kind).expect("a kind"), JobId::new(id).expect("an id"), bytes)
    }

    /// The positions of the entries, by call and wave.
    fn numbers(entries: Numbered<Thing>) -> Vec<Vec<Vec<usize>>> {
        let of_call = |call: Numbered<_>| call.into_iter().map(|(number, _)| number).collect();
        let of_wave = |wave: Vec<_>| wave.into_iter().map(of_call).collect();
        waves(entries).into_iter().map(of_wave).collect()
    }

    #[test]
    fn no_wave_has_a_job_twice_or_another_kinds() {
        let things = ["a", "b", "a", "c", "a"].map(|id| thing("mail", id, 1));
        let mut things = Vec::from(things);
        things.insert(1, thing("sms", "a", 1));
        let [(_, mail), (_, sms)] = by_kind(things).try_into().expect("two kinds");
        assert_eq!(numbers(mail), [[vec![0, 2]], [vec![3, 4]], [vec![5]]]);
        assert_eq!(numbers(sms), [[[1]]]);
    }

    #[test]
    fn calls_are_small_but_have_one_job_at_least() {
        let sizes = [MAX_BYTES + 1, 1, MAX_BYTES - 1, 1];
        let things = sizes.iter().enumerate().map(|(n, size)| thing("k", &n.to_string(), *size));
        let numbered = things.enumerate().collect();
        assert_eq!(numbers(numbered), [vec![vec![0]], vec![vec![1, 2], vec![3]]]);
        let many = (0..=MAX_ENTRIES).map(|n| (n, thing("k", &n.to_string(), 0))).collect();
        assert_eq!(waves(many).len(), 2);
    }

    #[test]
    fn the_first_call_is_not_overtaken_where_it_has_to_ask_twice() {
        let done = RefCell::new(Vec::new());
        let call = async |_: Kind, things: Vec<Thing>| {
            let number: usize = things[0].1.as_str().parse().expect("its number");
            if number == 0 {
                tokio::task::yield_now().await;
            }
            done.borrow_mut().push(number);
            Ok(things.iter().map(|_| Ok::<_, StoreError>(number)).collect())
        };
        let things = (0..4).map(|n| thing("k", &n.to_string(), MAX_BYTES)).collect();
        let results = block_on(run_batch(things, call));
        assert_eq!(results, [0, 1, 2, 3].map(Ok));
        assert_eq!(done.take(), [0, 1, 2, 3]);
    }
}
