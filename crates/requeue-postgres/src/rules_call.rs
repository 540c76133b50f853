//! Calls that run the rules of the contract in this process: on jobs that a transaction has locked.
//!
//! ```text
//!   begin, lock the jobs, read the kind  ──▶  rules  ──▶  write what has changed, commit
//! ```
//!
//! The frequent calls (puts, claims of plain kinds, acks, extensions) are single statements instead.

use crate::database::{Failure, Session};
use crate::jobs_table::{Changes, JobsTable};
use crate::locked::Patience;
use crate::rows::{self, number, stored_number, stored_time, time};
use crate::settings;
use crate::store::{KindRef, Shared};
use crate::text::escape;
use requeue_jobs::limits::MAX_RESULT_BYTES;
use requeue_jobs::rules::{KindState, RateUse, ReservedNumbers};
use requeue_jobs::{JobId, StoreError, Timestamp};
use tokio_postgres::types::ToSql;

/// How often a call begins again, because another transaction has created one of its jobs.
const REPEATS: usize = 20;

/// What a call locks and reads.
#[derive(Default, Clone)]
pub(crate) struct Load {
    /// These jobs, if they exist.
    pub(crate) ids: Vec<JobId>,
    /// The first jobs that are due, and the first expired leases: how many of each priority.
    pub(crate) claimable: Option<(usize, usize)>,
    /// The oldest dead and done jobs, if there are too many.
    pub(crate) oldest: bool,
    /// A schedule.
    pub(crate) schedule: Option<JobId>,
    /// Whether other such calls for the kind have to wait: for the limits of a kind.
    pub(crate) exclusive: bool,
    /// Whether the call takes or returns tokens of a rate limit.
    pub(crate) uses_tokens: bool,
    /// Generations and fences that were imported.
    pub(crate) raise: Option<(u64, u64)>,
}

impl Shared {
    /// Runs rules on locked jobs. `act` is called again if another transaction interferes. A job that an open transaction has
    /// locked makes this unavailable after a second.
    pub(crate) async fn with_rules<T: Send>(
        &self,
        kind: &KindRef,
        load: &Load,
        mut act: impl FnMut(&mut KindState<JobsTable>, Timestamp) -> T + Send,
    ) -> Result<T, StoreError> {
        let patience = Patience::new();
        loop {
            match self.try_with_rules(kind, load, &mut act).await {
                Err(RulesError::Locked(_)) if patience.pause().await => {}
                result => return result.map_err(StoreError::from),
            }
        }
    }

    /// As [`with_rules`](Shared::with_rules), but waits only a moment for jobs that other transactions have locked.
    pub(crate) async fn try_with_rules<T: Send>(
        &self,
        kind: &KindRef,
        load: &Load,
        mut act: impl FnMut(&mut KindState<JobsTable>, Timestamp) -> T + Send,
    ) -> Result<T, RulesError> {
        let mut repeats = 0;
        loop {
            let mut session =
                self.database.session_of(kind.number).await.map_err(Failure::for_read)?;
            let failure = match self.attempt(&mut session, kind, load, &mut act).await {
                Ok(Some(result)) => return Ok(result),
                // Another transaction has created one of the jobs.
                Ok(None) => {
                    session.roll_back().await;
                    Failure::Repeat("jobs are created concurrently".to_owned())
                }
                Err(Interrupted::Before(failure)) => {
                    session.roll_back().await;
                    failure
                }
                Err(Interrupted::Store(error)) => {
                    session.roll_back().await;
                    return Err(error.into());
                }
                Err(Interrupted::Commit(failure)) => return Err(failure.for_write().into()),
            };
            repeats += 1;
            if !matches!(failure, Failure::Repeat(_)) || repeats >= REPEATS {
                // Nothing was committed.
                return Err(match failure {
                    Failure::Locked(reason) => RulesError::Locked(reason),
                    other => other.for_read().into(),
                });
            }
        }
    }

