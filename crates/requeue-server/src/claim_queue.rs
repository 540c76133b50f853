//! Waiting claims, in queues: one job wakes one claim instead of all of them.
//!
//! ```text
//!   claim gets nothing --> waits in queue --> its turn --> claims --> got jobs: the next two
//!                               |                            |        claims get a turn
//!                               +-- client disconnects       +-- got nothing: all keep waiting
//! ```
//!
//! There is a queue for each set of kinds. While a queue is not empty, one task calls
//! [`Store::wait`]. With ten thousand claims in a queue, a job that becomes due costs two or three
//! claims at the store, and not ten thousand.

use requeue_jobs::{Kind, Store, StoreError};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// Time limit of one call of [`Store::wait`]; the call is repeated.
const WAIT_ROUND: Duration = Duration::from_secs(60);

/// The queues of a store. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ClaimQueues(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    queues: HashMap<Vec<Kind>, ClaimQueue>,
    /// The number of the last claim that was queued, over all queues.
    last_number: u64,
}

#[derive(Default)]
struct ClaimQueue {
    /// The waiting claims by number, oldest first.
    waiting: BTreeMap<u64, oneshot::Sender<Result<Turn, StoreError>>>,
    /// Notified when the last claim leaves the queue without a turn.
    empty: Arc<Notify>,
}

/// A claim in a queue. Dropping it removes the claim.
struct QueuedClaim<'a> {
    queues: &'a ClaimQueues,
    kinds: &'a [Kind],
    number: u64,
}

impl Drop for QueuedClaim<'_> {
    fn drop(&mut self) {
        let mut state = self.queues.lock();
        // A claim that got its turn was removed before.
        if let Some(queue) = state.queues.get_mut(self.kinds)
            && queue.waiting.remove(&self.number).is_some()
            && queue.waiting.is_empty()
        {
            queue.empty.notify_one();
        }
    }
}

/// Removes the queue if its task panics: otherwise new claims would wait in a queue without a task.
struct DriverGuard<'a> {
    queues: &'a ClaimQueues,
    kinds: &'a [Kind],
}

impl Drop for DriverGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let queue = self.queues.lock().queues.remove(self.kinds);
            drop(queue);
        }
    }
}

/// Permission to claim now. Dropping it reports whether the claim got jobs: the queue waits for
/// that.
pub(crate) struct Turn {
    results: mpsc::UnboundedSender<bool>,
    got: bool,
}

impl Turn {
    /// Reports that the claim got nothing, so that no other claim tries.
    pub(crate) fn got_nothing(mut self) {
        self.got = false;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // If the task has ended, nobody needs the result.
        let _ = self.results.send(self.got);
    }
}

