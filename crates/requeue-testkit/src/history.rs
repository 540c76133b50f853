//! Random histories: the same steps on a store and on the [`Model`], compared after each.
//!
//! Few kinds, ids and workers, and few lengths of time, so that steps meet: ties, puts during a
//! lease, receipts of long ago. After each step all jobs are listed, page by page, and counts,
//! settings and schedules are read.
//!
//! A seed makes a history. What fails is printed with its seed and the steps up to the first
//! difference; `REQUEUE_SEED` runs one seed again, `REQUEUE_HISTORIES` says how many to run.

mod step;

use crate::fixture::{Fixture, block_on};
use crate::model::Model;
use crate::random::{self, Random};
use requeue_jobs::{
    Claim, Claimed, ExpiredLease, JobState, JobView, Kind, Page, Placed, PutError, Query, Receipt,
    Settled, Store, StoreFuture, Ticked, Timestamp,
};
use std::fmt::Debug;
use std::sync::Arc;
use step::{Range, Step};

/// Steps of a history: enough for a job to be put, fail, die and be revived.
const STEPS: usize = 80;

/// Runs random histories on fresh stores: those of the seeds that `failed_once`, and as many
/// new ones as `REQUEUE_HISTORIES` says, or else `count`.
///
/// ```
/// use requeue_testkit::{MemoryFixture, check_histories};
///
/// check_histories(MemoryFixture::new, &[7], 3);
/// ```
///
/// # Panics
///
/// Where a store differs from the model, with the seed and what led there.
pub fn check_histories<F: Fixture>(fixture: impl Fn() -> F, failed_once: &[u64], count: u64) {
    random::check_seeds(failed_once, "REQUEUE_HISTORIES", count, |seed| {
        check_history(&fixture(), seed)
    });
}

/// Runs one history. What is wrong is answered with the steps up to there.
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
    let mut history = History {
        store: fixture.store(),
        fixture,
        model,
        receipts: Vec::new(),
        range: Range::random(&mut random),
        random,
    };
    let mut done: Vec<String> = Vec::new();
    for _ in 0..STEPS {
        let step = history.random_step();
        done.push(format!("{:?} {step:?}", fixture.now().as_millis()));
        if let Err(difference) = history.take(&step).and_then(|()| history.compare()) {
            return Err(format!("{}\n{difference}", done.join("\n")));
        }
        fixture.check();
    }
    Ok(())
}

struct History<'a> {
    fixture: &'a dyn Fixture,
    store: Arc<dyn Store>,
    model: Model,
    /// All that were given out, the stale ones too.
    receipts: Vec<Receipt>,
    range: Range,
    random: Random,
}

/// What differs.
type Compared = Result<(), String>;

fn same<T: Debug + PartialEq>(what: &str, store: &T, model: &T) -> Compared {
    if store == model {
        return Ok(());
    }
    Err(format!("{what}:\n  store {store:?}\n  model {model:?}"))
}

/// Tells only of jobs that differ.
fn same_jobs(store: &[JobView], model: &[JobView]) -> Compared {
    let but = |these: &[JobView], those: &[JobView]| {
        these.iter().filter(|job| !those.contains(job)).cloned().collect::<Vec<_>>()
    };
    match (but(store, model), but(model, store)) {
        _ if store == model => Ok(()),
        (more, less) if more.is_empty() && less.is_empty() => Err("jobs come otherwise".to_owned()),
        (more, less) => same("jobs", &more, &less),
    }
}

fn answer<T>(answer: StoreFuture<'_, T>) -> Result<T, String> {
    block_on(answer).map_err(|error| format!("the store failed: {error}"))
}

