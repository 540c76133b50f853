//! Random operations: the calls that tests make on stores.
//!
//! [`Operations`] generates calls from weights and ranges. An [`Operation`] runs on any store, and
//! the [`Response`]s of two stores can be compared.

use crate::fixture::block_on;
use crate::random::Random;
use requeue_jobs::limits::MAX_DELAY;
use requeue_jobs::{
    Backoff, BatchResults, Body, Change, ChangeError, ChangeKind, Changed, Claim, Claimed,
    Condition, Content, Due, Envelope, Fence, Generation, Head, JobId, JobState, JobView, Kind,
    KindView, Missed, Mode, Page, Placed, Priority, Put, PutError, Query, Rate, Reaped, Receipt,
    Reschedule, Restore, Restored, Retention, Schedule, ScheduleCondition, Settings, Settle,
    SettleError, Settled, Settlement, Spans, Store, StoreError, Tick, TickJob, Ticked, TimeQuery,
    Timestamp, WorkerName,
};
use std::time::Duration;

/// A call of a store, or a step of its clock.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Moves the clock forward.
    Advance(Duration),
    /// Calls [`Store::put`].
    Put(Vec<Put>),
    /// Calls [`Store::claim`].
    Claim(Claim),
    /// Calls [`Store::settle`].
    Settle(Vec<Settle>),
    /// Calls [`Store::change`].
    Change(Vec<Change>),
    /// Calls [`Store::restore`].
    Restore(Restore),
    /// Calls [`Store::reap`].
    Reap(usize),
    /// Calls [`Store::set`].
    Set(Kind, Settings),
    /// Calls [`Store::set_schedule`].
    SetSchedule(Kind, Schedule, ScheduleCondition),
    /// Calls [`Store::remove_schedule`].
    RemoveSchedule(Kind, JobId),
    /// Calls [`Store::tick`].
    Tick(Tick),
    /// Calls [`Store::list`].
    List(Query),
    /// Calls [`Store::list_by_time`] for this page and all that follow it.
    ListByTime(TimeQuery),
    /// Calls [`Store::get`].
    Get(Kind, JobId),
    /// Calls [`Store::upcoming`].
    Upcoming(Kind, Spans),
    /// Calls [`Store::kinds`].
    Kinds,
    /// Calls [`Store::settings`].
    Settings(Kind),
    /// Calls [`Store::schedules`].
    Schedules(Kind),
}

/// The result of an [`Operation`].
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each variant is the result of the operation with its name")]
pub enum Response {
    Advance,
    Put(BatchResults<Placed, PutError>),
    Claim(Claimed),
    Settle(BatchResults<Settled, SettleError>),
    Change(BatchResults<Changed, ChangeError>),
    Restore(BatchResults<Restored, StoreError>),
    Reap(Reaped),
    Set,
    SetSchedule(bool),
    RemoveSchedule(bool),
    Tick(Ticked),
    List(Page),
    /// The jobs of all pages. Those of the same millisecond are ordered by id, because a store may
    /// order them as it likes.
    ListByTime(Vec<JobView>),
    Get(Option<JobView>),
    Upcoming(Vec<u64>),
    Kinds(Vec<KindView>),
    Settings(Settings),
    Schedules(Vec<Schedule>),
}

impl Operation {
    /// Calls the store and waits for the result. `Advance` does nothing here.
    pub fn run(&self, store: &dyn Store) -> Result<Response, StoreError> {
        block_on(self.call(store))
    }

