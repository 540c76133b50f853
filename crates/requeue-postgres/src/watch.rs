//! Waits until jobs may be claimable.
//!
//! While someone waits, one task asks the server with one statement when the next job of each kind is due, and repeats
//! that every [`poll_interval`](crate::Options::poll_interval). Waiting callers sleep until that time. This alone finds
//! every job. Two things make it faster:
//!
//! - A put of this process tells the waiting callers of this process directly.
//! - A put that is due soon is announced to other processes with NOTIFY, after its commit and at most every
//!   [`NOTIFY_INTERVAL`]. Postgres executes transactions that notify one at a time, so a NOTIFY per put would limit the
//!   number of puts.

use crate::database::Failure;
use crate::marks::Purpose;
use crate::store::{KindRef, PostgresStore, Shared, lock};
use requeue::{Clock, Moment};
use requeue_jobs::limits::MAX_KINDS;
use requeue_jobs::rules::{ChangeNotifier, wait};
use requeue_jobs::{Kind, StoreError};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::{ToSql, Type};

/// The shortest time between two notifications of a process.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(5);

/// Jobs that are due later than this are not announced: others find them by polling before they are due.
const ANNOUNCED: Duration = Duration::from_secs(1);

/// After a connection for notifications was lost.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// When the next job of each kind may be claimable, as far as this process knows.
pub(crate) struct Watch {
    clock: Clock,
    state: Mutex<State>,
    changes: ChangeNotifier,
    /// Wakes the task that asks the server.
    ask: Notify,
    /// Tells that task that someone has begun to wait, and already knows when the next job is due.
    began: Notify,
    /// How long it counts what a claim has found out.
    poll_interval: Duration,
    /// Wakes the task that notifies other processes.
    announce: Notify,
}

#[derive(Default)]
struct State {
    /// How many callers wait for each kind.
    waiting: HashMap<Kind, usize>,
    known: HashMap<Kind, Known>,
    /// Kinds with jobs that other processes may wait for.
    to_announce: BTreeSet<i32>,
    /// How often in a row a claim has returned no job of a kind.
    empty_claims: HashMap<Kind, u32>,
    /// Why the server could not be asked.
    error: Option<StoreError>,
    /// How often the server was asked. A caller that begins to wait wants an answer that was asked for later.
    asked: u64,
}

/// What is known of a kind.
#[derive(Clone, Copy)]
struct Known {
    next: NextWork,
    since: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NextWork {
    Never,
    At(Moment),
}

impl Watch {
    pub(crate) fn new(clock: Clock, poll_interval: Duration) -> Self {
        let (state, changes) = (Mutex::default(), ChangeNotifier::default());
        let (ask, began, announce) = (Notify::new(), Notify::new(), Notify::new());
        Watch { clock, state, changes, ask, began, poll_interval, announce }
    }

    /// Records that a job of this process is due after this time.
    pub(crate) fn may_be_due(&self, kind: &KindRef, after: Duration) {
        let now = self.clock.now();
        let at = now.saturating_add(after);
        let mut state = lock(&self.state);
        let is_soon = after <= ANNOUNCED;
        if is_soon {
            state.to_announce.insert(kind.number);
        }
        let is_sooner = match state.known.get_mut(&kind.name) {
            None => false,
            Some(known) => {
                let is_sooner = match known.next {
                    NextWork::Never => true,
                    NextWork::At(next) => at < next,
                };
                if is_sooner {
                    known.next = NextWork::At(at);
                }
                is_sooner
            }
        };
        drop(state);
        if is_soon {
            self.announce.notify_one();
        }
        if is_sooner {
            self.changes.notify();
        }
    }

    /// Records whether a claim has returned jobs of this kind.
    pub(crate) fn claimed(&self, kind: &KindRef, has_jobs: bool) {
        let mut state = lock(&self.state);
        if has_jobs {
            state.empty_claims.remove(&kind.name);
        } else {
            *state.empty_claims.entry(kind.name.clone()).or_default() += 1;
        }
    }

    /// Records when the next job of a kind is due, after a claim that has returned all that were.
    pub(crate) fn learn(&self, kind: &KindRef, after: Option<Duration>) {
        let since = self.clock.now();
        let next = after.map_or(NextWork::Never, |after| NextWork::At(since.saturating_add(after)));
        lock(&self.state).known.insert(kind.name.clone(), Known { next, since });
    }

    /// Another process has put jobs that are due.
    fn notified(&self) {
        let mut state = lock(&self.state);
        // What is known of kinds that nobody waits for is outdated.
        let State { waiting, known, .. } = &mut *state;
        known.retain(|kind, _| waiting.contains_key(kind));
        let is_awaited = !state.waiting.is_empty();
        drop(state);
        if is_awaited {
            self.ask.notify_one();
        }
    }

