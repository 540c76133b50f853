//! A store that follows the rules, but orders its jobs in another way, or stores them changed.

use requeue_jobs::rules::{
    ChangeNotifier, JobTable, Kinds, List, PageBuilder, Position, Record, Status, TimePageBuilder,
    TimeRange, check_count, check_settlements, wait,
};
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, JobId, JobState, JobView, Kind,
    KindView, Page, Placed, Priorities, Priority, Put, PutError, Query, Reaped, Restore, Restored,
    Schedule, ScheduleCondition, Settings, Settle, SettleError, Settled, Spans, Store, StoreError,
    StoreFuture, Tick, Ticked, TimePage, TimeQuery, Timestamp, WallClock, check_batch,
    check_changes,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Which of several jobs comes first.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// The correct order. Of jobs with the same time, the one with the lowest id comes first.
    TiesById,
    /// The correct order. Of jobs with the same time, the latest put comes first.
    TiesLatestFirst,
    /// The correct order, except that in this list the last job whose time has come is first.
    LastOf(List),
    /// The correct order. But this is done to every record before it is stored: the first argument
    /// is the record that was taken out, if there was one.
    Altered(fn(Option<&Record>, &mut Record)),
}

/// Jobs by id. The first one is found by comparing all.
struct Jobs {
    jobs: BTreeMap<JobId, Box<Record>>,
    wall_clock: WallClock,
    order: Order,
    /// The record that was taken out last.
    taken: Option<Record>,
}

impl Jobs {
    fn of(&self, list: List) -> impl Iterator<Item = (&JobId, Timestamp, u64)> {
        self.jobs.iter().filter_map(move |(id, record)| {
            let (of, Position { at, seq }) = record.position();
            (of == list).then_some((id, at, seq))
        })
    }

    fn first_id(&self, list: List) -> Option<(JobId, Position)> {
        let now = self.wall_clock.now();
        // The sequence number that is compared with the first job of the other list.
        let rank = |id: &JobId, seq| match self.order {
            Order::TiesLatestFirst => u64::MAX - seq,
            Order::Altered(_) => seq,
            _ => {
                let bytes = id.as_str().bytes().chain([0; 8]);
                bytes.take(8).fold(0, |rank, byte| rank << 8 | u64::from(byte))
            }
        };
        let mut all: Vec<_> = self.of(list).map(|(id, at, seq)| (at, rank(id, seq), id)).collect();
        all.sort_unstable();
        let first = match self.order {
            Order::LastOf(reversed) if reversed == list => all.iter().rfind(|(at, ..)| *at <= now),
            _ => None,
        };
        let (at, seq, id) = *first.or(all.first())?;
        Some((id.clone(), Position { at, seq }))
    }
}

impl Jobs {
    fn ready(&self, now: Timestamp) -> u64 {
        let is_ready =
            |record: &Record| matches!(record.status, Status::Pending) && record.version.due <= now;
        self.jobs.values().filter(|record| is_ready(record)).count() as u64
    }
}

impl JobTable for Jobs {
    fn peek(&mut self, id: &JobId) -> Result<Option<&Record>, StoreError> {
        Ok(self.jobs.get(id).map(|record| &**record))
    }

    fn take(&mut self, id: &JobId) -> Result<Option<Box<Record>>, StoreError> {
        let record = self.jobs.remove(id);
        self.taken = record.as_deref().cloned();
        Ok(record)
    }

    fn take_first(&mut self, list: List) -> Result<Option<(JobId, Box<Record>)>, StoreError> {
        let first = self.first_id(list);
        let first = first.and_then(|(id, _)| self.jobs.remove_entry(&id));
        self.taken = first.as_ref().map(|(_, record)| (**record).clone());
        Ok(first)
    }

    fn keep(&mut self, id: JobId, mut record: Box<Record>) {
        let taken = self.taken.take();
        if let Order::Altered(alter) = self.order {
            alter(taken.as_ref(), &mut record);
        }
        self.jobs.insert(id, record);
    }

    fn first(&mut self, list: List) -> Result<Option<Position>, StoreError> {
        Ok(self.first_id(list).map(|(_, position)| position))
    }

    fn count(&self, list: List) -> u64 {
        self.of(list).count() as u64
    }

    fn priorities(&self) -> Priorities {
        let mut priorities = Priorities::default();
        self.jobs.values().for_each(|record| priorities.insert(record.version.priority));
        priorities
    }

    fn unexpired(
        &mut self,
        priority: Priority,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let leased = self.of(List::Leased(priority));
        Ok(leased.filter(|(_, at, _)| *at > now).take(limit).count())
    }

    fn first_to_end(
        &mut self,
        priority: Priority,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let leased = self.of(List::Leased(priority));
        Ok(leased.map(|(_, at, _)| at).filter(|at| *at > now).min())
    }
}

pub(crate) struct UnorderedStore {
    kinds: Mutex<Kinds<Jobs>>,
    changes: ChangeNotifier,
    wall_clock: WallClock,
}

impl UnorderedStore {
    pub(crate) fn create(wall_clock: WallClock, order: Order) -> Arc<dyn Store> {
        let table = {
            let wall_clock = wall_clock.clone();
            move |_: &Kind| {
                let (jobs, wall_clock, taken) = (BTreeMap::new(), wall_clock.clone(), None);
                Jobs { jobs, wall_clock, order, taken }
            }
        };
        let kinds = Mutex::new(Kinds::new(table));
        Arc::new(UnorderedStore { kinds, changes: ChangeNotifier::default(), wall_clock })
    }