    /// Calls the store, like [`run`](Operation::run), from a test that polls the call itself.
    pub async fn call(&self, store: &dyn Store) -> Result<Response, StoreError> {
        Ok(match self.clone() {
            Operation::Advance(_) => Response::Advance,
            Operation::Put(puts) => Response::Put(store.put(puts).await?),
            Operation::Claim(claim) => Response::Claim(store.claim(claim).await?),
            Operation::Settle(all) => Response::Settle(store.settle(all).await?),
            Operation::Change(changes) => Response::Change(store.change(changes).await?),
            Operation::Restore(restore) => Response::Restore(store.restore(restore).await?),
            Operation::Reap(max) => Response::Reap(store.reap(max).await?),
            Operation::Set(kind, settings) => {
                store.set(kind, settings).await?;
                Response::Set
            }
            Operation::SetSchedule(kind, schedule, condition) => {
                Response::SetSchedule(store.set_schedule(kind, schedule, condition).await?)
            }
            Operation::RemoveSchedule(kind, id) => {
                Response::RemoveSchedule(store.remove_schedule(kind, id).await?)
            }
            Operation::Tick(tick) => Response::Tick(store.tick(tick).await?),
            Operation::List(query) => Response::List(store.list(query).await?),
            Operation::ListByTime(query) => Response::ListByTime(all_by_time(store, query).await?),
            Operation::Get(kind, id) => Response::Get(store.get(kind, id).await?),
            Operation::Upcoming(kind, spans) => {
                Response::Upcoming(store.upcoming(kind, spans).await?)
            }
            Operation::Kinds => Response::Kinds(store.kinds().await?),
            Operation::Settings(kind) => Response::Settings(store.settings(kind).await?),
            Operation::Schedules(kind) => Response::Schedules(store.schedules(kind).await?),
        })
    }

    /// Runs on two stores, and returns the response of both. Fails if they respond differently,
    /// with the two responses.
    pub fn compare(
        &self,
        store: &dyn Store,
        reference: &dyn Store,
    ) -> Result<Result<Response, StoreError>, String> {
        let (response, expected) = (self.run(store), self.run(reference));
        match response == expected {
            true => Ok(response),
            false => Err(format!("{self:?}\n  store     {response:?}\n  reference {expected:?}")),
        }
    }
}

/// More pages than any test has jobs: a store whose pages do not end fails.
const MAX_PAGES: usize = 100_000;

async fn all_by_time(store: &dyn Store, mut query: TimeQuery) -> Result<Vec<JobView>, StoreError> {
    let mut jobs: Vec<JobView> = Vec::new();
    for _ in 0..MAX_PAGES {
        let page = store.list_by_time(query.clone()).await?;
        assert!(page.jobs.len() <= query.limit.max(1), "no more jobs than the limit");
        jobs.extend(page.jobs);
        query.after = page.cursor;
        if query.after.is_none() {
            for ties in jobs.chunk_by_mut(|a, b| list_time(a) == list_time(b)) {
                ties.sort_by(|a, b| a.id.cmp(&b.id));
            }
            return Ok(jobs);
        }
    }
    panic!("the pages do not end");
}

/// Returns the time by which [`Store::list_by_time`] orders a job.
pub(crate) fn list_time(job: &JobView) -> Option<Timestamp> {
    match job.state {
        JobState::Waiting | JobState::Ready => Some(job.version.due),
        JobState::Leased => job.lease.as_ref().map(|lease| lease.ends_at),
        JobState::Dead => job.died_at,
        JobState::Done => job.done.as_ref().map(|done| done.done_at),
    }
}

/// Values with the weight of each: the number of times out of the sum of all that it is chosen.
pub type Weights<T> = &'static [(usize, T)];

/// What an [`Operation`] is chosen to be.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "each variant is the operation with its name")]
pub enum OperationKind {
    Advance,
    Put,
    Claim,
    Settle,
    Change,
    Restore,
    Reap,
    Set,
    SetSchedule,
    RemoveSchedule,
    Tick,
    List,
    Get,
    Upcoming,
}

/// How the due time of a put is specified.
#[derive(Debug, Clone, Copy)]
pub enum DueKind {
    /// [`Due::Now`].
    Now,
    /// [`Due::After`] a random delay.
    After,
    /// [`Due::At`] a random delay after a second ago.
    At,
}

/// The mode of a put.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "each variant is the `Mode` with its name")]
pub enum ModeKind {
    Replace,
    Earliest,
    Keep,
    Debounce,
}

/// The condition of a put.
#[derive(Debug, Clone, Copy)]
pub enum ConditionKind {
    /// No condition.
    Never,
    /// [`Condition::IfAbsent`].
    Absent,
    /// [`Condition::IfNew`].
    New,
    /// [`Condition::IfGeneration`].
    Generation,
}

/// How a job is changed.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "each variant is the `ChangeKind` with its name")]
pub enum ActionKind {
    Cancel,
    RunNow,
    Revive,
    Reschedule,
}