    /// Forgets what is known of a kind, and asks the server again if someone waits for it.
    pub(crate) fn forget(&self, kind: &KindRef) {
        let mut state = lock(&self.state);
        state.known.remove(&kind.name);
        let is_awaited = state.waiting.contains_key(&kind.name);
        drop(state);
        if is_awaited {
            self.ask.notify_one();
        }
    }

    /// Returns in how long a job may be claimable, `None` if that is not known.
    fn next(&self, kinds: &[Kind]) -> Option<Duration> {
        let now = self.clock.now();
        let state = lock(&self.state);
        let times = kinds.iter().filter_map(|kind| match state.known.get(kind)?.next {
            NextWork::At(at) => Some(at.saturating_since(now)),
            NextWork::Never => None,
        });
        times.min()
    }

    fn error(&self) -> Option<StoreError> {
        lock(&self.state).error.clone()
    }
}

/// Counts a caller that waits.
struct Waiting<'a> {
    watch: &'a Watch,
    kinds: &'a [Kind],
}

impl<'a> Waiting<'a> {
    fn new(watch: &'a Watch, kinds: &'a [Kind]) -> Self {
        let now = watch.clock.now();
        let mut state = lock(&watch.state);
        for kind in kinds {
            let count = state.waiting.entry(kind.clone()).or_default();
            *count += 1;
            let is_first = *count == 1;
            // Nobody has asked for it in the meantime. What the latest claim has found out is as good as an answer.
            if is_first
                && state
                    .known
                    .get(kind)
                    .is_some_and(|known| now.saturating_since(known.since) >= watch.poll_interval)
            {
                state.known.remove(kind);
            }
        }
        if state.known.len() > MAX_KINDS {
            state.known.clear();
        }
        if state.empty_claims.len() > MAX_KINDS {
            state.empty_claims.clear();
        }
        let asks = kinds.iter().any(|kind| !state.known.contains_key(kind));
        drop(state);
        if asks {
            watch.ask.notify_one()
        } else {
            watch.began.notify_one()
        }
        Waiting { watch, kinds }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.watch.state);
        for kind in self.kinds {
            if let Some(count) = state.waiting.get_mut(kind) {
                *count -= 1;
                if *count == 0 {
                    state.waiting.remove(kind);
                    state.known.remove(kind);
                }
            }
        }
    }
}

impl PostgresStore {
    pub(crate) async fn wait_for(
        &self,
        kinds: Vec<Kind>,
        limit: Duration,
    ) -> Result<(), StoreError> {
        let watch = &*self.shared.watch;
        let _waiting = Waiting::new(watch, &kinds);
        let began = lock(&watch.state).asked;
        wait(&watch.clock, &watch.changes, limit, || {
            // An error of an earlier request is not one of this wait.
            let asked = lock(&watch.state).asked;
            match watch.error() {
                Some(error) if asked > began => Err(error),
                _ => Ok(watch.next(&kinds)),
            }
        })
        .await
    }
}

/// Starts the tasks of a store. They end when the store is dropped.
pub(crate) fn start(shared: &Arc<Shared>) {
    shared.database.background(ask_repeatedly(Arc::downgrade(shared), shared.watch.clone()));
    if shared.database.options.listen {
        shared.database.background(announce(Arc::downgrade(shared), shared.watch.clone()));
        shared.database.background(listen(Arc::downgrade(shared), shared.watch.clone()));
    }
}

/// Asks the server when the next jobs are due, as long as someone waits.
async fn ask_repeatedly(shared: Weak<Shared>, watch: Arc<Watch>) {
    loop {
        let interval = match shared.upgrade() {
            Some(shared) => shared.database.options.poll_interval,
            None => return,
        };
        let is_idle = lock(&watch.state).waiting.is_empty();
        // The store may be dropped while nobody waits.
        let pause = if is_idle { Duration::from_secs(1) } else { interval };
        tokio::select! {
            () = watch.ask.notified() => {}
            () = sleep(pause) => {}
            // The interval begins now.
            () = watch.began.notified() => continue,
        }
        let Some(shared) = shared.upgrade() else { return };
        let kinds: Vec<Kind> = lock(&watch.state).waiting.keys().cloned().collect();
        if !kinds.is_empty() {
            shared.ask(&kinds).await;
        }
    }
}

