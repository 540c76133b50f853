//! Claims that wait, in a line: one job wakes one claim, and not all of them.
//!
//! ```text
//!   claim gets nothing --> stands in line --> its turn --> claims --> got something: the next two
//!                               |                            |        may have theirs
//!                               +-- goes away                +-- got nothing: all wait again
//! ```
//!
//! There is a line for each set of kinds that claims wait for. While it is not empty, one task
//! asks the store to wait. With ten thousand claims in line, a job that falls due costs two or three
//! looks at the store, and not ten thousand.

use requeue_jobs::{Kind, Store, StoreError};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// How long the store is asked to wait. It is asked again then.
const ROUND: Duration = Duration::from_secs(60);

/// All lines of a store.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lines: HashMap<Vec<Kind>, ClaimQueue>,
    /// Places that were given out, in all lines.
    numbered: u64,
}

#[derive(Default)]
struct ClaimQueue {
    /// Those who wait, by their places: the longest first.
    waiting: BTreeMap<u64, oneshot::Sender<Result<Turn, StoreError>>>,
    /// The last of them has gone away.
    empty: Arc<Notify>,
}

/// A place in line, given up when dropped.
struct QueuedClaim<'a> {
    lines: &'a Lines,
    kinds: &'a [Kind],
    number: u64,
}

impl Drop for QueuedClaim<'_> {
    fn drop(&mut self) {
        let mut state = self.lines.lock();
        // Who had a turn is in it no longer.
        if let Some(line) = state.lines.get_mut(self.kinds)
            && line.waiting.remove(&self.number).is_some()
            && line.waiting.is_empty()
        {
            line.empty.notify_one();
        }
    }
}

/// Who drives a line. A store that panics must not leave one behind that nobody drives.
struct Driver<'a> {
    lines: &'a Lines,
    kinds: &'a [Kind],
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let line = self.lines.lock().lines.remove(self.kinds);
            drop(line);
        }
    }
}

/// The right to claim now. Say what came of it: others wait for that.
pub(crate) struct Turn {
    told: mpsc::UnboundedSender<bool>,
    got: bool,
}

impl Turn {
    /// The claim got nothing: there is no use in others trying.
    pub(crate) fn in_vain(mut self) {
        self.got = false;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Where the task has ended, nobody waits.
        let _ = self.told.send(self.got);
    }
}