/// How a lease is settled.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "each variant is the `Settlement` with its name")]
pub enum SettlementKind {
    Ack,
    AckWith,
    Retry,
    Bury,
    Requeue,
    Release,
    Extend,
    /// The lease is not settled and expires.
    Forget,
}

/// A generator of random operations: the weights and ranges, and the receipts so far.
///
/// All choices come from the [`Random`] that is passed to its methods.
///
/// ```
/// use requeue_jobs::MemoryStore;
/// use requeue_testkit::{Fixture, MemoryFixture, Operations, Random};
///
/// let (fixture, mut random) = (MemoryFixture::new(), Random::new(7));
/// let (store, mut operations) = (fixture.store(), Operations::default());
/// for _ in 0..100 {
///     let operation = operations.next(&mut random, fixture.now(), &*store);
///     let response = operation.run(&*store).expect("a store in memory does not fail");
///     operations.keep_receipts(&response);
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Operations {
    /// Which operations are generated.
    pub operations: Weights<OperationKind>,
    /// The kinds of all jobs.
    pub kinds: Vec<Kind>,
    /// The kinds of a claim of several kinds.
    pub claimed_together: Vec<Kind>,
    /// The ids of all jobs.
    pub ids: Vec<JobId>,
    /// The workers that claim jobs.
    pub workers: Vec<WorkerName>,
    /// The number of entries of a batch.
    pub batch: fn(&mut Random) -> usize,
    /// Steps of the clock, delays of puts, and the time until the next run of a schedule.
    pub delay: fn(&mut Random) -> Duration,
    /// The content of a put.
    pub content: fn(&mut Random) -> Content,
    /// The due time of a put.
    pub dues: Weights<DueKind>,
    /// The mode of a put.
    pub modes: Weights<ModeKind>,
    /// The longest wait of a debounce.
    pub max_wait: fn(&mut Random) -> Duration,
    /// The priority of a put.
    pub priority: fn(&mut Random) -> Priority,
    /// The condition of a put.
    pub conditions: Weights<ConditionKind>,
    /// Out of a hundred puts with the condition `IfGeneration`, how many specify an old one.
    pub old_generations: usize,
    /// Whether a claim is of one kind, or of several.
    pub one_kind: Weights<bool>,
    /// The largest number of jobs of a claim.
    pub max_claimed: Weights<usize>,
    /// The length of a lease; `None` is that of the kind.
    pub lease: fn(&mut Random) -> Option<Duration>,
    /// How leases are settled.
    pub settlements: Weights<SettlementKind>,
    /// The delay of a retry, of which half have one, and of a requeue.
    pub retry_delay: fn(&mut Random) -> Duration,
    /// The error of a retry.
    pub error: fn(&mut Random) -> String,
    /// The length of an extension; `None` is that of the kind.
    pub extension: fn(&mut Random) -> Option<Duration>,
    /// How jobs are changed.
    pub changes: Weights<ActionKind>,
    /// The largest number of leases that are reaped.
    pub max_reaped: Weights<usize>,
    /// The settings of a kind.
    pub settings: fn(&mut Random) -> Settings,
    /// The prefixes of ids that are listed.
    pub prefixes: &'static [&'static str],
    /// The number of jobs on a page.
    pub page: Weights<usize>,
    /// The receipts of all leases so far.
    pub receipts: Vec<Receipt>,
}

impl Operations {
    /// Returns the kind of a job.
    pub fn kind(&self, random: &mut Random) -> Kind {
        random.pick(&self.kinds).clone()
    }

    /// Returns the id of a job.
    pub fn id(&self, random: &mut Random) -> JobId {
        random.pick(&self.ids).clone()
    }

    fn batch<T>(&self, random: &mut Random, mut one: impl FnMut(&mut Random) -> T) -> Vec<T> {
        let count = (self.batch)(random);
        (0..count).map(|_| one(random)).collect()
    }