    async fn attempt<T: Send>(
        &self,
        session: &mut Session<'_>,
        kind: &KindRef,
        load: &Load,
        act: &mut (impl FnMut(&mut KindState<JobsTable>, Timestamp) -> T + Send),
    ) -> Result<Option<T>, Interrupted> {
        let (sql, test) = (&self.statements, self.test_time());
        session.begin().await?;
        if load.exclusive {
            session.query(&sql.lock_kind, &[&kind.number]).await?;
        }
        let mut table = JobsTable::default();
        let mut rows = Vec::new();
        if !load.ids.is_empty() {
            let mut ids: Vec<_> = load.ids.iter().map(|id| escape(id.as_str())).collect();
            ids.sort_unstable();
            ids.dedup();
            rows.extend(session.query(&sql.lock_jobs, &[&kind.number, &ids]).await?);
        }
        if let Some((pending, leased)) = load.claimable {
            let (from, bytes) = (if pending > 0 { 0 } else { 10 }, MAX_RESULT_BYTES as i64);
            let (pending, leased) = (pending as i32, leased as i32);
            rows.extend(
                session
                    .query(
                        &sql.lock_claimable,
                        &[&test, &kind.number, &from, &pending, &leased, &bytes],
                    )
                    .await?,
            );
        }
        if load.oldest {
            rows.extend(session.query(&sql.lock_oldest, &[&test, &kind.number]).await?);
        }
        for row in &rows {
            let (id, record) = rows::read(row, 0)?;
            table.add(id, record);
        }
        let schedule = match &load.schedule {
            Some(id) => {
                let id = escape(id.as_str());
                session.query(&sql.lock_schedule, &[&kind.number, &id]).await?
            }
            None => Vec::new(),
        };
        if let Some((generation, fence)) = load.raise {
            let (generation, fence) = (stored_number(generation), stored_number(fence));
            session.query(&sql.raise_offsets, &[&kind.number, &generation, &fence]).await?;
        }
        let numbers = ReservedNumbers::enough_for(rows.len() + load.ids.len());
        let mut context = Context::read(session, self, kind, numbers).await?;
        let needs_lock =
            context.is_near_limit || (load.uses_tokens && context.settings.rate.is_some());
        if needs_lock && !load.exclusive {
            session.query(&sql.lock_kind, &[&kind.number]).await?;
            context = Context::read(session, self, kind, numbers).await?;
        }
        (table.dead, table.done, table.unexpired) = (context.dead, context.done, context.unexpired);
        let mut state = KindState::new(kind.name.clone(), table);
        state.settings = context.settings.clone();
        (state.counters.generation, state.counters.fence) = (context.generation, context.fence);
        state.rate_use = context.rate_use;
        state.use_numbers(context.numbers);
        for row in &schedule {
            let schedule = crate::schedules::read(row)?;
            state.schedules.insert(schedule.id.clone(), schedule);
        }

        let result = act(&mut state, context.now);

        let changes = state.table.changes();
        if !self.write(session, kind, &changes).await? {
            return Ok(None);
        }
        let newer = |new: u64, old: u64| if new > old { stored_number(new) } else { 0 };
        let raised = load.raise.unwrap_or_default();
        let generation = newer(state.counters.generation.max(raised.0), context.generation);
        let fence = newer(state.counters.fence.max(raised.1), context.fence);
        let generation =
            generation.max(changes.removed.map_or(0, |removed| stored_number(removed.0)));
        let (is_removed, [pending, leased, dead, done]) =
            (changes.removed.is_some(), changes.counts);
        if changes.counts != [0; 4] || generation > 0 || fence > 0 {
            let params: [&(dyn ToSql + Sync); 8] =
                [&kind.number, &pending, &leased, &dead, &done, &generation, &fence, &is_removed];
            session.query(&sql.add_delta, &params).await?;
        }
        if state.rate_use != context.rate_use {
            let RateUse { parts, at } = state.rate_use;
            let (parts, at) = (stored_number(parts), stored_time(at));
            session.query(&sql.add_rate_use, &[&kind.number, &parts, &at]).await?;
        }
        for schedule in state.schedules.values() {
            let (id, next) = (escape(schedule.id.as_str()), stored_time(schedule.next));
            session.query(&sql.move_schedule, &[&kind.number, &id, &next]).await?;
        }
        session.commit().await.map_err(Interrupted::Commit)?;
        if let Some(first) = changes.first_pending {
            self.became_pending(kind, first, context.now);
        }
        if leased < 0 {
            // There may be room for another lease.
            self.watch.forget(kind);
        }
        Ok(Some(result))
    }