impl Lines {
    /// Waits in line for a turn to claim of these kinds.
    pub(crate) async fn turn(
        &self,
        store: &Arc<dyn Store>,
        kinds: &[Kind],
    ) -> Result<Turn, StoreError> {
        let mut kinds = kinds.to_vec();
        kinds.sort();
        kinds.dedup();
        let (sender, receiver) = oneshot::channel();
        let (number, is_new) = {
            let mut state = self.lock();
            state.numbered += 1;
            let (number, is_new) = (state.numbered, !state.lines.contains_key(&kinds));
            state.lines.entry(kinds.clone()).or_default().waiting.insert(number, sender);
            (number, is_new)
        };
        let _place = QueuedClaim { lines: self, kinds: &kinds, number };
        if is_new {
            tokio::spawn(self.clone().drive(Arc::clone(store), kinds.clone()));
        }
        let ended = || StoreError::Unavailable { reason: "nobody waits any more".to_owned() };
        receiver.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Asks the store to wait, and gives turns, until nobody is in line.
    async fn drive(self, store: Arc<dyn Store>, kinds: Vec<Kind>) {
        let _driver = Driver { lines: &self, kinds: &kinds };
        let (told, mut tells) = mpsc::unbounded_channel();
        while let Some(empty) = self.go_on(&kinds) {
            let waited = tokio::select! {
                waited = store.wait(kinds.clone(), ROUND) => waited,
                () = empty.notified() => continue,
            };
            if let Err(error) = waited {
                self.all(&kinds, &error);
                continue;
            }
            let mut turns = usize::from(self.next(&kinds, &told));
            while turns > 0 {
                let got = tells.recv().await.expect("a sender is kept here");
                turns -= 1;
                // Where one got something there may be more: twice as many have a turn.
                for _ in 0..if got { 2 } else { 0 } {
                    turns += usize::from(self.next(&kinds, &told));
                }
            }
        }
    }

    /// Tells when nobody is in line. `None` if that is so now; then it is gone.
    fn go_on(&self, kinds: &[Kind]) -> Option<Arc<Notify>> {
        let mut state = self.lock();
        let line = state.lines.get(kinds).expect("who drives a line ends it");
        if !line.waiting.is_empty() {
            return Some(Arc::clone(&line.empty));
        }
        state.lines.remove(kinds);
        None
    }

    /// Gives the first in line a turn. Whether there was one.
    fn next(&self, kinds: &[Kind], told: &mpsc::UnboundedSender<bool>) -> bool {
        let pop = || self.lock().lines.get_mut(kinds).and_then(|line| line.waiting.pop_first());
        while let Some((_, sender)) = pop() {
            if sender.is_closed() {
                continue;
            }
            // One that goes away right now gives its turn back as it is dropped, which counts.
            let turn = Turn { told: told.clone(), got: true };
            drop(sender.send(Ok(turn)));
            return true;
        }
        false
    }

    /// Tells all in line that the store is in trouble.
    fn all(&self, kinds: &[Kind], error: &StoreError) {
        let take = |line: &mut ClaimQueue| std::mem::take(&mut line.waiting);
        let waiting = self.lock().lines.get_mut(kinds).map(take).unwrap_or_default();
        for sender in waiting.into_values() {
            let _ = sender.send(Err(error.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::tests::Half;
    use requeue_jobs::{Body, Claim, JobId, MemoryStore, Put, WorkerName};
    use requeue_testkit::{Fault, Faulty};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::task::{JoinSet, yield_now};

    fn mail() -> Vec<Kind> {
        vec![Kind::new("mail").expect("a valid kind")]
    }

    async fn put(store: &Arc<dyn Store>, id: &str) {
        let id = JobId::new(id).expect("a valid id");
        let put = Put::new(mail().remove(0), id, Body::default());
        store.put(vec![put]).await.expect("it is answered");
    }

    async fn claim(store: &Arc<dyn Store>) -> usize {
        let worker = WorkerName::new("worker").expect("a valid name");
        let claim = Claim { kinds: mail(), max: 1, lease: None, worker, nonce: 1 };
        store.claim(claim).await.expect("it is answered").jobs.len()
    }

    /// Claims in line, until it got a job.
    async fn stand(lines: Lines, store: Arc<dyn Store>, turns: Arc<AtomicUsize>) {
        loop {
            let turn = lines.turn(&store, &mail()).await.expect("the store is well");
            turns.fetch_add(1, Ordering::Relaxed);
            if claim(&store).await == 1 {
                return;
            }
            turn.in_vain();
        }
    }

    #[tokio::test]
    async fn a_job_wakes_few_of_those_who_wait() {
        let (lines, store) = (Lines::default(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let turns = Arc::new(AtomicUsize::new(0));
        let mut waiting = JoinSet::new();
        for _ in 0..1000 {
            waiting.spawn(stand(lines.clone(), Arc::clone(&store), Arc::clone(&turns)));
        }
        for _ in 0..10 {
            yield_now().await;
        }
        put(&store, "a").await;
        waiting.join_next().await.expect("one got it").expect("it has not panicked");
        for _ in 0..100 {
            yield_now().await;
        }
        assert_eq!(waiting.len(), 999);
        // The one that got it, two behind it, and perhaps one more: the store may end a wait for
        // no reason.
        let turns = turns.load(Ordering::Relaxed);
        assert!((1..=4).contains(&turns), "{turns}");
    }

    #[tokio::test]
    async fn as_many_get_a_job_as_there_are() {
        let (lines, store) = (Lines::default(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let turns = Arc::new(AtomicUsize::new(0));
        let mut waiting = JoinSet::new();
        for n in 0..100 {
            waiting.spawn(stand(lines.clone(), Arc::clone(&store), Arc::clone(&turns)));
            put(&store, &n.to_string()).await;
        }
        while let Some(ended) = waiting.join_next().await {
            ended.expect("it has not panicked");
        }
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(lines.lock().lines.is_empty(), "nobody is in line");
    }

    #[tokio::test]
    async fn who_goes_away_is_passed_over() {
        let (lines, store) = (Lines::default(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let turns = Arc::new(AtomicUsize::new(0));
        let stands = || stand(lines.clone(), Arc::clone(&store), Arc::clone(&turns));
        let (gone, stays) = (tokio::spawn(stands()), tokio::spawn(stands()));
        for _ in 0..10 {
            yield_now().await;
        }
        gone.abort();
        put(&store, "a").await;
        stays.await.expect("it got the job");
    }

    #[tokio::test]
    async fn nothing_is_left_of_those_who_have_gone_away() {
        let (lines, store) = (Lines::default(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let turns = Arc::new(AtomicUsize::new(0));
        let stands = || tokio::spawn(stand(lines.clone(), Arc::clone(&store), Arc::clone(&turns)));
        let (first, second) = (stands(), stands());
        for _ in 0..10 {
            yield_now().await;
        }
        first.abort();
        drop(first.await);
        assert_eq!(lines.lock().lines[&mail()].waiting.len(), 1);
        second.abort();
        drop(second.await);
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(lines.lock().lines.is_empty());
        assert_eq!(Arc::strong_count(&store), 1, "nobody asks the store to wait");
    }

    #[tokio::test]
    async fn a_store_that_panics_leaves_no_line_that_nobody_drives() {
        let (lines, store) = (Lines::default(), Arc::new(Half::default()) as Arc<dyn Store>);
        let kinds = [Kind::new("panic").expect("a valid kind")];
        for _ in 0..2 {
            let turn = lines.turn(&store, &kinds).await;
            assert!(matches!(turn, Err(StoreError::Unavailable { .. })));
        }
        assert!(lines.lock().lines.is_empty());
    }

    #[tokio::test]
    async fn trouble_of_the_store_is_told_to_all_in_line() {
        let store = Faulty::new(Arc::new(MemoryStore::new()));
        store.at(1, Fault::Refused);
        let (lines, store) = (Lines::default(), Arc::new(store) as Arc<dyn Store>);
        let kinds = mail();
        let turns = [lines.turn(&store, &kinds), lines.turn(&store, &kinds)];
        for turn in futures_util::future::join_all(turns).await {
            assert!(matches!(turn, Err(StoreError::Unavailable { .. })));
        }
    }
}