    /// Generates an operation. `reader` is a store that does not fail, from which generations,
    /// settings, schedules and jobs to restore are read.
    pub fn next(&self, random: &mut Random, now: Timestamp, reader: &dyn Store) -> Operation {
        let newest = |kind: &Kind, id: &JobId| {
            job(reader, kind, id).map_or(Generation(1), |job| job.newest_generation())
        };
        match random.weighted(self.operations) {
            OperationKind::Advance => Operation::Advance((self.delay)(random)),
            OperationKind::Put => {
                Operation::Put(self.batch(random, |random| self.put(random, now, newest)))
            }
            OperationKind::Claim => Operation::Claim(self.claim(random)),
            OperationKind::Settle => {
                Operation::Settle(self.batch(random, |random| self.settle(random, reader)))
            }
            OperationKind::Change => {
                Operation::Change(self.batch(random, |random| self.change(random, now, newest)))
            }
            OperationKind::Restore => Operation::Restore(self.restore(random, reader)),
            OperationKind::Reap => Operation::Reap(random.weighted(self.max_reaped)),
            OperationKind::Set => Operation::Set(self.kind(random), (self.settings)(random)),
            OperationKind::SetSchedule => {
                let (kind, schedule) = (self.kind(random), self.schedule(random, now));
                let present = block_on(reader.schedule(kind.clone(), schedule.id.clone()));
                let condition = match (random.below(3), present.ok().flatten()) {
                    (0, _) => ScheduleCondition::Absent,
                    (1, Some(present)) => ScheduleCondition::Next(present.next),
                    (1, None) => ScheduleCondition::Next(now),
                    _ => ScheduleCondition::Always,
                };
                Operation::SetSchedule(kind, schedule, condition)
            }
            OperationKind::RemoveSchedule => {
                Operation::RemoveSchedule(self.kind(random), self.id(random))
            }
            OperationKind::Tick => Operation::Tick(self.tick(random, now, reader)),
            OperationKind::List => Operation::List(self.query(random)),
            OperationKind::Get => Operation::Get(self.kind(random), self.id(random)),
            OperationKind::Upcoming => {
                let length = (self.delay)(random).max(Duration::from_millis(1));
                let length = Duration::from_millis(length.as_millis() as u64);
                let spans = Spans { from: now, length, count: random.below(5) };
                Operation::Upcoming(self.kind(random), spans)
            }
        }
    }

    /// Keeps the receipts of a claim, for later settlements.
    pub fn keep_receipts(&mut self, response: &Response) {
        if let Response::Claim(claimed) = response {
            self.receipts.extend(claimed.jobs.iter().map(|job| job.receipt.clone()));
        }
    }

    /// Removes the receipts that these settlements use, so that later ones rarely use them again.
    pub fn forget_receipts(&mut self, settlements: &[Settle]) {
        let used = |receipt: &_| settlements.iter().any(|settle| settle.receipt == *receipt);
        self.receipts.retain(|receipt| !used(receipt));
    }

    /// Generates a put. `newest` returns the newest generation of a job.
    pub fn put(
        &self,
        random: &mut Random,
        now: Timestamp,
        newest: impl Fn(&Kind, &JobId) -> Generation,
    ) -> Put {
        let content = (self.content)(random);
        let mut put = Put::new(self.kind(random), self.id(random), content);
        put.due = match random.weighted(self.dues) {
            DueKind::Now => Due::Now,
            DueKind::After => Due::After((self.delay)(random)),
            DueKind::At => {
                let second_ago = Timestamp::from_millis(now.as_millis() - 1000);
                Due::At(second_ago.saturating_add((self.delay)(random)))
            }
        };
        put.priority = (self.priority)(random);
        put.mode = match random.weighted(self.modes) {
            ModeKind::Replace => Mode::Replace,
            ModeKind::Earliest => Mode::Earliest,
            ModeKind::Keep => Mode::Keep,
            ModeKind::Debounce => Mode::Debounce { max_wait: (self.max_wait)(random) },
        };
        put.condition = match random.weighted(self.conditions) {
            ConditionKind::Never => None,
            ConditionKind::Absent => Some(Condition::IfAbsent),
            ConditionKind::New => Some(Condition::IfNew),
            ConditionKind::Generation => {
                let newest = newest(&put.kind, &put.id);
                let is_old = self.old_generations > 0 && random.chance(self.old_generations);
                let generation = Generation(newest.0.saturating_sub(u64::from(is_old)));
                Some(Condition::IfGeneration(generation))
            }
        };
        put
    }

