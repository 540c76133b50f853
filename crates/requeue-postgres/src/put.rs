//! Puts: one statement for all jobs of a kind in a batch.

use crate::by_kind::{by_kind, together};
use crate::database::Failure;
use crate::head::{StoredHead, stored_head};
use crate::locked::{Patience, is_locked};
use crate::rows::{
    damaged, number, stored_duration, stored_number, stored_time, stored_type, time,
};
use crate::rules_call::Load;
use crate::statements::Statements;
use crate::store::{KindRef, Shared, lock};
use crate::text::escape;
use futures_util::future::join_all;
use requeue_jobs::limits::{MAX_DELAY, MAX_KINDS};
use requeue_jobs::{
    BatchResults, Condition, Content, Due, Generation, Invalid, Kind, Mode, Placed, Put, PutError,
    PutOutcome, StoreError, Timestamp, check_batch,
};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// What the function `_put` returns.
const CREATED: i16 = 0;
const EXISTS: i16 = 5;
const OTHER_GENERATION: i16 = 6;
const NEAR_LIMIT: i16 = 7;
const TOO_LATE: i16 = 8;
const LOCKED: i16 = 9;

/// How long after a put of a job that existed the others are expected to exist, too. A batch that is undone leaves dead rows.
const CAUTION: Duration = Duration::from_secs(10);

/// How many kinds of a batch are put concurrently.
const KINDS_AT_ONCE: usize = 4;

/// The arguments of the function `_put`. Columns with only default values are null.
pub(crate) struct PutColumns<'a> {
    ids: Vec<String>,
    bodies: Vec<&'a [u8]>,
    content_types: Option<Vec<Option<String>>>,
    delays: Option<Vec<Option<i64>>>,
    dues: Option<Vec<Option<i64>>>,
    priorities: Option<Vec<i16>>,
    modes: Option<Vec<i16>>,
    max_waits: Option<Vec<Option<i64>>>,
    conditions: Option<Vec<i16>>,
    expected: Option<Vec<Option<i64>>>,
    heads: Option<Vec<Option<StoredHead>>>,
}

fn unless<T>(all_default: bool, column: impl Iterator<Item = T>) -> Option<Vec<T>> {
    (!all_default).then(|| column.collect())
}

impl<'a> PutColumns<'a> {
    pub(crate) fn new(puts: &[&'a Put]) -> Self {
        let (mut types, mut bodies, mut heads) = (Vec::new(), Vec::new(), Vec::new());
        for put in puts {
            let Content { body, head } = &put.content;
            types.push(stored_type(body));
            bodies.push(body.bytes());
            heads.push(stored_head(head));
        }
        let delay = |put: &&Put| match put.due {
            Due::After(delay) => Some(stored_duration(delay)),
            Due::Now | Due::At(_) => None,
        };
        let due = |put: &&Put| match put.due {
            Due::At(at) => Some(stored_time(at)),
            Due::Now | Due::After(_) => None,
        };
        let mode = |put: &&Put| match put.mode {
            Mode::Replace => 0,
            Mode::Earliest => 1,
            Mode::Keep => 2,
            Mode::Debounce { .. } => 3,
        };
        let wait = |put: &&Put| match put.mode {
            // Longer than any delay is as good as for ever, and does not overflow.
            Mode::Debounce { max_wait } => Some(stored_duration(max_wait.min(MAX_DELAY * 2))),
            _ => None,
        };
        let condition = |put: &&Put| match put.condition {
            None => 0,
            Some(Condition::IfAbsent) => 1,
            Some(Condition::IfNew) => 2,
            Some(Condition::IfGeneration(_)) => 3,
        };
        let expected = |put: &&Put| match put.condition {
            Some(Condition::IfGeneration(generation)) => Some(stored_number(generation.0)),
            _ => None,
        };
        let all = |is_default: fn(&Put) -> bool| puts.iter().all(|put| is_default(put));
        let has_modes = !all(|put| put.mode == Mode::Replace);
        let has_conditions = !all(|put| put.condition.is_none());
        PutColumns {
            ids: puts.iter().map(|put| escape(put.id.as_str()).into_owned()).collect(),
            bodies,
            content_types: unless(types.iter().all(Option::is_none), types.into_iter()),
            delays: unless(all(|put| !matches!(put.due, Due::After(_))), puts.iter().map(delay)),
            dues: unless(all(|put| !matches!(put.due, Due::At(_))), puts.iter().map(due)),
            priorities: unless(
                all(|put| put.priority.get() == 0),
                puts.iter().map(|put| put.priority.get().into()),
            ),
            modes: unless(!has_modes, puts.iter().map(mode)),
            max_waits: unless(!has_modes, puts.iter().map(wait)),
            conditions: unless(!has_conditions, puts.iter().map(condition)),
            expected: unless(!has_conditions, puts.iter().map(expected)),
            heads: unless(heads.iter().all(Option::is_none), heads.into_iter()),
        }
    }

    /// The parameters of the statement, after the time and the kind.
    pub(crate) fn params<'b>(
        &'b self,
        test: &'b Option<i64>,
        kind: &'b i32,
    ) -> [&'b (dyn ToSql + Sync); 13] {
        [
            test,
            kind,
            &self.ids,
            &self.bodies,
            &self.content_types,
            &self.delays,
            &self.dues,
            &self.priorities,
            &self.modes,
            &self.max_waits,
            &self.conditions,
            &self.expected,
            &self.heads,
        ]
    }
}

