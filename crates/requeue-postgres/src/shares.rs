//! How many connections the calls about one kind may use.
//!
//! A call about a job that an open transaction has locked keeps its connection until that transaction ends. Many such
//! calls would take all connections, and calls about other kinds would fail. So a kind uses at most as many connections
//! as it leaves free, and kinds that wait for one get it in turns. A part of the connections is for calls that wait for no
//! locks, such as reads and extensions of leases: all kinds together cannot use it.

use crate::store::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The connections of a pool, as far as calls about kinds use them.
pub(crate) struct Shares {
    state: Mutex<State>,
}

struct State {
    /// Invariant: `free` plus the sum of `used` is the size of the pool without what is reserved.
    free: usize,
    /// Invariant: no number is 0.
    used: HashMap<i32, usize>,
    /// The calls that wait, by kind. The kind that has waited longest since its last turn is first.
    waiting: VecDeque<(i32, VecDeque<oneshot::Sender<()>>)>,
}

/// Permits one call about a kind to use a connection.
pub(crate) struct Share {
    shares: Arc<Shares>,
    kind: i32,
}

impl State {
    /// Takes a connection for a kind, if the kind may have another one.
    fn take(&mut self, kind: i32) -> bool {
        let used = self.used.get(&kind).copied().unwrap_or(0);
        let may = self.free > used;
        if may {
            self.free -= 1;
            *self.used.entry(kind).or_default() += 1;
        }
        may
    }

    fn give_back(&mut self, kind: i32) {
        self.free += 1;
        if let Some(used) = self.used.get_mut(&kind) {
            *used -= 1;
            if *used == 0 {
                self.used.remove(&kind);
            }
        }
    }

    /// Lets calls begin that wait and may.
    fn serve(&mut self) {
        let mut at = 0;
        while let Some((kind, _)) = self.waiting.get(at) {
            let kind = *kind;
            if !self.take(kind) {
                at += 1;
                continue;
            }
            let Some((_, mut calls)) = self.waiting.remove(at) else { return };
            let mut was_served = false;
            while !was_served && let Some(call) = calls.pop_front() {
                // Callers that have given up are skipped.
                was_served = call.send(()).is_ok();
            }
            if !was_served {
                self.give_back(kind);
            }
            if !calls.is_empty() {
                self.waiting.push_back((kind, calls));
            }
        }
    }
}

impl Shares {
    /// For a pool of this size.
    pub(crate) fn of_pool(connections: usize) -> Arc<Self> {
        Shares::new(connections - connections / 4)
    }

    fn new(connections: usize) -> Arc<Self> {
        let (used, waiting) = (HashMap::new(), VecDeque::new());
        Arc::new(Shares { state: Mutex::new(State { free: connections, used, waiting }) })
    }

    /// Returns how many calls wait.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.state).waiting.iter().map(|(_, calls)| calls.len()).sum()
    }

    /// Waits until a call about this kind may use a connection. `None`: not within this time.
    pub(crate) async fn share(self: &Arc<Self>, kind: i32, limit: Duration) -> Option<Share> {
        let share = || Some(Share { shares: self.clone(), kind });
        let mut turn = {
            let mut state = lock(&self.state);
            let waiting = state.waiting.iter().position(|(of, _)| *of == kind);
            if waiting.is_none() && state.take(kind) {
                return share();
            }
            let (call, turn) = oneshot::channel();
            match waiting {
                Some(at) => state.waiting[at].1.push_back(call),
                None => state.waiting.push_back((kind, VecDeque::from([call]))),
            }
            turn
        };
        if timeout(limit, &mut turn).await.is_ok() {
            return share();
        }
        turn.close();
        // It may have come in the last moment.
        turn.try_recv().is_ok().then(share).flatten()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = lock(&self.shares.state);
        state.give_back(self.kind);
        state.serve();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    async fn take(shares: &Arc<Shares>, kind: i32) -> Vec<Share> {
        let mut taken = Vec::new();
        while let Some(share) = shares.share(kind, LIMIT).await {
            taken.push(share);
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_uses_at_most_as_many_connections_as_it_leaves_free() {
        for (connections, shares_of_kinds) in
            [(1, [1, 0, 0]), (2, [1, 1, 0]), (4, [2, 1, 1]), (10, [5, 3, 1])]
        {
            let shares = Shares::new(connections);
            let taken = [take(&shares, 1).await, take(&shares, 2).await, take(&shares, 3).await];
            assert_eq!(taken.each_ref().map(Vec::len), shares_of_kinds, "{connections}");
            drop(taken);
            let state = lock(&shares.state);
            assert_eq!((state.free, state.used.len()), (connections, 0));
            assert!(state.waiting.iter().all(|(_, calls)| calls.iter().all(|c| c.is_closed())));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_of_the_pool_is_for_calls_that_wait_for_no_locks() {
        for (connections, for_kinds) in [(1, 1), (3, 3), (4, 3), (10, 8), (100, 75)] {
            let shares = Shares::of_pool(connections);
            let mut taken = Vec::new();
            for kind in 0..100 {
                taken.extend(take(&shares, kind).await);
            }
            assert_eq!(taken.len(), for_kinds);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_that_wait_get_connections_in_turns() {
        let shares = Shares::new(1);
        let first = shares.share(1, LIMIT).await;
        let (order, mut calls) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
        for kind in [1, 1, 1, 2, 3, 3] {
            let (shares, order) = (shares.clone(), order.clone());
            calls.push(tokio::spawn(async move {
                let share = shares.share(kind, LIMIT).await.expect("the others end");
                lock(&order).push(kind);
                drop(share);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for call in calls {
            call.await.expect("it does not panic");
        }
        assert_eq!(*lock(&order), [1, 2, 3, 1, 3, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_has_given_up_takes_no_connection() {
        let shares = Shares::new(1);
        let first = shares.share(1, LIMIT).await.expect("it is free");
        assert!(shares.share(2, LIMIT).await.is_none());
        drop(first);
        assert!(shares.share(3, LIMIT).await.is_some());
    }
}
