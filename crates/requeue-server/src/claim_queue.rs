//! Waiting claims, in queues: one job wakes one claim instead of all of them.
//!
//! ```text
//!   claim gets nothing --> waits for a turn --> waits for jobs --> claims --> got jobs: one turn more
//!                            ^                  at the store          |
//!                            +------------- got nothing --------------+  (one turn less, if there
//!                                                                         are several)
//! ```
//!
//! There is a queue for each set of kinds. It begins with one turn, which the oldest claim holds while
//! it waits at the store; the others wait for it in the order in which they came. With ten thousand
//! claims in a queue, a job that becomes due costs one claim at the store, and not ten thousand. The
//! number of turns grows with the jobs that are found, so that as many claims are awake as there is work,
//! and it shrinks when a claim finds nothing.

use requeue_jobs::{Kind, Store, StoreError};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Time limit of one call of [`Store::wait`]. Then the claim looks for itself.
const WAIT_ROUND: Duration = Duration::from_secs(60);

/// The largest number of turns. So many claims wake at most for one job, once after many were found.
const MAX_TURNS: usize = 128;

/// The queues of a store. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct ClaimQueues(Arc<Mutex<Queues>>);

type Queues = HashMap<Vec<Kind>, Weak<ClaimQueue>>;

/// The claims that wait for a set of kinds. Dropping the last handle removes the queue.
pub(crate) struct ClaimQueue {
    queues: ClaimQueues,
    kinds: Vec<Kind>,
    turns: Semaphore,
    /// How many turns there are besides the first one, less than [`MAX_TURNS`].
    more: AtomicUsize,
}

/// Permission to claim now. Dropping it passes it on.
pub(crate) struct Turn<'a> {
    queue: &'a ClaimQueue,
    permit: SemaphorePermit<'a>,
}

impl ClaimQueues {
    /// Returns the queue of claims for these kinds.
    pub(crate) fn of(&self, kinds: &[Kind]) -> Arc<ClaimQueue> {
        let mut kinds = kinds.to_vec();
        kinds.sort();
        kinds.dedup();
        let mut queues = self.lock();
        if let Some(queue) = queues.get(&kinds).and_then(Weak::upgrade) {
            return queue;
        }
        let (queues_of, turns) = (self.clone(), Semaphore::new(1));
        let queue = ClaimQueue { queues: queues_of, kinds, turns, more: AtomicUsize::new(0) };
        let queue = Arc::new(queue);
        queues.insert(queue.kinds.clone(), Arc::downgrade(&queue));
        queue
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClaimQueue {
    /// Waits for a turn, and then until there may be jobs. Fails if the store fails.
    pub(crate) async fn turn(&self, store: &dyn Store) -> Result<Turn<'_>, StoreError> {
        let permit = self.turns.acquire().await.expect("this semaphore is never closed");
        store.wait(self.kinds.clone(), WAIT_ROUND).await?;
        Ok(Turn { queue: self, permit })
    }
}

impl Drop for ClaimQueue {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        // Another queue may have taken its place meanwhile.
        if queues.get(&self.kinds).is_some_and(|queue| queue.strong_count() == 0) {
            queues.remove(&self.kinds);
        }
    }
}

impl Turn<'_> {
    /// Reports that the claim got jobs: there may be more, so two other claims get a turn.
    pub(crate) fn got_jobs(self) {
        let one_more = |more: usize| Some(more + 1).filter(|more| *more < MAX_TURNS);
        if self.queue.more.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok() {
            self.queue.turns.add_permits(1);
        }
    }

    /// Reports that the claim got nothing: if there are several turns, this one ends.
    pub(crate) fn got_nothing(self) {
        let one_less = |more: usize| more.checked_sub(1);
        if self.queue.more.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            self.permit.forget();
        }
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
        let queue = queues.of(&mail());
        loop {
            let turn = queue.turn(&*store).await.expect("the store works");
            turns.fetch_add(1, Ordering::Relaxed);
            if claim(&store).await == 1 {
                return turn.got_jobs();
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
        // The claim that got the job, and perhaps some more: the store may end a wait for no reason.
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
        assert!(queues.lock().is_empty(), "all queues are removed");
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
        assert_eq!(queues.lock()[&mail()].strong_count(), 1);
        second.abort();
        drop(second.await);
        assert!(queues.lock().is_empty());
        assert_eq!(Arc::strong_count(&store), 1, "nothing waits at the store");
    }

    #[tokio::test]
    async fn the_number_of_turns_follows_the_number_of_jobs() {
        let (queues, store) =
            (ClaimQueues::default(), Arc::new(MemoryStore::new()) as Arc<dyn Store>);
        let queue = queues.of(&mail());
        for n in 0..3 {
            put(&store, &n.to_string()).await;
        }
        queue.turn(&*store).await.expect("the store works").got_jobs();
        queue.turn(&*store).await.expect("the store works").got_jobs();
        let turns = [queue.turn(&*store), queue.turn(&*store), queue.turn(&*store)];
        for turn in futures_util::future::join_all(turns).await {
            turn.expect("the store works").got_nothing();
        }
        // The first turn always remains.
        assert_eq!(queue.turns.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_store_that_panics_or_fails_affects_the_claim_that_waits_at_it() {
        let store = Arc::new(PartlyFailingStore::default()) as Arc<dyn Store>;
        let queues = ClaimQueues::default();
        let panicking = queues.of(&[Kind::new("panic").expect("a valid kind")]);
        for _ in 0..2 {
            let (queue, store) = (Arc::clone(&panicking), Arc::clone(&store));
            let turn = tokio::spawn(async move { queue.turn(&*store).await.map(drop) });
            assert!(turn.await.is_err_and(|error| error.is_panic()));
        }
        let store = Faulty::new(Arc::new(MemoryStore::new()));
        store.at(1, Fault::Refused);
        let store = Arc::new(store) as Arc<dyn Store>;
        put_after_fault(&queues.of(&mail()), &store).await;
    }

    async fn put_after_fault(queue: &ClaimQueue, store: &Arc<dyn Store>) {
        let failed = queue.turn(&**store).await;
        assert!(matches!(failed, Err(StoreError::Unavailable { .. })));
        put(store, "a").await;
        queue.turn(&**store).await.expect("the store works again").got_jobs();
    }
}