    /// Generates a claim.
    pub fn claim(&self, random: &mut Random) -> Claim {
        let kinds = match random.weighted(self.one_kind) {
            true => vec![self.kind(random)],
            false => self.claimed_together.clone(),
        };
        let max = random.weighted(self.max_claimed);
        let lease = (self.lease)(random);
        let worker = match &*self.workers {
            [worker] => worker,
            workers => random.pick(workers),
        };
        Claim { kinds, max, lease, worker: worker.clone(), nonce: random.number() }
    }

    /// Returns a receipt: mostly a recent one, sometimes one of any lease so far, or an invalid one.
    fn receipt(&self, random: &mut Random) -> Receipt {
        let recent = self.receipts.len().saturating_sub(4);
        let among = if random.chance(80) { &self.receipts[recent..] } else { &self.receipts[..] };
        if among.is_empty() {
            return Receipt::new(self.kind(random), self.id(random), Fence(1), 1);
        }
        let receipt = random.pick(among).clone();
        let (fence, nonce) = match random.below(20) {
            0 => (receipt.fence().0 + 1, receipt.nonce()),
            1 => (receipt.fence().0, receipt.nonce() ^ 1),
            _ => return receipt,
        };
        Receipt::new(receipt.kind().clone(), receipt.id().clone(), Fence(fence), nonce)
    }

    fn settle(&self, random: &mut Random, reader: &dyn Store) -> Settle {
        let receipt = self.receipt(random);
        // If a backoff has jitter and ends before the due time of the successor, its end cannot be
        // seen, and a model could not know it.
        let has_hidden_backoff = || {
            let settings = block_on(reader.settings(receipt.kind().clone()));
            settings.is_ok_and(|settings| settings.backoff.jitter_percent > 0)
                && job(reader, receipt.kind(), receipt.id()).is_some_and(|job| job.next.is_some())
        };
        let action = self.settlement(random, has_hidden_backoff);
        Settle { receipt, action: action.unwrap_or(Settlement::Ack) }
    }

    /// Generates a settlement, or `None` if the lease is not settled. A retry always has a delay if
    /// `needs_delay` returns true.
    pub fn settlement(
        &self,
        random: &mut Random,
        needs_delay: impl FnOnce() -> bool,
    ) -> Option<Settlement> {
        Some(match random.weighted(self.settlements) {
            SettlementKind::Ack => Settlement::Ack,
            SettlementKind::AckWith => Settlement::AckWith((self.content)(random).body),
            SettlementKind::Retry => {
                let has_delay = needs_delay() || random.chance(50);
                let delay = has_delay.then(|| (self.retry_delay)(random));
                Settlement::Retry { delay, error: (self.error)(random) }
            }
            SettlementKind::Bury => Settlement::Bury { error: (self.error)(random) },
            SettlementKind::Requeue => Settlement::RequeueAfter((self.retry_delay)(random)),
            SettlementKind::Release => Settlement::Release,
            SettlementKind::Extend => Settlement::Extend((self.extension)(random)),
            SettlementKind::Forget => return None,
        })
    }

    /// Generates a change. `newest` returns the newest generation of a job.
    pub fn change(
        &self,
        random: &mut Random,
        now: Timestamp,
        newest: impl Fn(&Kind, &JobId) -> Generation,
    ) -> Change {
        let action = random.weighted(self.changes);
        // What a reschedule sets is some of what a put sets.
        let put = self.put(random, now, newest);
        let action = match action {
            ActionKind::Cancel => ChangeKind::Cancel,
            ActionKind::RunNow => ChangeKind::RunNow,
            ActionKind::Revive => ChangeKind::Revive,
            ActionKind::Reschedule => {
                let (due, priority, body) = match random.below(5) {
                    0 => (None, Some(put.priority), None),
                    1 => (None, None, Some(put.content.body)),
                    2 => (Some(put.due), Some(put.priority), Some(put.content.body)),
                    _ => (Some(put.due), None, None),
                };
                let if_generation = match put.condition {
                    Some(Condition::IfGeneration(generation)) => Some(generation),
                    _ => None,
                };
                ChangeKind::Reschedule(Reschedule { due, priority, body, if_generation })
            }
        };
        Change { kind: put.kind, id: put.id, action }
    }

