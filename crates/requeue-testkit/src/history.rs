//! Random histories: the same operations on a store and on the [`Model`], compared after each.
//!
//! After each operation all jobs are listed, page by page, those of one state in the order of time, and
//! counts, settings and schedules are read.
//!
//! A seed generates a history. A failure reports the seed and the operations up to the first
//! difference. `REQUEUE_SEED` repeats one seed, `REQUEUE_HISTORIES` specifies how many to run.

use crate::fixture::{Fixture, block_on};
use crate::model::Model;
use crate::operations::{ActionKind, Operation, Operations, Response, SettlementKind};
use crate::random::{self, Random};
use requeue_jobs::{
    Changed, Claim, Claimed, ExpiredLease, JobState, JobView, Kind, Page, Placed, PutError, Query,
    Settled, Settlement, Store, StoreError, StoreFuture, Ticked, TimeQuery, Timestamp,
};
use std::fmt::Debug;
use std::sync::Arc;

/// Operations of a history: enough for a job to be put, fail, die and be revived.
const STEPS: usize = 80;

/// Runs random histories on fresh stores: those of the seeds in `failed_once`, and `count` others,
/// or as many as `REQUEUE_HISTORIES` specifies.
///
/// ```
/// use requeue_testkit::{MemoryFixture, check_histories};
///
/// check_histories(MemoryFixture::new, &[7], 3);
/// ```
///
/// # Panics
///
/// If a store differs from the model, with the seed and the operations up to the difference.
pub fn check_histories<F: Fixture>(fixture: impl Fn() -> F, failed_once: &[u64], count: u64) {
    random::check_seeds(failed_once, "REQUEUE_HISTORIES", count, |seed| {
        check_history(&fixture(), seed)
    });
}

/// Runs one history. If the store differs from the model, the error contains the operations up to
/// the difference.
///
/// ```
/// use requeue_testkit::{MemoryFixture, check_history};
///
/// assert_eq!(check_history(&MemoryFixture::new(), 7), Ok(()));
/// ```
pub fn check_history(fixture: &dyn Fixture, seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let model = match fixture.orders_ties() {
        true => Model::default(),
        false => Model::of_unordered_ties(),
    };
    let mut operations = random_operations(&mut random);
    let mut history = History { store: fixture.store(), fixture, model, compared: 0 };
    let mut done: Vec<String> = Vec::new();
    for _ in 0..STEPS {
        let operation = operations.next(&mut random, fixture.now(), &*history.store);
        done.push(format!("{:?} {operation:?}", fixture.now().as_millis()));
        let response = operation.run(&*history.store);
        if let Ok(response) = &response {
            operations.keep_receipts(response);
        }
        let checked = history.check(&operation, response);
        if let Err(difference) = checked.and_then(|()| history.compare()) {
            return Err(format!("{}\n{difference}", done.join("\n")));
        }
        fixture.check();
    }
    Ok(())
}

/// Some histories have many jobs, others one job that much happens to. In some nothing succeeds, so
/// that jobs fail often.
fn random_operations(random: &mut Random) -> Operations {
    use {ActionKind as C, SettlementKind as S};
    let mut operations = Operations::default();
    operations.kinds.truncate(1 + random.below(operations.kinds.len()));
    operations.ids.truncate(1 + random.below(operations.ids.len()));
    if random.chance(20) {
        operations.settlements =
            &[(6, S::Retry), (2, S::Release), (2, S::Extend), (1, S::Bury), (1, S::Requeue)];
        operations.changes = &[(1, C::RunNow), (1, C::Revive), (1, C::Reschedule)];
    }
    operations
}

/// All kinds of a history.
fn kinds() -> Vec<Kind> {
    Operations::default().kinds
}

struct History<'a> {
    fixture: &'a dyn Fixture,
    store: Arc<dyn Store>,
    model: Model,
    /// How often everything was compared. Chooses which jobs are listed by time.
    compared: usize,
}

/// An error describes the difference.
type Compared = Result<(), String>;

fn same<T: Debug + PartialEq>(what: &str, store: &T, model: &T) -> Compared {
    if store == model {
        return Ok(());
    }
    Err(format!("{what}:\n  store {store:?}\n  model {model:?}"))
}

/// Compares jobs, and reports only those that differ.
fn same_jobs(store: &[JobView], model: &[JobView]) -> Compared {
    let but = |these: &[JobView], those: &[JobView]| {
        these.iter().filter(|job| !those.contains(job)).cloned().collect::<Vec<_>>()
    };
    match (but(store, model), but(model, store)) {
        _ if store == model => Ok(()),
        (more, less) if more.is_empty() && less.is_empty() => {
            Err("jobs are listed in another order".to_owned())
        }
        (more, less) => same("jobs", &more, &less),
    }
}