/// The result of a put: `None` if the numbers of the kind are near their limit.
pub(crate) fn outcome(put: &Put, row: &Row) -> Result<Option<Placed>, PutError> {
    let (code, found): (i16, Option<i64>) = (row.get(1), row.get(2));
    let (kind, id) = (put.kind.clone(), put.id.clone());
    let generation = Generation(number(found.unwrap_or(0)));
    let outcome = match code {
        CREATED => PutOutcome::Created,
        1 => PutOutcome::Updated,
        2 => PutOutcome::Kept,
        3 => PutOutcome::Coalesced,
        4 => PutOutcome::Revived,
        EXISTS => return Err(PutError::Exists { kind, id, generation }),
        OTHER_GENERATION => {
            let expected = match put.condition {
                Some(Condition::IfGeneration(expected)) => expected,
                _ => Generation(0),
            };
            let found = found.map(|found| Generation(number(found)));
            return Err(PutError::Generation { kind, id, expected, found });
        }
        NEAR_LIMIT => return Ok(None),
        TOO_LATE => {
            let value = Duration::from_millis(number(found.unwrap_or(0)));
            let (field, min, max) = ("the delay", Duration::ZERO, MAX_DELAY);
            return Err(Invalid::OutOfRange { field, value, min, max }.into());
        }
        other => return Err(damaged(&format!("the outcome {other} of a put")).into()),
    };
    Ok(Some(Placed { outcome, generation }))
}

impl Shared {
    pub(crate) async fn put_all(
        &self,
        puts: Vec<Put>,
    ) -> Result<BatchResults<Placed, PutError>, StoreError> {
        check_batch(&puts)?;
        let (valid, invalid): (Vec<usize>, Vec<usize>) =
            (0..puts.len()).partition(|n| puts[*n].content.check().is_ok());
        let mut of_kinds = by_kind(valid.iter().map(|n| &puts[*n].kind));
        of_kinds.iter_mut().flat_map(|(_, entries)| entries).for_each(|n| *n = valid[*n]);
        if of_kinds.len() > 1 {
            // If it fails, it is tried again for each kind.
            drop(self.make_for_puts(&puts).await);
        }
        let patience = &Patience::new();
        let mut results = Vec::with_capacity(of_kinds.len() + 1);
        if !invalid.is_empty() {
            let errors = invalid.iter().filter_map(|n| puts[*n].content.check().err());
            let errors = errors.map(|invalid| Err(invalid.into())).collect();
            results.push((invalid, Ok(errors)));
        }
        for some in of_kinds.chunks(KINDS_AT_ONCE) {
            let placed = some.iter().map(|(kind, entries)| {
                let puts: Vec<&Put> = entries.iter().map(|n| &puts[*n]).collect();
                async move { self.unless_removed(|| self.put_of_kind(kind, &puts, patience)).await }
            });
            let placed = join_all(placed).await;
            results.extend(some.iter().map(|(_, entries)| entries.clone()).zip(placed));
        }
        together(results)
    }