impl ClaimQueues {
    /// Waits for a turn to claim jobs of these kinds. Fails if the store fails.
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
            state.last_number += 1;
            let (number, is_new) = (state.last_number, !state.queues.contains_key(&kinds));
            state.queues.entry(kinds.clone()).or_default().waiting.insert(number, sender);
            (number, is_new)
        };
        let _queued = QueuedClaim { queues: self, kinds: &kinds, number };
        if is_new {
            tokio::spawn(self.clone().drive(Arc::clone(store), kinds.clone()));
        }
        let ended = || StoreError::Unavailable {
            reason: "the task that waits for jobs has ended".to_owned(),
        };
        receiver.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Waits for jobs and gives turns, until the queue is empty.
    async fn drive(self, store: Arc<dyn Store>, kinds: Vec<Kind>) {
        let _driver = DriverGuard { queues: &self, kinds: &kinds };
        let (results, mut finished) = mpsc::unbounded_channel();
        while let Some(empty) = self.keep_or_remove(&kinds) {
            let waited = tokio::select! {
                waited = store.wait(kinds.clone(), WAIT_ROUND) => waited,
                () = empty.notified() => continue,
            };
            if let Err(error) = waited {
                self.fail_all(&kinds, &error);
                continue;
            }
            let mut turns = usize::from(self.give_turn(&kinds, &results));
            while turns > 0 {
                let got = finished.recv().await.expect("a sender is kept here");
                turns -= 1;
                // If a claim got jobs, there may be more: two claims get a turn.
                for _ in 0..if got { 2 } else { 0 } {
                    turns += usize::from(self.give_turn(&kinds, &results));
                }
            }
        }
    }

    /// If the queue is empty, removes it and returns `None`. Otherwise returns the notification for
    /// when it becomes empty.
    fn keep_or_remove(&self, kinds: &[Kind]) -> Option<Arc<Notify>> {
        let mut state = self.lock();
        let queue = state.queues.get(kinds).expect("only this task removes the queue");
        if !queue.waiting.is_empty() {
            return Some(Arc::clone(&queue.empty));
        }
        state.queues.remove(kinds);
        None
    }

    /// Gives the oldest claim a turn. Returns whether there was one.
    fn give_turn(&self, kinds: &[Kind], results: &mpsc::UnboundedSender<bool>) -> bool {
        let pop = || self.lock().queues.get_mut(kinds).and_then(|queue| queue.waiting.pop_first());
        while let Some((_, sender)) = pop() {
            if sender.is_closed() {
                continue;
            }
            // If the receiver disappears right now, dropping the turn reports a result.
            let turn = Turn { results: results.clone(), got: true };
            drop(sender.send(Ok(turn)));
            return true;
        }
        false
    }

    /// Fails all claims in the queue with the error of the store.
    fn fail_all(&self, kinds: &[Kind], error: &StoreError) {
        let take = |queue: &mut ClaimQueue| std::mem::take(&mut queue.waiting);
        let waiting = self.lock().queues.get_mut(kinds).map(take).unwrap_or_default();
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
    use crate::claims::tests::PartlyFailingStore;
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
        store.put(vec![put]).await.expect("the store works");
    }

    async fn claim(store: &Arc<dyn Store>) -> usize {
        let worker = WorkerName::new("worker").expect("a valid name");
        let claim = Claim { kinds: mail(), max: 1, lease: None, worker, nonce: 1 };
        store.claim(claim).await.expect("the store works").jobs.len()
    }

    /// Claims when it is its turn, until it gets a job.
    async fn claim_when_queued(
        queues: ClaimQueues,
        store: Arc<dyn Store>,
        turns: Arc<AtomicUsize>,
    ) {
        loop {
            let turn = queues.turn(&store, &mail()).await.expect("the store works");
            turns.fetch_add(1, Ordering::Relaxed);
            if claim(&store).await == 1 {
                return;
            }
            turn.got_nothing();
        }
    }

    #[tokio::test]
    async fn a_job_wakes_few_of_the_waiting_claims() {
        let (queues, store) =
            (ClaimQueues::default(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let turns = Arc::new(AtomicUsize::new(0));
        let mut waiting = JoinSet::new();
        for _ in 0..1000 {
            waiting.spawn(claim_when_queued(
                queues.clone(),
                Arc::clone(&store),
                Arc::clone(&turns),
            ));
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
        // The claim that got the job, the next two, and perhaps one more: the store may end a wait
        // for no reason.
        let turns = turns.load(Ordering::Relaxed);
        assert!((1..=4).contains(&turns), "{turns}");
    }

    #[tokio::test]
    async fn every_job_reaches_a_claim() {
        let (queues, store) =
            (ClaimQueues::default(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let turns = Arc::new(AtomicUsize::new(0));
        let mut waiting = JoinSet::new();
        for n in 0..100 {
            waiting.spawn(claim_when_queued(
                queues.clone(),
                Arc::clone(&store),
                Arc::clone(&turns),
            ));
            put(&store, &n.to_string()).await;
        }
        while let Some(ended) = waiting.join_next().await {
            ended.expect("it has not panicked");
        }
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(queues.lock().queues.is_empty(), "all queues are removed");
    }

    #[tokio::test]
    async fn a_claim_that_left_the_queue_gets_no_turn() {
        let (queues, store) =
            (ClaimQueues::default(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let turns = Arc::new(AtomicUsize::new(0));
        let queued = || claim_when_queued(queues.clone(), Arc::clone(&store), Arc::clone(&turns));
        let (gone, stays) = (tokio::spawn(queued()), tokio::spawn(queued()));
        for _ in 0..10 {
            yield_now().await;
        }
        gone.abort();
        put(&store, "a").await;
        stays.await.expect("it got the job");
    }

    #[tokio::test]
    async fn claims_that_leave_the_queue_leave_nothing_behind() {
        let (queues, store) =
            (ClaimQueues::default(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let turns = Arc::new(AtomicUsize::new(0));
        let queued = || {
            tokio::spawn(claim_when_queued(queues.clone(), Arc::clone(&store), Arc::clone(&turns)))
        };
        let (first, second) = (queued(), queued());
        for _ in 0..10 {
            yield_now().await;
        }
        first.abort();
        drop(first.await);
        assert_eq!(queues.lock().queues[&mail()].waiting.len(), 1);
        second.abort();
        drop(second.await);
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(queues.lock().queues.is_empty());
        assert_eq!(Arc::strong_count(&store), 1, "no task waits at the store");
    }

    #[tokio::test]
    async fn a_panicking_store_leaves_no_queue_without_a_task() {
        let (queues, store) =
            (ClaimQueues::default(), Arc::new(PartlyFailingStore::default()) as Arc<dyn Store>);
        let kinds = [Kind::new("panic").expect("a valid kind")];
        for _ in 0..2 {
            let turn = queues.turn(&store, &kinds).await;
            assert!(matches!(turn, Err(StoreError::Unavailable { .. })));
        }
        assert!(queues.lock().queues.is_empty());
    }

    #[tokio::test]
    async fn a_store_error_reaches_all_claims_in_the_queue() {
        let store = Faulty::new(Arc::new(MemoryStore::new()));
        store.at(1, Fault::Refused);
        let (queues, store) = (ClaimQueues::default(), Arc::new(store) as Arc<dyn Store>);
        let kinds = mail();
        let turns = [queues.turn(&store, &kinds), queues.turn(&store, &kinds)];
        for turn in futures_util::future::join_all(turns).await {
            assert!(matches!(turn, Err(StoreError::Unavailable { .. })));
        }
    }
}