fn succeeded<T>(result: Result<T, StoreError>) -> Result<T, String> {
    result.map_err(|error| format!("the store failed: {error}"))
}

fn read<T>(call: StoreFuture<'_, T>) -> Result<T, String> {
    succeeded(block_on(call))
}

impl History<'_> {
    /// Runs an operation on the model, and compares the response of the store with it.
    fn check(&mut self, operation: &Operation, response: Result<Response, StoreError>) -> Compared {
        let now = self.fixture.now();
        let model = &mut self.model;
        if let Operation::Tick(tick) = operation {
            let ticked = match response {
                Ok(Response::Tick(ticked)) => Ok(ticked),
                Ok(other) => return Err(format!("a tick returned {other:?}")),
                Err(error) => Err(PutError::from(error)),
            };
            let given = match &ticked {
                Ok(Ticked::Put(placed)) => Some(placed.generation),
                _ => None,
            };
            return same("tick", &ticked, &model.tick(tick, given, now));
        }
        match (operation, succeeded(response)?) {
            (Operation::Advance(by), _) => self.fixture.advance(*by),
            (Operation::Put(puts), Response::Put(placed)) => {
                let expect = |(put, placed): (_, &Result<Placed, _>)| {
                    let given = placed.as_ref().ok().map(|placed| placed.generation);
                    model.put(put, given, now)
                };
                same("put", &placed, &puts.iter().zip(&placed).map(expect).collect())?;
            }
            (Operation::Claim(claim), Response::Claim(claimed)) => {
                same("errors of a claim", &claimed.errors, &Vec::new())?;
                self.follow_claim(claim, &claimed, now)?;
            }
            (Operation::Settle(settlements), Response::Settle(settled)) => {
                let mut expected = Vec::new();
                for (settle, settled) in settlements.iter().zip(&settled) {
                    let given = match settled {
                        Ok(Settled::RetryAt(at)) => Some(*at),
                        _ => None,
                    };
                    let (kind, id) = (settle.receipt.kind().clone(), settle.receipt.id().clone());
                    let assigned = match (&settle.action, settled) {
                        (Settlement::RequeueAfter(_), Ok(Settled::Done)) => {
                            read(self.store.get(kind, id))?.map(|job| job.newest_generation())
                        }
                        _ => None,
                    };
                    expected.push(model.settle(settle, given, assigned, now));
                }
                same("settle", &settled, &expected)?;
            }
            (Operation::Change(changes), Response::Change(changed)) => {
                let expect = |(change, changed): (_, &Result<Changed, _>)| {
                    let given = match changed {
                        Ok(Changed::Rescheduled(placed)) => Some(placed.generation),
                        _ => None,
                    };
                    model.change(change, given, now)
                };
                same("change", &changed, &changes.iter().zip(&changed).map(expect).collect())?;
            }
            (Operation::Reap(max), Response::Reap(reaped)) => {
                let jobs = listed(&*self.store)?;
                let expected = model.reap(*max, &jobs, now);
                let ended = expected.count;
                let (dropped, left) = model.drop_old(&jobs, now);
                if !(ended..=ended + dropped).contains(&reaped.count) {
                    let reaped = reaped.count;
                    return Err(format!("reaped {reaped} of {ended} leases and {dropped} dead"));
                }
                if left && *max >= 1000 {
                    return Err("reap kept dead jobs past their retention".to_owned());
                }
                self.same_expired(&reaped.expired, &expected.expired)?;
            }
            (Operation::Set(kind, settings), _) => model.set(kind, settings.clone()),
            (Operation::SetSchedule(kind, schedule, condition), Response::SetSchedule(was_set)) => {
                let expected = model.set_schedule(kind, schedule.clone(), *condition);
                same("set_schedule", &was_set, &expected)?;
            }
            (Operation::RemoveSchedule(kind, id), Response::RemoveSchedule(removed)) => {
                same("remove_schedule", &removed, &model.remove_schedule(kind, id))?;
            }
            (Operation::List(query), Response::List(page)) => {
                let expected = model.list(query, now);
                same("list", &without_dues_of_dead(page), &without_dues_of_dead(expected))?;
            }
            (Operation::Get(kind, id), Response::Get(job)) => {
                let expected = model.get(kind, id, now);
                let job = job.map(without_due_of_dead);
                same("get", &job, &expected.map(without_due_of_dead))?;
            }
            (Operation::Upcoming(kind, spans), Response::Upcoming(counts)) => {
                same("upcoming", &counts, &model.upcoming(kind, *spans))?;
            }
            (operation, response) => return Err(format!("{operation:?} returned {response:?}")),
        }
        Ok(())
    }

    /// The store decides with which kind a claim begins: one of them must explain the result.
    fn follow_claim(&mut self, claim: &Claim, claimed: &Claimed, now: Timestamp) -> Compared {
        let jobs = listed(&*self.store)?;
        let mut difference = Ok(());
        for first in 0..claim.kinds.len() {
            let mut kinds = claim.kinds.clone();
            kinds.rotate_left(first);
            let mut model = self.model.clone();
            let expected = model.claim(claim, &kinds, &claimed.jobs, &jobs, now);
            model.drop_old(&jobs, now);
            difference = same("claim", &claimed.jobs, &expected.jobs)
                .and_then(|()| self.same_expired(&claimed.expired, &expected.expired))
                .and_then(|()| same_jobs(&jobs, &jobs_of(&model, now)));
            if difference.is_ok() {
                self.model = model;
                break;
            }
        }
        difference
    }

    /// Compares the reported expired leases, in any order: a store may order ties as it likes.
    fn same_expired(&self, store: &[ExpiredLease], model: &[ExpiredLease]) -> Compared {
        if !self.fixture.reports_expired_leases() {
            return Ok(());
        }
        let sorted = |leases: &[ExpiredLease]| {
            let mut leases = leases.to_vec();
            leases.sort_unstable_by(|a, b| (&a.kind, &a.id).cmp(&(&b.kind, &b.id)));
            leases
        };
        same("expired leases", &sorted(store), &sorted(model))
    }

    /// Compares everything that can be read.
    fn compare(&mut self) -> Compared {
        let now = self.fixture.now();
        let (store, model) = (&*self.store, &mut self.model);
        let jobs = listed(store)?;
        model.drop_old(&jobs, now);
        same_jobs(&jobs, &jobs_of(model, now))?;
        same("kinds", &read(store.kinds())?, &model.kinds(now))?;
        let query = time_query(self.compared);
        self.compared += 1;
        let response = succeeded(Operation::ListByTime(query.clone()).run(store))?;
        let expected = without_dues(model.list_by_time(&query, now));
        match response {
            Response::ListByTime(jobs) => same("jobs by time", &without_dues(jobs), &expected)?,
            other => return Err(format!("{query:?} returned {other:?}")),
        }
        for kind in kinds() {
            let settings = read(store.settings(kind.clone()))?;
            same("settings", &settings, &model.settings(&kind))?;
            let schedules = read(store.schedules(kind.clone()))?;
            same("schedules", &schedules, &model.schedules(&kind))?;
            if let Some(first) = schedules.first() {
                let one = read(store.schedule(kind.clone(), first.id.clone()))?;
                same("schedule", &one.as_ref(), &Some(first))?;
            }
        }
        Ok(())
    }
}