    /// Creates the kinds of a batch in one statement. Puts that may fail are left for later.
    async fn make_for_puts(&self, puts: &[Put]) -> Result<(), Failure> {
        let certain = puts.iter().filter(|put| {
            !matches!(put.condition, Some(Condition::IfGeneration(_)))
                && matches!(put.due, Due::Now)
                && put.content.check().is_ok()
        });
        let kinds: HashSet<&Kind> = certain.map(|put| &put.kind).collect();
        self.make(&kinds.into_iter().cloned().collect::<Vec<_>>()).await
    }

    /// Puts jobs of one kind, in order. An error means that none was put, or that this is not known.
    async fn put_of_kind(
        &self,
        kind: &Kind,
        puts: &[&Put],
        patience: &Patience,
    ) -> Result<Vec<Result<Placed, PutError>>, StoreError> {
        let mut results: Vec<Option<Result<Placed, PutError>>> =
            puts.iter().map(|_| None).collect();
        let kind = match self.kind(kind).await? {
            Some(kind) => kind,
            None => {
                let now = self.now().await?;
                // Puts that fail do not create a kind.
                for (put, result) in puts.iter().zip(&mut results) {
                    let (kind, id) = (kind.clone(), put.id.clone());
                    *result = match put.condition {
                        Some(Condition::IfGeneration(expected)) => {
                            Some(Err(PutError::Generation { kind, id, expected, found: None }))
                        }
                        _ => put.due.at(now).err().map(|error| Err(error.into())),
                    };
                }
                if results.iter().all(Option::is_some) {
                    return Ok(results.into_iter().flatten().collect());
                }
                // An entry with a condition may follow the entry that creates its job.
                results.iter_mut().for_each(|result| *result = None);
                self.made_within(kind, patience).await?
            }
        };
        // A statement contains each id once, and the next begins with the entry that repeats one: an entry that overtook
        // others would get a lower generation than they.
        let (mut begin, mut locked) = (0, HashSet::new());
        while begin < puts.len() {
            let mut seen = HashSet::new();
            let count = puts[begin..].iter().take_while(|put| seen.insert(&put.id)).count();
            // The call has waited long enough for jobs that were locked before.
            let (skipped, entries): (Vec<usize>, Vec<usize>) =
                (begin..begin + count).partition(|n| locked.contains(&puts[*n].id));
            for n in skipped {
                results[n] = Some(Err(is_locked(&kind.name, &puts[n].id).into()));
            }
            let distinct: Vec<&Put> = entries.iter().map(|n| puts[*n]).collect();
            match self.put_distinct(&kind, &distinct, patience).await {
                Ok(placed) => {
                    for (n, placed) in entries.into_iter().zip(placed) {
                        if placed.is_none() {
                            locked.insert(&puts[n].id);
                        }
                        let is_locked = || Err(is_locked(&kind.name, &puts[n].id).into());
                        results[n] = Some(placed.unwrap_or_else(is_locked));
                    }
                }
                Err(error) if begin == 0 => return Err(error),
                Err(error) => {
                    results[begin..].fill(Some(Err(error.into())));
                    break;
                }
            }
            begin += count;
        }
        Ok(results.into_iter().map(|result| result.expect("each entry was put")).collect())
    }

