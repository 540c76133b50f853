//! Waiting for work.
//!
//! A claim that finds too little, and `peek.lua`, return when the next job may be claimable. If that
//! time becomes earlier, scripts publish a message. Waiting callers sleep until the first known time
//! and send nothing. Because a message may be lost, a known time is valid for one second; then one
//! of the waiting callers asks the server again, on behalf of all in this process.

use crate::reply::signed;
use crate::script::SCRIPTS;
use crate::store::{RedisStore, lock};
use futures_util::future::join_all;
use requeue::{Clock, Moment};
use requeue_jobs::limits::{MAX_KINDS, WAIT_SLICE};
use requeue_jobs::rules::{ChangeNotifier, wait};
use requeue_jobs::{Kind, StoreError, WallClock};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// What is known of when there will be work, for all who wait in this process.
pub(crate) struct Watch {
    clock: Clock,
    /// The time, where it is not the server's.
    wall_clock: Option<WallClock>,
    known: Mutex<WorkTimes>,
    changes: ChangeNotifier,
}

#[derive(Default)]
struct WorkTimes {
    kinds: HashMap<Kind, KindWork>,
    /// How often all that was known was forgotten.
    forgotten: u64,
}

/// What is known of a kind.
#[derive(Default)]
struct KindWork {
    next: NextWork,
    /// When the server was last asked: who waits need not ask again for a while.
    asked: Option<Moment>,
    /// How many messages there were: what was asked before one is not learnt after it.
    messages: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum NextWork {
    #[default]
    Unknown,
    Never,
    At(Moment),
}

/// What had been heard when a question was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Heard {
    messages: u64,
    forgotten: u64,
}

/// A question to the server.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    heard: Heard,
    /// Times in its answer count from here. The server read its clock later, by the way there;
    /// but the claim that then comes has the same way to go.
    asked: Moment,
}

impl Watch {
    pub(crate) fn new(clock: Clock, wall_clock: Option<WallClock>) -> Self {
        Watch { clock, wall_clock, known: Mutex::default(), changes: ChangeNotifier::default() }
    }

    /// To be noted before the server is asked.
    pub(crate) fn question(&self, kind: &Kind) -> Question {
        Question { heard: lock(&self.known).heard(kind), asked: self.clock.now() }
    }

    /// The server's answer: in how many milliseconds there may be work; -1 never, -2 who knows.
    pub(crate) fn learn(&self, kind: &Kind, question: Question, in_millis: i64) {
        let Question { heard, asked } = question;
        let next = match u64::try_from(in_millis) {
            Ok(millis) => NextWork::At(asked.saturating_add(Duration::from_millis(millis))),
            Err(_) if in_millis == -1 => NextWork::Never,
            Err(_) => NextWork::Unknown,
        };
        let mut known = lock(&self.known);
        let is_current = known.heard(kind) == heard && next != NextWork::Unknown;
        let of = known.of(kind.clone());
        (of.next, of.asked) = match is_current {
            true => (next, Some(asked)),
            false => (NextWork::Unknown, None),
        };
        drop(known);
        self.changes.notify();
    }

    /// A message: the time of the server, and when there may be work, sooner than was known.
    pub(crate) fn on_message(&self, kind: &str, payload: &[u8]) {
        let times = str::from_utf8(payload).ok().and_then(|text| text.split_once(' '));
        let times = times.map(|(now, at)| (now.parse::<u64>(), at.parse::<u64>()));
        let Ok(kind) = Kind::new(kind) else { return };
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
                // Also where somebody is asking just now: it may have been too soon.
                of.asked = None;
            }
        }
        self.changes.notify();
    }

    /// Messages may have been missed: nothing is known any more.
    pub(crate) fn forget_all(&self) {
        lock(&self.known).forget_all();
        self.changes.notify();
    }

    /// Those of which the server is to be asked, by whoever is told so: nothing is known of them,
    /// or not since long ago.
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

    /// In how long there may be work, or somebody has to be asked.
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

    /// Whether there may be work now.
    fn is_due(&self, kinds: &[Kind]) -> bool {
        let now = self.clock.now();
        let known = lock(&self.known);
        let mut nexts = kinds.iter().filter_map(|kind| Some(known.kinds.get(kind)?.next));
        nexts.any(|next| matches!(next, NextWork::At(at) if at <= now))
    }
}

impl KindWork {
    /// For how long nobody needs to ask.
    fn fresh_for(&self, now: Moment) -> Duration {
        let until = self.asked.map(|asked| asked.saturating_add(WAIT_SLICE));
        until.map_or(Duration::ZERO, |until| until.saturating_since(now))
    }
}

impl WorkTimes {
    fn heard(&self, kind: &Kind) -> Heard {
        let messages = self.kinds.get(kind).map_or(0, |of| of.messages);
        Heard { messages, forgotten: self.forgotten }
    }

    fn of(&mut self, kind: Kind) -> &mut KindWork {
        // Who waits for ever new names must not fill the memory.
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

/// One who [asks](Watch::to_ask) for all who wait. If it fails or is given up, another has to.
struct Asking<'a> {
    watch: &'a Watch,
    kind: &'a Kind,
    is_answered: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            lock(&self.watch.known).of(self.kind.clone()).asked = None;
            self.watch.changes.notify();
        }
    }
}

impl RedisStore {
    pub(crate) async fn wait_for(
        &self,
        kinds: Vec<Kind>,
        limit: Duration,
    ) -> Result<(), StoreError> {
        let watch = &self.shared.watch;
        let end = watch.clock.now().saturating_add(limit);
        kinds.iter().for_each(|kind| self.subscribe(kind));
        loop {
            let asked = watch.to_ask(&kinds);
            let answers = join_all(asked.iter().map(|kind| self.ask(kind))).await;
            // Whatever else is known by now: who is told that there is work can claim it. And a
            // kind that cannot be asked keeps nobody from the work of others.
            if answers.iter().any(|next| matches!(next, Ok(Some(Duration::ZERO)))) {
                return Ok(());
            }
            answers.into_iter().collect::<Result<Vec<_>, _>>()?;
            let left = end.saturating_since(watch.clock.now());
            if left.is_zero() || watch.is_due(&kinds) {
                return Ok(());
            }
            wait(&watch.clock, &watch.changes, left, || Ok(watch.soonest(&kinds))).await?;
        }
    }

    /// Asks for all who wait: they rely on it that it is asked.
    async fn ask(&self, kind: &Kind) -> Result<Option<Duration>, StoreError> {
        let mut asking = Asking { watch: &self.shared.watch, kind, is_answered: false };
        let next = self.peek(kind).await?;
        asking.is_answered = true;
        Ok(next)
    }

    /// In how long a claim may get something, if nobody changes anything.
    pub(crate) async fn peek(&self, kind: &Kind) -> Result<Option<Duration>, StoreError> {
        let (keys, script) = (self.keys(kind), &SCRIPTS.peek);
        let question = self.shared.watch.question(kind);
        let cmd = self.begin(script, &keys);
        let in_millis = signed(&self.end(script, &keys, cmd).await?)?;
        self.shared.watch.learn(kind, question, in_millis);
        Ok(u64::try_from(in_millis).ok().map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests;
