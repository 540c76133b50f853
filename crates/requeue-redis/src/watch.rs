//! Waits until jobs may be claimable.
//!
//! A claim that finds too little, and `peek.lua`, return when the next job may be claimable. If that
//! time becomes earlier, scripts publish a message. Waiting callers sleep until the first known time
//! and send nothing. Because a message may be lost, a known time is valid for one second; then one
//! of the waiting callers asks the server again, on behalf of all in this process.

use crate::deployment::{Deployment, lock};
use crate::reply::signed;
use crate::script::SCRIPTS;
use futures_util::future::join_all;
use requeue::{Clock, Moment};
use requeue_jobs::limits::{MAX_KINDS, WAIT_SLICE};
use requeue_jobs::rules::{ChangeNotifier, wait};
use requeue_jobs::{Kind, StoreError, WallClock};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// When the next job of each kind may be claimable, as far as this process knows.
pub(crate) struct Watch {
    clock: Clock,
    /// Replaces the clock of the server, in tests.
    wall_clock: Option<WallClock>,
    known: Mutex<WorkTimes>,
    changes: ChangeNotifier,
}

#[derive(Default)]
struct WorkTimes {
    kinds: HashMap<Kind, KindWork>,
    /// How often all entries were cleared.
    forgotten: u64,
}

/// What this process knows about one kind.
#[derive(Default)]
struct KindWork {
    next: NextWork,
    /// When the server was last asked. Waiting callers do not ask again for a while.
    asked: Option<Moment>,
    /// The number of messages so far. A reply is discarded if a message has arrived since the
    /// request was sent.
    messages: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum NextWork {
    #[default]
    Unknown,
    Never,
    At(Moment),
}

/// The messages received before a request was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MessageCount {
    messages: u64,
    forgotten: u64,
}

/// A request to the server for the next time: what was known before it was sent.
#[derive(Clone, Copy)]
pub(crate) struct PeekRequest {
    received: MessageCount,
    /// When the request was sent. The times in the reply are relative to it. The server reads its
    /// clock slightly later, but the claim that follows takes as long to reach the server.
    asked: Moment,
}

impl Watch {
    pub(crate) fn new(clock: Clock, wall_clock: Option<WallClock>) -> Self {
        Watch { clock, wall_clock, known: Mutex::default(), changes: ChangeNotifier::default() }
    }

    /// Must be called before the request is sent.
    pub(crate) fn request(&self, kind: &Kind) -> PeekRequest {
        PeekRequest { received: lock(&self.known).received(kind), asked: self.clock.now() }
    }

    /// Records the server's reply: in how many milliseconds a job may be claimable, -1 for never, -2
    /// for unknown.
    pub(crate) fn learn(&self, kind: &Kind, request: PeekRequest, in_millis: i64) {
        let PeekRequest { received, asked } = request;
        let next = match u64::try_from(in_millis) {
            Ok(millis) => NextWork::At(asked.saturating_add(Duration::from_millis(millis))),
            Err(_) if in_millis == -1 => NextWork::Never,
            Err(_) => NextWork::Unknown,
        };
        let mut known = lock(&self.known);
        let is_current = known.received(kind) == received && next != NextWork::Unknown;
        let of = known.of(kind.clone());
        (of.next, of.asked) = match is_current {
            true => (next, Some(asked)),
            false => (NextWork::Unknown, None),
        };
        drop(known);
        self.changes.notify();
    }

    /// Handles a message: the time of the server, and when a job may be claimable, which is earlier
    /// than was known.
    pub(crate) fn on_message(&self, kind: &str, payload: &[u8]) {
        let times = str::from_utf8(payload).ok().and_then(|text| text.split_once(' '));
        let times = times.map(|(now, at)| (now.parse::<u64>(), at.parse::<u64>()));
        let Ok(kind) = Kind::with_reserved(kind) else { return };
        {
            let mut known = lock(&self.known);
            let of = known.of(kind);
            of.messages += 1;
            of.next = match times {
                Some((Ok(now), Ok(at))) => {
                    let now = self.wall_clock.as_ref().map_or(now, |at| at.now().as_millis());
                    let delay = Duration::from_millis(at.saturating_sub(now));
                    of.next.sooner(self.clock.now().saturating_add(delay))
                }
                _ => NextWork::Unknown,
            };
            if of.next == NextWork::Unknown {
                // Ask again even if a request is in flight: it may have been too early.
                of.asked = None;
            }
        }
        self.changes.notify();
    }

    /// Clears all entries, because messages may have been missed.
    pub(crate) fn forget_all(&self) {
        lock(&self.known).forget_all();
        self.changes.notify();
    }