    /// Puts jobs of one kind with distinct ids. `None`: an open transaction has locked the job.
    async fn put_distinct(
        &self,
        kind: &KindRef,
        puts: &[&Put],
        patience: &Patience,
    ) -> Result<Vec<Option<Result<Placed, PutError>>>, StoreError> {
        let mut results: Vec<Option<Result<Placed, PutError>>> =
            puts.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..puts.len()).collect();
        let mut skips_locked = patience.has_met_lock();
        while !left.is_empty() {
            let those: Vec<&Put> = left.iter().map(|n| puts[*n]).collect();
            let (columns, test) = (PutColumns::new(&those), self.test_time());
            let Statements { put_new, put_soon, put_unlocked, .. } = &self.statements;
            let sql = match (skips_locked, self.has_duplicates(kind)) {
                (true, _) => put_unlocked,
                (false, true) => put_soon,
                (false, false) => put_new,
            };
            let params = columns.params(&test, &kind.number);
            let placed = match self.database.query_of(kind.number, sql, &params).await {
                Ok(rows) => self.placed(kind, &those, &columns.ids, &rows).await,
                Err(Failure::Locked(_)) => Ok(those.iter().map(|_| None).collect()),
                Err(failure) => Err(failure.for_write()),
            };
            match placed {
                Ok(placed) => left.iter().zip(placed).for_each(|(n, placed)| results[*n] = placed),
                Err(error) if left.len() == puts.len() => return Err(error),
                Err(error) => {
                    left.iter().for_each(|n| results[*n] = Some(Err(error.clone().into())));
                }
            }
            let count = left.len();
            left.retain(|n| results[*n].is_none());
            // The others are put first.
            let has_others = !skips_locked && count > 1;
            if !left.is_empty() && !has_others && !patience.pause().await {
                break;
            }
            // A single job waits in the queue of those who want its lock.
            skips_locked = left.len() > 1;
        }
        Ok(results)
    }

    /// Reads the results of a statement that puts jobs.
    async fn placed(
        &self,
        kind: &KindRef,
        puts: &[&Put],
        ids: &[String],
        rows: &[Row],
    ) -> Result<Vec<Option<Result<Placed, PutError>>>, StoreError> {
        if rows.iter().any(|row| row.get::<_, i16>(1) != CREATED) {
            lock(&self.duplicates).insert(kind.number, Instant::now());
        }
        let by_id: HashMap<&str, &Row> = rows.iter().map(|row| (row.get(0), row)).collect();
        let mut results = Vec::new();
        for (put, id) in puts.iter().zip(ids) {
            let row = by_id.get(id.as_str()).ok_or_else(|| damaged("a put without an outcome"))?;
            if row.get::<_, i16>(1) == LOCKED {
                results.push(None);
                continue;
            }
            match outcome(put, row).transpose() {
                Some(result) => results.push(Some(result)),
                None => return self.put_by_rules(kind, puts).await,
            }
        }
        let soonest = puts.iter().zip(&results).filter(|(_, result)| matches!(result, Some(Ok(_))));
        let soonest = soonest.map(|(put, _)| match put.due {
            Due::Now => Duration::ZERO,
            Due::After(delay) => delay,
            Due::At(at) => at.saturating_since(self.local_time()),
        });
        if let Some(soonest) = soonest.min() {
            self.watch.may_be_due(kind, soonest);
        }
        Ok(results)
    }

    /// Whether a put of this kind has met a job that existed, not long ago.
    fn has_duplicates(&self, kind: &KindRef) -> bool {
        let mut duplicates = lock(&self.duplicates);
        if duplicates.len() > MAX_KINDS {
            duplicates.clear();
        }
        duplicates.get(&kind.number).is_some_and(|at| at.elapsed() < CAUTION)
    }

    /// Puts jobs of a kind whose numbers are near their limit: those are counted one by one.
    async fn put_by_rules(
        &self,
        kind: &KindRef,
        puts: &[&Put],
    ) -> Result<Vec<Option<Result<Placed, PutError>>>, StoreError> {
        let ids = puts.iter().map(|put| put.id.clone()).collect();
        let load = Load { ids, exclusive: true, ..Load::default() };
        self.with_rules(kind, &load, |state, now| {
            puts.iter().map(|put| Some(state.put((*put).clone(), now))).collect()
        })
        .await
    }

    /// Returns the server's time.
    pub(crate) async fn now(&self) -> Result<Timestamp, StoreError> {
        let rows = self.database.query(&self.statements.now, &[&self.test_time()]).await;
        Ok(time(rows.map_err(Failure::for_read)?[0].get(0)))
    }

    /// Returns the time of this process, which may differ from the server's. For estimates.
    fn local_time(&self) -> Timestamp {
        self.wall_clock
            .as_ref()
            .map_or_else(|| Timestamp::from(std::time::SystemTime::now()), |clock| clock.now())
    }
}