    fn act<T>(&self, act: impl FnOnce(&mut Kinds<Jobs>, Timestamp) -> T) -> T {
        let result = act(
            &mut self.kinds.lock().unwrap_or_else(PoisonError::into_inner),
            self.wall_clock.now(),
        );
        self.changes.notify();
        result
    }

    fn views(&self, kind: &Kind) -> Vec<JobView> {
        self.act(|kinds, now| {
            let jobs = kinds.kind(kind).into_iter().flat_map(|kind| &kind.table.jobs);
            jobs.map(|(id, record)| record.view(kind, id, now)).collect()
        })
    }
}

fn now<'a, T: Send + 'a, E: Into<StoreError>>(result: Result<T, E>) -> StoreFuture<'a, T> {
    let result = result.map_err(Into::into);
    Box::pin(async move { result })
}

impl Store for UnorderedStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        now(check_batch(&puts).map(|()| {
            self.act(|kinds, now| puts.into_iter().map(|put| kinds.put(put, now)).collect())
        }))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        now(self.act(|kinds, now| kinds.claim(&claim, now)))
    }

    fn settle(&self, all: Vec<Settle>) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        now(check_settlements(&all).map(|()| {
            self.act(|kinds, now| all.into_iter().map(|one| kinds.settle(one, now)).collect())
        }))
    }

    fn change(&self, all: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        now(check_changes(&all).map(|()| {
            self.act(|kinds, now| all.into_iter().map(|one| kinds.change(one, now)).collect())
        }))
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        now(self.act(|kinds, now| kinds.restore(restore, now)))
    }

    fn wait(&self, names: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let next = || {
                let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
                kinds.next_claimable(&names, self.wall_clock.now())
            };
            wait(self.wall_clock.clock(), &self.changes, limit, next).await
        })
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        now(self.act(|kinds, now| kinds.reap(max, now)))
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        now(self.act(|kinds, now| kinds.get(&kind, &id, now)))
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        let mut jobs = self.views(&query.kind);
        jobs.retain(|job| {
            query.state.is_none_or(|state| job.state == state)
                && job.id.as_str().starts_with(&query.prefix)
                && query.after.as_ref().is_none_or(|after| job.id > *after)
        });
        let mut page = PageBuilder::new(query.limit);
        let _: bool = jobs.into_iter().all(|job| page.add(job));
        now(Ok::<_, StoreError>(page.build()))
    }

    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        now(self.act(|kinds, now| {
            let Some(range) = TimeRange::of(&query, now)? else { return Ok(TimePage::default()) };
            let mut page = TimePageBuilder::new(query.limit);
            if let Some(kind) = kinds.kind(&query.kind) {
                let lists: Vec<_> = range.lists(kind.table.priorities()).collect();
                let jobs =
                    kind.table.jobs.iter().map(|(id, record)| (record.position(), id, record));
                let mut jobs: Vec<_> = jobs
                    .filter(|((list, at), ..)| {
                        lists.contains(list) && (range.first..=range.last).contains(at)
                    })
                    .map(|((_, at), id, record)| (at, record.view(&query.kind, id, now)))
                    .collect();
                jobs.sort_by_key(|(at, _)| *at);
                if range.newest_first {
                    jobs.reverse();
                }
                let _: bool = jobs.into_iter().all(|(at, job)| page.add(at, job));
            }
            Ok::<_, StoreError>(page.build())
        }))
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        now(self.act(|kinds, now| {
            let view = |kind: &mut requeue_jobs::rules::KindState<Jobs>| {
                kind.view(kind.table.ready(now), now)
            };
            kinds.shown().into_iter().map(view).collect::<Result<_, StoreError>>()
        }))
    }

    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        now(self.act(|kinds, now| match kinds.kind_mut(&kind) {
            Some(kind) => kind.view(kind.table.ready(now), now),
            None => Ok(KindView::new(kind)),
        }))
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        let Spans { from, length, count } = spans;
        if let Err(invalid) = check_count("spans", count) {
            return now(Err(invalid));
        }
        let length = length.max(Duration::from_millis(1)).as_millis() as u64;
        let mut counts = vec![0; count];
        for job in self.views(&kind) {
            if matches!(job.state, JobState::Waiting | JobState::Ready)
                && let Some(since) = job.version.due.as_millis().checked_sub(from.as_millis())
                && let Some(count) = counts.get_mut((since / length) as usize)
            {
                *count += 1;
            }
        }
        now(Ok::<_, StoreError>(counts))
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        now(Ok::<_, StoreError>(self.act(|kinds, _| kinds.settings(&kind))))
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        now(self.act(|kinds, _| kinds.set(&kind, settings)))
    }

    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        now(self.act(|kinds, _| kinds.set_schedule(&kind, schedule, condition)))
    }

    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        now(Ok::<_, StoreError>(self.act(|kinds, _| kinds.schedule(&kind, &id).cloned())))
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        now(Ok::<_, StoreError>(self.act(|kinds, _| kinds.remove_schedule(&kind, &id))))
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        now(Ok::<_, StoreError>(self.act(|kinds, _| kinds.schedules(&kind))))
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        now(self.act(|kinds, now| kinds.tick(tick, now)))
    }
}