impl Shared {
    /// Asks the server when the next job of each kind is due.
    async fn ask(&self, kinds: &[Kind]) {
        let (watch, interval) = (&self.watch, self.database.options.poll_interval);
        let asked_at = watch.clock.now();
        let result = self.peek(kinds).await;
        {
            let mut state = lock(&watch.state);
            state.asked += 1;
            match result {
                Ok(nexts) => {
                    state.error = None;
                    for (kind, next) in nexts {
                        let empty = state.empty_claims.get(&kind).copied().unwrap_or(0);
                        let next = next.map(|next| next.max(pause(empty, interval)));
                        let next = next.map_or(NextWork::Never, |next| {
                            NextWork::At(asked_at.saturating_add(next))
                        });
                        state.known.insert(kind, Known { next, since: asked_at });
                    }
                }
                Err(error) => state.error = Some(error),
            }
        }
        watch.changes.notify();
    }

    async fn peek(&self, names: &[Kind]) -> Result<Vec<(Kind, Option<Duration>)>, StoreError> {
        let kinds = self.known_kinds(names);
        let is_known = |name: &Kind| kinds.iter().any(|kind| kind.name == *name);
        let unknown: Vec<&str> =
            names.iter().filter(|name| !is_known(name)).map(Kind::as_str).collect();
        let looks: Vec<_> =
            kinds.iter().map(|kind| self.marks.look(kind.number, Purpose::Wait)).collect();
        let numbers: Vec<i32> = kinds.iter().map(|kind| kind.number).collect();
        let ats: Vec<i64> = looks.iter().map(|look| look.mark.at).collect();
        let places: Vec<i64> = looks.iter().map(|look| look.mark.place).collect();
        let leases: Vec<i64> = looks.iter().map(|look| look.mark.lease).collect();
        let (test, sql) = (self.test_time(), &self.statements.peek);
        let params: [&(dyn ToSql + Sync); 6] = [&test, &numbers, &ats, &places, &leases, &unknown];
        let rows = self.database.query(sql, &params).await.map_err(Failure::for_read)?;
        looks.iter().for_each(|look| self.marks.looked(look, None, None, None));
        for row in &rows {
            if let Some(Ok(name)) = row.get::<_, Option<&str>>(2).map(Kind::with_reserved) {
                self.learn(name, row.get(0));
            }
        }
        if rows.iter().any(|row| row.get::<_, Option<i64>>(1) == Some(-1)) {
            // The next request looks for a kind of this name.
            self.database.kind_is_missing();
        }
        let kinds = self.known_kinds(names);
        let mut found: HashMap<i32, Option<i64>> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let mut nexts = Vec::new();
        for name in names {
            let kind = kinds.iter().find(|kind| kind.name == *name);
            let millis = kind.and_then(|kind| found.remove(&kind.number)).flatten();
            let next =
                millis.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
            nexts.push((name.clone(), next));
        }
        Ok(nexts)
    }
}

/// How long to wait for a job that is due, although this many claims in a row have returned none: another transaction has
/// locked it, perhaps for long.
fn pause(empty_claims: u32, longest: Duration) -> Duration {
    match empty_claims.checked_sub(2) {
        None | Some(0) => Duration::ZERO,
        Some(n) => Duration::from_millis(1 << n.min(20)).min(longest),
    }
}

/// The name of the channel for notifications.
fn channel(shared: &Shared) -> String {
    format!("{}_wake", shared.database.options.schema)
}

/// Notifies other processes of kinds with new jobs.
async fn announce(shared: Weak<Shared>, watch: Arc<Watch>) {
    let sql = crate::statements::Sql {
        text: "select pg_catalog.pg_notify($1, $2)".to_owned(),
        types: vec![Type::TEXT, Type::TEXT],
    };
    loop {
        let _ = timeout(Duration::from_secs(1), watch.announce.notified()).await;
        let Some(shared) = shared.upgrade() else { return };
        let kinds = std::mem::take(&mut lock(&watch.state).to_announce);
        if !kinds.is_empty() {
            let kinds: Vec<String> = kinds.iter().map(i32::to_string).collect();
            // A payload has up to 8000 bytes.
            let payload = if kinds.len() > 500 { "many".to_owned() } else { kinds.join(",") };
            let channel = channel(&shared);
            // If it fails, others find the jobs by polling.
            drop(shared.database.query(&sql, &[&channel, &payload]).await);
        }
        drop(shared);
        sleep(NOTIFY_INTERVAL).await;
    }
}

/// Receives notifications of other processes.
async fn listen(shared: Weak<Shared>, watch: Arc<Watch>) {
    loop {
        let (listener, channel) = match shared.upgrade() {
            Some(shared) => (shared.database.listener(), channel(&shared)),
            None => return,
        };
        let on_notification = |payload: &str| {
            // Asking for all kinds is one statement, too: which kinds it is about does not matter.
            if !payload.is_empty() {
                watch.notified();
            }
            shared.strong_count() > 0
        };
        listener.listen(channel, on_notification).await;
        sleep(RECONNECT_PAUSE).await;
    }
}