    /// Restores jobs under another kind.
    fn restore(&self, random: &mut Random, reader: &dyn Store) -> Restore {
        let query = Query { limit: 5, ..self.query(random) };
        let mut jobs = block_on(reader.list(query)).unwrap_or_default().jobs;
        let kind = self.kind(random);
        jobs.iter_mut().for_each(|job| job.kind = kind.clone());
        Restore { kind, generation: Generation(random.below(50) as u64), fence: Fence(0), jobs }
    }

    fn schedule(&self, random: &mut Random, now: Timestamp) -> Schedule {
        let content = Body::octets(*b"tick").expect("the body is short").into();
        // Sometimes so late that a tick is refused, and must not move the schedule.
        let delay = if random.chance(10) { MAX_DELAY * 2 } else { (self.delay)(random) };
        Schedule {
            id: self.id(random),
            when: "0 3 * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            content,
            missed: Missed::One,
            next: now.saturating_add(delay),
        }
    }

    fn tick(&self, random: &mut Random, now: Timestamp, reader: &dyn Store) -> Tick {
        let kind = self.kind(random);
        let schedules = block_on(reader.schedules(kind.clone())).unwrap_or_default();
        let (id, next) = match schedules.first() {
            Some(schedule) => (schedule.id.clone(), schedule.next),
            None => (self.id(random), now),
        };
        let is_current = random.chance(80);
        let expected = if is_current { next } else { next.saturating_add((self.delay)(random)) };
        let next = expected.saturating_add((self.delay)(random));
        let put = random.chance(70).then(|| {
            let job_id = if random.chance(80) { id.clone() } else { self.id(random) };
            let (content, priority) = ((self.content)(random), (self.priority)(random));
            TickJob { id: job_id, content, priority }
        });
        Tick { kind, id, expected, next, put }
    }

    /// Generates a query.
    pub fn query(&self, random: &mut Random) -> Query {
        let (pending, ended) =
            ([JobState::Waiting, JobState::Ready], [JobState::Dead, JobState::Done]);
        let states = [&pending[..], &[JobState::Leased], &ended].concat();
        let mut query = Query::new(self.kind(random));
        query.state = random.chance(70).then(|| *random.pick(&states));
        query.prefix = (*random.pick(self.prefixes)).to_owned();
        query.after = random.chance(30).then(|| self.id(random));
        query.limit = random.weighted(self.page);
        query
    }
}

impl Default for Operations {
    /// Few kinds, ids, workers and lengths of time, so that operations interfere with each other.
    fn default() -> Self {
        use {ActionKind as C, OperationKind as O, SettlementKind as S};
        let kinds = ["mail", "order.close"].map(|kind| Kind::new(kind).expect("a valid kind"));
        let ids = ["a", "ab", "b", "ü/1", "1.2.mail/a"];
        let workers = ["w1", "w2"];
        Operations {
            operations: &[
                (15, O::Advance),
                (22, O::Put),
                (18, O::Claim),
                (22, O::Settle),
                (10, O::Change),
                (3, O::Reap),
                (4, O::Set),
                (1, O::SetSchedule),
                (1, O::RemoveSchedule),
                (3, O::Tick),
                (1, O::List),
                (1, O::Get),
                (2, O::Upcoming),
            ],
            kinds: kinds.to_vec(),
            claimed_together: kinds.to_vec(),
            ids: ids.map(|id| JobId::new(id).expect("a valid id")).to_vec(),
            workers: workers.map(|name| WorkerName::new(name).expect("a valid name")).to_vec(),
            batch: |random| if random.chance(70) { 1 } else { random.below(4) },
            delay,
            content: random_content,
            dues: &[(1, DueKind::Now), (1, DueKind::After), (1, DueKind::At)],
            modes: &[
                (1, ModeKind::Earliest),
                (1, ModeKind::Keep),
                (2, ModeKind::Debounce),
                (2, ModeKind::Replace),
            ],
            max_wait: delay,
            priority,
            conditions: &[
                (1, ConditionKind::Absent),
                (1, ConditionKind::New),
                (2, ConditionKind::Generation),
                (5, ConditionKind::Never),
            ],
            old_generations: 30,
            one_kind: &[(70, true), (30, false)],
            max_claimed: &[(1, 0), (2, 1), (1, 2), (1, 10)],
            lease,
            settlements: &[
                (2, S::Ack),
                (1, S::AckWith),
                (3, S::Retry),
                (2, S::Release),
                (2, S::Extend),
                (1, S::Bury),
                (1, S::Requeue),
            ],
            retry_delay: delay,
            error: |random| format!("error {}", random.below(100)),
            extension: lease,
            changes: &[(1, C::Cancel), (1, C::RunNow), (1, C::Revive), (2, C::Reschedule)],
            max_reaped: &[(1, 0), (1, 1), (1, 1000)],
            settings,
            prefixes: &["", "a", "ab", "ü", "z"],
            page: &[(1, 0), (1, 1), (1, 2), (1, 100)],
            receipts: Vec::new(),
        }
    }
}