impl History<'_> {
    /// Takes a step on both, and compares their answers.
    fn take(&mut self, step: &Step) -> Compared {
        let now = self.fixture.now();
        let (store, model) = (&*self.store, &mut self.model);
        match step.clone() {
            Step::Advance(by) => self.fixture.advance(by),
            Step::Put(puts) => {
                let placed = answer(store.put(puts.clone()))?;
                let expect = |(put, placed): (_, &Result<Placed, _>)| {
                    let given = placed.as_ref().ok().map(|placed| placed.generation);
                    model.put(put, given, now)
                };
                let expected = puts.iter().zip(&placed).map(expect).collect();
                same("put", &placed, &expected)?;
            }
            Step::Claim(claim) => {
                let claimed = answer(store.claim(claim.clone()))?;
                same("errors of a claim", &claimed.errors, &Vec::new())?;
                self.receipts.extend(claimed.jobs.iter().map(|job| job.receipt.clone()));
                self.follow_claim(&claim, &claimed, now)?;
            }
            Step::Settle(settlements) => {
                let settled = answer(store.settle(settlements.clone()))?;
                let expect = |(settle, settled): (_, &Result<Settled, _>)| {
                    let given = match settled {
                        Ok(Settled::RetryAt(at)) => Some(*at),
                        _ => None,
                    };
                    model.settle(settle, given, now)
                };
                let expected = settlements.iter().zip(&settled).map(expect).collect();
                same("settle", &settled, &expected)?;
            }
            Step::Change(changes) => {
                let changed = answer(store.change(changes.clone()))?;
                let expected = changes.iter().map(|change| model.change(change, now)).collect();
                same("change", &changed, &expected)?;
            }
            Step::Reap(max) => {
                let reaped = answer(store.reap(max))?;
                let jobs = listed(store)?;
                let expected = model.reap(max, &jobs, now);
                let ended = expected.count;
                let (dropped, left) = model.drop_dead(&jobs, now);
                if !(ended..=ended + dropped).contains(&reaped.count) {
                    let reaped = reaped.count;
                    return Err(format!("reaped {reaped} of {ended} leases and {dropped} dead"));
                }
                if left && max > step::IDS.len() {
                    return Err("reap kept dead jobs past their retention".to_owned());
                }
                self.same_expired(&reaped.expired, &expected.expired)?;
            }
            Step::Set(kind, settings) => {
                answer(store.set(kind.clone(), settings.clone()))?;
                model.set(&kind, settings);
            }
            Step::SetSchedule(kind, schedule) => {
                answer(store.set_schedule(kind.clone(), schedule.clone()))?;
                model.set_schedule(&kind, schedule);
            }
            Step::RemoveSchedule(kind, id) => {
                let removed = answer(store.remove_schedule(kind.clone(), id.clone()))?;
                same("remove_schedule", &removed, &model.remove_schedule(&kind, &id))?;
            }
            Step::Tick(tick) => {
                let ticked = block_on(store.tick(tick.clone())).map_err(PutError::from);
                let given = match &ticked {
                    Ok(Ticked::Put(placed)) => Some(placed.generation),
                    _ => None,
                };
                same("tick", &ticked, &model.tick(&tick, given, now))?;
            }
            Step::List(query) => {
                let page = answer(store.list(query.clone()))?;
                same(
                    "list",
                    &without_due_of_dead(page),
                    &without_due_of_dead(model.list(&query, now)),
                )?;
            }
            Step::Get(kind, id) => {
                let job = answer(store.get(kind.clone(), id.clone()))?.map(told);
                same("get", &job, &model.get(&kind, &id, now).map(told))?;
            }
            Step::Upcoming(kind, spans) => {
                let counts = answer(store.upcoming(kind.clone(), spans))?;
                same("upcoming", &counts, &model.upcoming(&kind, spans))?;
            }
        }
        Ok(())
    }

    /// Which kind was first is the store's choice: one of them must explain what it did.
    fn follow_claim(&mut self, claim: &Claim, claimed: &Claimed, now: Timestamp) -> Compared {
        let jobs = listed(&*self.store)?;
        let mut difference = Ok(());
        for first in 0..claim.kinds.len() {
            let mut kinds = claim.kinds.clone();
            kinds.rotate_left(first);
            let mut model = self.model.clone();
            let expected = model.claim(claim, &kinds, &claimed.jobs, &jobs, now);
            model.drop_dead(&jobs, now);
            difference = same("claim", &claimed.jobs, &expected.jobs)
                .and_then(|()| self.same_expired(&claimed.expired, &expected.expired))
                .and_then(|()| same_jobs(&jobs, &all_of(&model, now)));
            if difference.is_ok() {
                self.model = model;
                break;
            }
        }
        difference
    }

    /// Compares the expired leases that were reported, in any order: that of ties is the store's.
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

    /// Compares everything that can be seen.
    fn compare(&mut self) -> Compared {
        let now = self.fixture.now();
        let (store, model) = (&*self.store, &mut self.model);
        let jobs = listed(store)?;
        model.drop_dead(&jobs, now);
        same_jobs(&jobs, &all_of(model, now))?;
        same("kinds", &answer(store.kinds())?, &model.kinds(now))?;
        for kind in step::kinds() {
            let settings = answer(store.settings(kind.clone()))?;
            same("settings", &settings, &model.settings(&kind))?;
            let schedules = answer(store.schedules(kind.clone()))?;
            same("schedules", &schedules, &model.schedules(&kind))?;
        }
        Ok(())
    }
}

/// All jobs of a store, by small pages.
fn listed(store: &dyn Store) -> Result<Vec<JobView>, String> {
    let mut jobs = Vec::new();
    for kind in step::kinds() {
        let mut query = Query { limit: 3, ..Query::new(kind) };
        loop {
            let page = answer(store.list(query.clone()))?;
            jobs.extend(page.jobs.into_iter().map(told));
            let Some(cursor) = page.cursor else { break };
            query.after = Some(cursor);
        }
    }
    Ok(jobs)
}

fn all_of(model: &Model, now: Timestamp) -> Vec<JobView> {
    let all = |kind: Kind| model.list(&Query { limit: 1000, ..Query::new(kind) }, now).jobs;
    step::kinds().into_iter().flat_map(all).map(told).collect()
}

/// When a dead job would have been due, nobody promises.
fn told(mut job: JobView) -> JobView {
    if job.state == JobState::Dead {
        job.due = Timestamp::default();
    }
    job
}

fn without_due_of_dead(mut page: Page) -> Page {
    page.jobs = page.jobs.into_iter().map(told).collect();
    page
}