    /// Writes changed jobs. Returns `false` if a new one exists already.
    async fn write(
        &self,
        session: &mut Session<'_>,
        kind: &KindRef,
        changes: &Changes<'_>,
    ) -> Result<bool, Interrupted> {
        if changes.is_empty() {
            return Ok(true);
        }
        let Changes { deleted, written, are_new, .. } = changes;
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&kind.number, deleted, are_new];
        params.extend(written.params());
        Ok(session.query(&self.statements.write, &params).await?[0].get(0))
    }
}

/// Why a call has no result.
pub(crate) enum RulesError {
    /// Nothing was changed, because another transaction has held a lock for too long.
    Locked(String),
    Store(StoreError),
}

impl From<StoreError> for RulesError {
    fn from(error: StoreError) -> Self {
        RulesError::Store(error)
    }
}

impl From<RulesError> for StoreError {
    fn from(error: RulesError) -> Self {
        match error {
            RulesError::Locked(reason) => StoreError::Unavailable { reason },
            RulesError::Store(error) => error,
        }
    }
}

/// Why a call was not completed.
enum Interrupted {
    /// Before the commit.
    Before(Failure),
    /// By an error that repeating does not change.
    Store(StoreError),
    /// During the commit.
    Commit(Failure),
}

impl From<Failure> for Interrupted {
    fn from(failure: Failure) -> Self {
        Interrupted::Before(failure)
    }
}

impl From<StoreError> for Interrupted {
    fn from(error: StoreError) -> Self {
        Interrupted::Store(error)
    }
}

/// What the rules need to know of a kind.
struct Context {
    now: Timestamp,
    settings: requeue_jobs::Settings,
    is_near_limit: bool,
    dead: u64,
    done: u64,
    unexpired: usize,
    generation: u64,
    fence: u64,
    rate_use: RateUse,
    numbers: ReservedNumbers,
}

impl Context {
    async fn read(
        session: &mut Session<'_>,
        shared: &Shared,
        kind: &KindRef,
        numbers: usize,
    ) -> Result<Context, Interrupted> {
        let (sql, test) = (&shared.statements.context, shared.test_time());
        let count = i32::try_from(numbers).unwrap_or(i32::MAX);
        let rows = session.query(sql, &[&test, &kind.number, &count]).await?;
        let row = rows.first().ok_or_else(|| rows::damaged("no kind"))?;
        let is_near_limit: bool = row.get(3);
        let (leased, expired) = (row.get::<_, i64>(7), row.get::<_, Option<i64>>(12).unwrap_or(0));
        let numbers: Vec<i64> = row.get(13);
        let offset = |n: usize| (!is_near_limit).then(|| row.get::<_, i64>(n));
        Ok(Context {
            now: time(row.get(0)),
            settings: settings::read(row.get(4))?,
            is_near_limit,
            dead: number(row.get(5)),
            done: number(row.get(6)),
            unexpired: usize::try_from(leased - expired).unwrap_or(0),
            generation: number(row.get(8)),
            fence: number(row.get(9)),
            rate_use: RateUse {
                parts: row.get::<_, Option<i64>>(10).map_or(0, number),
                at: time(row.get::<_, Option<i64>>(11).unwrap_or(0)),
            },
            numbers: ReservedNumbers {
                numbers: numbers.into_iter().map(number).collect(),
                generation_offset: offset(1),
                fence_offset: offset(2),
            },
        })
    }
}