/// Returns the query of the `n`th comparison: after a few of them, every kind was listed in every
/// state and order.
fn time_query(n: usize) -> TimeQuery {
    let states =
        [JobState::Ready, JobState::Leased, JobState::Waiting, JobState::Dead, JobState::Done];
    let kinds = kinds();
    let kind = kinds[n / 2 % kinds.len()].clone();
    let newest_first = n / 4 % 2 == 1;
    TimeQuery { newest_first, limit: 1 + n % 3, ..TimeQuery::new(kind, states[n % states.len()]) }
}

/// Returns all jobs of a store, read in small pages.
fn listed(store: &dyn Store) -> Result<Vec<JobView>, String> {
    let mut jobs = Vec::new();
    for kind in kinds() {
        let mut query = Query { limit: 3, ..Query::new(kind) };
        loop {
            let page = read(store.list(query.clone()))?;
            jobs.extend(page.jobs.into_iter().map(without_due_of_dead));
            let Some(cursor) = page.cursor else { break };
            query.after = Some(cursor);
        }
    }
    Ok(jobs)
}

fn jobs_of(model: &Model, now: Timestamp) -> Vec<JobView> {
    let all = |kind: Kind| model.list(&Query { limit: 1000, ..Query::new(kind) }, now).jobs;
    kinds().into_iter().flat_map(all).map(without_due_of_dead).collect()
}

/// The contract does not specify the due time of a dead job.
fn without_due_of_dead(mut job: JobView) -> JobView {
    if job.state == JobState::Dead {
        job.version.due = Timestamp::default();
    }
    job
}

fn without_dues(jobs: Vec<JobView>) -> Vec<JobView> {
    jobs.into_iter().map(without_due_of_dead).collect()
}

fn without_dues_of_dead(mut page: Page) -> Page {
    page.jobs = without_dues(page.jobs);
    page
}