/// One of a few lengths that are sums of each other, so that many things happen at the same time.
fn delay(random: &mut Random) -> Duration {
    // Sometimes not a whole number of milliseconds: a store rounds it up.
    let nanos = if random.chance(5) { 1 } else { 0 };
    let millis = *random.pick(&[0, 1, 10, 1000, 2000, 5000]);
    Duration::from_millis(millis) + Duration::from_nanos(nanos)
}

fn priority(random: &mut Random) -> Priority {
    Priority::new(*random.pick(&[0, 0, 0, 1, 5, 9])).expect("a valid priority")
}

fn lease(random: &mut Random) -> Option<Duration> {
    let millis = *random.pick(&[0, 0, 10, 1000, 5000]);
    (millis > 0).then(|| Duration::from_millis(millis))
}

fn settings(random: &mut Random) -> Settings {
    let mut settings = Settings::default();
    if random.chance(10) {
        return settings;
    }
    settings.lease = Duration::from_millis(*random.pick(&[10, 1000, 5000]));
    settings.backoff = Backoff {
        base: delay(random).min(Duration::from_secs(4)),
        max: Duration::from_secs(4),
        jitter_percent: *random.pick(&[0, 0, 50, 100]),
    };
    settings.max_attempts = *random.pick(&[0, 1, 2, 3, 20]);
    settings.concurrency = *random.pick(&[None, None, Some(1), Some(1), Some(2)]);
    if random.chance(30) {
        let per = Duration::from_millis(*random.pick(&[1, 700, 1000, 60_000]));
        let (jobs, burst) =
            (*random.pick(&[1, 3, 10]), *random.pick(&[None, Some(1), Some(2), Some(5)]));
        settings.rate = Some(Rate { jobs, per, burst });
    }
    let ageing = *random.pick(&[0, 1, 700, 2000, 600_000]);
    settings.ageing = (ageing > 0).then(|| Duration::from_millis(ageing));
    settings.paused = random.chance(10);
    let age = Duration::from_millis(*random.pick(&[0, 1000, 86_400_000]));
    settings.retention = Retention { age, count: *random.pick(&[0, 1, 100]) };
    if random.chance(50) {
        let age = Duration::from_millis(*random.pick(&[0, 1000, 86_400_000]));
        settings.keep_done = Some(Retention { age, count: *random.pick(&[0, 1, 100]) });
    }
    settings
}

fn job(reader: &dyn Store, kind: &Kind, id: &JobId) -> Option<JobView> {
    block_on(reader.get(kind.clone(), id.clone())).ok().flatten()
}

fn random_content(random: &mut Random) -> Content {
    let body = Body::octets(random.number().to_le_bytes()).expect("the body is short");
    Content { body, head: random_head(random) }
}

/// Returns a head that is without fields in two of three cases.
pub fn random_head(random: &mut Random) -> Head {
    if random.below(3) > 0 {
        return Head::default();
    }
    let bytes: Vec<u8> = (0..random.below(40)).map(|_| random.number() as u8).collect();
    let envelope = Envelope::new(bytes, "application/x-test").expect("it is short");
    envelope.into()
}
