//! Limits of a node, of which each token may use a share.
//!
//! One token cannot use up what all need: with four or more tokens each may use a quarter. See
//! [`Caller::share_of`]. Beyond the share, or if everything is in use, a request fails with *busy*.

use crate::auth::{Caller, Right, TokenId};
use requeue_http::{Problem, ProblemType};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// A limit of a node. Clones share it.
#[derive(Clone)]
pub(crate) struct SharedLimit(Arc<Shared>);

struct Shared {
    /// What is limited, in the plural.
    what: &'static str,
    limit: usize,
    /// What a token must permit to use any of it.
    right: Right,
    used: Mutex<Used>,
    /// Notified when some of it is given back.
    freed: Notify,
}

#[derive(Default)]
struct Used {
    /// By all.
    all: usize,
    /// By each token that uses any. Invariant: no zeros, and their sum is at most `all`.
    by_token: HashMap<TokenId, usize>,
}

/// A part of a limit. Dropping it gives it back.
pub(crate) struct Slot {
    limit: SharedLimit,
    token: Option<TokenId>,
    count: usize,
}

impl SharedLimit {
    pub(crate) fn new(what: &'static str, limit: usize, right: Right) -> Self {
        let (used, freed) = (Mutex::default(), Notify::new());
        SharedLimit(Arc::new(Shared { what, limit, right, used, freed }))
    }

    /// Returns how much of it is in use.
    pub(crate) fn used(&self) -> usize {
        self.lock().all
    }

    /// Takes `count` of it; not more than the share of the caller, so that every request can be served at
    /// some time. Fails with `busy` if so much is not free.
    pub(crate) fn take(&self, caller: &Caller, count: usize) -> Result<Slot, Problem> {
        let Shared { what, limit, right, .. } = *self.0;
        let share = caller.share_of(limit, right);
        let (count, token) = (count.min(share), caller.token());
        let mut used = self.lock();
        let by_token = token.map_or(0, |token| used.by_token.get(&token).copied().unwrap_or(0));
        if by_token + count > share {
            let detail = format!(
                "{what}: this token uses {by_token}, and its share is {share} of the {limit} of this node; \
                 try again later"
            );
            return Err(busy(share, detail));
        }
        if used.all + count > limit {
            let all = used.all;
            let detail = format!(
                "{what}: {all} are in use, and the limit of this node is {limit}; try again later"
            );
            return Err(busy(limit, detail));
        }
        used.all += count;
        if let Some(token) = token {
            *used.by_token.entry(token).or_default() += count;
        }
        drop(used);
        Ok(Slot { limit: self.clone(), token, count })
    }

    /// Does the same, and waits up to `time` if so much is not free.
    pub(crate) async fn wait(
        &self,
        caller: &Caller,
        count: usize,
        time: Duration,
    ) -> Result<Slot, Problem> {
        let end = Instant::now() + time;
        loop {
            let mut freed = std::pin::pin!(self.0.freed.notified());
            // Before it is tried: what is freed meanwhile must wake this.
            freed.as_mut().enable();
            match self.take(caller, count) {
                Ok(slot) => return Ok(slot),
                Err(busy) if timeout_at(end, freed).await.is_err() => return Err(busy),
                Err(_) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.0.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn busy(limit: usize, detail: String) -> Problem {
    Problem { limit: Some(limit.into()), ..Problem::new(ProblemType::Busy, detail) }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut used = self.limit.lock();
        used.all -= self.count;
        if let Some(token) = self.token
            && let Some(by_token) = used.by_token.get_mut(&token)
        {
            *by_token -= self.count;
            if *by_token == 0 {
                used.by_token.remove(&token);
            }
        }
        drop(used);
        self.limit.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Access;

    fn callers(count: usize) -> Vec<Caller> {
        let secret = |n: usize| format!("full-token-{n:020}");
        let access = Access::new((0..count).map(|n| (Right::Full, secret(n))), None).unwrap();
        let caller = |n| access.caller_with(Some(secret(n).as_bytes())).unwrap();
        (0..count.max(1)).map(caller).collect()
    }

    fn limit(count: usize) -> SharedLimit {
        SharedLimit::new("things", count, Right::Read)
    }

    #[test]
    fn a_token_gets_its_share_whatever_others_use() {
        let (limit, callers) = (limit(8), callers(5));
        let take = |n: usize| limit.take(&callers[n], 1);
        let held: Vec<Slot> = (0..2).map(|_| take(0).unwrap_or_else(|_| panic!("free"))).collect();
        let problem = take(0).err().unwrap();
        assert_eq!(problem.problem_type(), ProblemType::Busy);
        assert_eq!(
            problem.detail,
            "things: this token uses 2, and its share is 2 of the 8 of this node; try again later"
        );
        assert_eq!(problem.limit, Some(2.into()));
        let others: Vec<Slot> =
            [1, 1, 2, 2, 3, 3].map(|n| take(n).unwrap_or_else(|_| panic!())).into();
        let problem = take(4).err().unwrap();
        assert_eq!(
            problem.detail,
            "things: 8 are in use, and the limit of this node is 8; try again later"
        );
        drop(held);
        assert!(take(4).is_ok());
        drop(others);
        assert_eq!(limit.used(), 0);
        assert!(limit.lock().by_token.is_empty());
    }

    #[test]
    fn one_token_or_none_may_use_everything() {
        for callers in [callers(0), callers(1)] {
            let limit = limit(8);
            let held: Vec<_> = (0..8).map(|_| limit.take(&callers[0], 1).ok().unwrap()).collect();
            assert!(limit.take(&callers[0], 1).is_err());
            drop(held);
            assert!(limit.take(&callers[0], 99).is_ok(), "not more than there is");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_may_wait_for_its_turn_and_then_fails() {
        let (limit, callers) = (limit(4), callers(4));
        let held = limit.take(&callers[0], 1).ok().unwrap();
        let time = Duration::from_secs(5);
        let began = Instant::now();
        assert!(limit.wait(&callers[0], 1, time).await.is_err());
        assert_eq!(began.elapsed(), time);
        let mut waiting = std::pin::pin!(limit.wait(&callers[0], 1, time));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(held);
        assert!(waiting.await.is_ok());
        assert_eq!(limit.used(), 0);
    }
}