    /// Returns the kinds for which the caller has to ask the server, because nothing is known or the
    /// reply is too old. Other callers do not ask for them meanwhile.
    fn to_ask(&self, kinds: &[Kind]) -> Vec<Kind> {
        let now = self.clock.now();
        let mut known = lock(&self.known);
        let mut to_ask = Vec::new();
        for kind in kinds {
            let of = known.of(kind.clone());
            if of.fresh_for(now).is_zero() {
                of.asked = Some(now);
                to_ask.push(kind.clone());
            }
        }
        to_ask
    }

    /// Returns in how long a job may be claimable, or the server has to be asked again.
    fn soonest(&self, kinds: &[Kind]) -> Option<Duration> {
        let now = self.clock.now();
        let known = lock(&self.known);
        let next = |kind| match known.kinds.get(kind) {
            None => Duration::ZERO,
            Some(of) => match of.next {
                NextWork::At(at) => at.saturating_since(now).min(of.fresh_for(now)),
                NextWork::Never | NextWork::Unknown => of.fresh_for(now),
            },
        };
        kinds.iter().map(next).min()
    }

    /// Returns whether a job may be claimable now.
    fn is_due(&self, kinds: &[Kind]) -> bool {
        let now = self.clock.now();
        let known = lock(&self.known);
        let mut nexts = kinds.iter().filter_map(|kind| Some(known.kinds.get(kind)?.next));
        nexts.any(|next| matches!(next, NextWork::At(at) if at <= now))
    }
}

impl KindWork {
    /// Returns for how long nobody needs to ask the server.
    fn fresh_for(&self, now: Moment) -> Duration {
        let until = self.asked.map(|asked| asked.saturating_add(WAIT_SLICE));
        until.map_or(Duration::ZERO, |until| until.saturating_since(now))
    }
}

impl WorkTimes {
    fn received(&self, kind: &Kind) -> MessageCount {
        let messages = self.kinds.get(kind).map_or(0, |of| of.messages);
        MessageCount { messages, forgotten: self.forgotten }
    }

    fn of(&mut self, kind: Kind) -> &mut KindWork {
        // Callers that wait for ever new kinds must not exhaust memory.
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(&kind) {
            self.forget_all();
        }
        self.kinds.entry(kind).or_default()
    }

    fn forget_all(&mut self) {
        self.forgotten += 1;
        self.kinds.clear();
    }
}

impl NextWork {
    fn sooner(self, at: Moment) -> NextWork {
        match self {
            NextWork::Unknown => NextWork::Unknown,
            NextWork::Never => NextWork::At(at),
            NextWork::At(known) => NextWork::At(known.min(at)),
        }
    }
}

/// A request on behalf of all waiting callers (see [`Watch::to_ask`]). If it fails or its future is
/// dropped, another caller has to ask.
struct Asking<'a> {
    watch: &'a Watch,
    kind: &'a Kind,
    has_reply: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.has_reply {
            lock(&self.watch.known).of(self.kind.clone()).asked = None;
            self.watch.changes.notify();
        }
    }
}

impl Deployment {
    pub(crate) async fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> Result<(), StoreError> {
        let watch = &self.watch;
        let end = watch.clock.now().saturating_add(limit);
        kinds.iter().for_each(|kind| self.subscribe(kind));
        loop {
            let asked = watch.to_ask(&kinds);
            let replies = join_all(asked.iter().map(|kind| self.ask(kind))).await;
            // If a reply reports a claimable job, it can be claimed, whatever messages have arrived
            // since, and even if the requests for other kinds have failed.
            if replies.iter().any(|next| matches!(next, Ok(Some(Duration::ZERO)))) {
                return Ok(());
            }
            replies.into_iter().collect::<Result<Vec<_>, _>>()?;
            let left = end.saturating_since(watch.clock.now());
            if left.is_zero() || watch.is_due(&kinds) {
                return Ok(());
            }
            wait(&watch.clock, &watch.changes, left, || Ok(watch.soonest(&kinds))).await?;
        }
    }

    /// Asks the server on behalf of all waiting callers.
    async fn ask(&self, kind: &Kind) -> Result<Option<Duration>, StoreError> {
        let mut asking = Asking { watch: &self.watch, kind, has_reply: false };
        let next = self.peek(kind).await?;
        asking.has_reply = true;
        Ok(next)
    }

    /// Asks the server in how long a claim may return a job, if nothing changes.
    pub(crate) async fn peek(&self, kind: &Kind) -> Result<Option<Duration>, StoreError> {
        let request = self.watch.request(kind);
        let in_millis = signed(&self.run(&SCRIPTS.peek, kind, |_| {}).await?)?;
        self.watch.learn(kind, request, in_millis);
        Ok(u64::try_from(in_millis).ok().map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests;
