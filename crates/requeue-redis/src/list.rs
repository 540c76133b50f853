//! Lists jobs in the order of their ids.
//!
//! Redis keeps no order of ids, and an index of them would cost every job a third more memory and
//! every put and ack more time. Instead, listing pays: it scans all ids of the kind, and keeps the
//! first ids after the cursor in memory to serve the next pages. A million jobs are listed in twenty
//! scans.

use crate::deployment::{Deployment, lock};
use crate::keys::Keys;
use crate::reply::{Reply, text, unexpected};
use requeue_jobs::limits::{MAX_BATCH, MAX_RESULT_BYTES};
use requeue_jobs::{JobId, JobState, JobView, Page, Query, StoreError};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The largest number of ids kept of one scan.
const MAX_SCANNED: usize = 50_000;
/// The number of scans kept, which is the number of callers that can list concurrently without
/// scanning again for each page.
const MAX_SCANS: usize = 4;
/// How long a scan is used. A caller that lists through several processes may present a cursor that
/// another caller got here long ago, and would miss the jobs put since.
const MAX_AGE: Duration = Duration::from_secs(30);
/// The COUNT of a ZSCAN call: about how many entries the server visits.
const SCAN_COUNT: usize = 1000;

/// The scans of callers that have more pages to read, the latest first.
#[derive(Default)]
pub(crate) struct ScanCache(Mutex<VecDeque<ScannedIds>>);

/// Consecutive ids for one caller. Its next call is recognized by the cursor that it was given. A
/// call with any other cursor scans again, and sees the current jobs.
struct ScannedIds {
    /// The query, with the cursor of the next page.
    query: Query,
    /// Sorted. All ids after the cursor of the scan, or the first [`MAX_SCANNED`] of them.
    ids: Vec<JobId>,
    /// Whether no more ids follow.
    is_last: bool,
    scanned: Instant,
}

impl ScanCache {
    fn take(&self, query: &Query) -> Option<ScannedIds> {
        let mut scans = lock(&self.0);
        scans.retain(|scan| scan.scanned.elapsed() < MAX_AGE);
        let is_next =
            |scan: &ScannedIds| Query { limit: query.limit, ..scan.query.clone() } == *query;
        let index = scans.iter().position(is_next)?;
        scans.remove(index)
    }

    fn keep(&self, scan: ScannedIds) {
        let mut scans = lock(&self.0);
        scans.truncate(MAX_SCANS - 1);
        scans.push_front(scan);
    }
}

impl Deployment {
    pub(crate) async fn list(&self, query: Query) -> Result<Page, StoreError> {
        let limit = query.limit.clamp(1, MAX_BATCH);
        let keys = self.keys(&query.kind);
        let mut scan = match self.scans.take(&query) {
            Some(scan) => scan,
            None => self.scan(&keys, query).await?,
        };
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        loop {
            let ScannedIds { query, ids, is_last, .. } = &scan;
            let mut from = ids.partition_point(|id| Some(id) <= query.after.as_ref());
            // Reads one job more than the page has, to know whether there is another page.
            while from < ids.len() && jobs.len() <= limit && bytes <= MAX_RESULT_BYTES {
                let upto = ids.len().min(from + MAX_BATCH);
                let room = limit + 1 - jobs.len();
                let (seen, found) =
                    self.views(&query.kind, &keys, query.state, room, &ids[from..upto]).await?;
                bytes += found.iter().map(JobView::content_bytes).sum::<usize>();
                jobs.extend(found);
                from += seen;
            }
            if *is_last || jobs.len() > limit || bytes > MAX_RESULT_BYTES {
                break;
            }
            let after = ids.last().cloned();
            scan = self.scan(&keys, Query { after, ..scan.query }).await?;
        }
        let mut bytes = 0;
        let fits = jobs.iter().take(limit).take_while(|job| {
            bytes += job.content_bytes();
            bytes <= MAX_RESULT_BYTES
        });
        let fitting = fits.count().max(1);
        let more = jobs.len() > fitting;
        jobs.truncate(fitting);
        let cursor = jobs.last().filter(|_| more).map(|job| job.id.clone());
        if cursor.is_some() {
            scan.query.after = cursor.clone();
            self.scans.keep(scan);
        }
        Ok(Page { jobs, cursor })
    }

    /// Returns the run id of the server. The cursor of a scan is valid only within one run of one
    /// server: another would skip jobs without an error.
    async fn run_id(&self, keys: &Keys) -> Result<Option<String>, StoreError> {
        let mut cmd = redis::cmd("INFO");
        cmd.arg("server");
        let info = text(self.read(&keys.tag, cmd).await?)?;
        Ok(info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::to_owned))
    }

    /// Scans for the first ids after the cursor of the query.
    async fn scan(&self, keys: &Keys, query: Query) -> Result<ScannedIds, StoreError> {
        let (scanned, server) = (Instant::now(), self.run_id(keys).await?);
        let all = keys.lists();
        let lists = match query.state {
            None => &all[..],
            Some(JobState::Waiting | JobState::Ready) => &all[..1],
            Some(JobState::Leased) => &all[1..2],
            Some(JobState::Dead) => &all[2..3],
            Some(JobState::Done) => &all[3..],
        };
        let (mut ids, mut is_last) = (BTreeSet::new(), true);
        for list in lists {
            let mut cursor = "0".to_owned();
            loop {
                let mut cmd = redis::cmd("ZSCAN");
                cmd.arg(list).arg(&cursor).arg("COUNT").arg(SCAN_COUNT);
                if !query.prefix.is_empty() {
                    cmd.arg("MATCH").arg(pattern(&query.prefix));
                }
                let mut reply = Reply::of(self.read(&keys.tag, cmd).await?)?;
                cursor = reply.text()?;
                let mut found = reply.array()?;
                while !found.is_empty() {
                    let id = found.text()?;
                    found.next()?;
                    let follows =
                        query.after.as_ref().is_none_or(|after| id.as_str() > after.as_str());
                    if follows && id.starts_with(&query.prefix) {
                        ids.insert(JobId::new(id).map_err(|error| unexpected(&error.to_string()))?);
                    }
                    if ids.len() > MAX_SCANNED {
                        is_last = false;
                        ids.pop_last();
                    }
                }
                if cursor == "0" {
                    break;
                }
            }
        }
        if self.run_id(keys).await? != server {
            let reason =
                "the server was restarted or replaced while its jobs were being listed".to_owned();
            return Err(StoreError::Unavailable { reason });
        }
        Ok(ScannedIds { query, ids: ids.into_iter().collect(), is_last, scanned })
    }
}

/// Returns the Redis pattern that matches the ids with this prefix.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for c in prefix.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "*"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisStore;
    use requeue_jobs::{Body, Kind, Put, Store};
    use requeue_testkit::block_on;
    use requeue_testkit::servers::RedisServer;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};
    use std::thread;

    fn query(after: Option<&str>, limit: usize) -> Query {
        let after = after.map(|id| JobId::new(id).expect("a valid id"));
        Query { after, limit, ..Query::new(Kind::new("mail").expect("a valid kind")) }
    }

    fn put(store: &RedisStore, ids: impl Iterator<Item = String>) {
        let put = |id| {
            Put::new(query(None, 1).kind, JobId::new(id).expect("a valid id"), Body::default())
        };
        let puts: Vec<_> = ids.map(put).collect();
        for puts in puts.chunks(MAX_BATCH) {
            block_on(store.put(puts.to_vec())).expect("the server is up");
        }
    }

    fn list(store: &RedisStore, query: Query) -> (Vec<String>, Option<JobId>) {
        let page = block_on(store.list(query)).expect("the server is up");
        (page.jobs.iter().map(|job| job.id.to_string()).collect(), page.cursor)
    }

    #[test]
    fn a_list_that_begins_at_any_id_contains_the_current_jobs() {
        let server = RedisServer::start();
        let store = block_on(RedisStore::connect(&server.url())).unwrap();
        put(&store, ["b", "c", "d"].map(str::to_owned).into_iter());
        assert_eq!(list(&store, query(Some("a"), 1)).0, ["b"]);
        put(&store, ["ab", "bb"].map(str::to_owned).into_iter());
        let (jobs, cursor) = list(&store, query(Some("a"), 2));
        assert_eq!(jobs, ["ab", "b"]);
        let rest = list(&store, query(cursor.as_ref().map(JobId::as_str), 10));
        assert_eq!(rest, (["bb", "c", "d"].map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn a_kind_larger_than_one_scan_is_listed_completely_each_time() {
        let server = RedisServer::start();
        let store = block_on(RedisStore::connect(&server.url())).unwrap();
        put(&store, (0..MAX_SCANNED + 10).map(|n| format!("{n:06}")));
        for more in ["", "9"] {
            put(&store, (!more.is_empty()).then(|| more.to_owned()).into_iter());
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let page = list(&store, query(cursor.as_ref().map(JobId::as_str), MAX_BATCH));
                seen.extend(page.0);
                match page.1 {
                    Some(next) => cursor = Some(next),
                    None => break,
                }
            }
            assert_eq!(seen.len(), MAX_SCANNED + 10 + more.len());
            assert!(seen.is_sorted());
        }
        // Two lists of two scans each, with about fifty calls per scan, and not one scan per page.
        let stats = server.command(&["INFO", "commandstats"]);
        let (_, calls) = stats.split_once("cmdstat_zscan:calls=").unwrap();
        let calls: usize = calls.split_once(',').unwrap().0.parse().unwrap();
        assert!((200..400).contains(&calls), "{calls} calls");
    }

    /// Records that the future was woken.
    #[derive(Default)]
    struct WakeFlag(AtomicBool);

    impl Wake for WakeFlag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_list_fails_if_the_server_restarts_during_the_scan() {
        let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
        let store = block_on(RedisStore::connect(&server.url())).unwrap();
        put(&store, (0..5 * SCAN_COUNT).map(|n| n.to_string()));
        let woken = Arc::new(WakeFlag::default());
        let waker = Waker::from(woken.clone());
        let mut page = pin!(store.list(query(None, 1)));
        let scans = || server.command(&["INFO", "commandstats"]).contains("cmdstat_zscan");
        while {
            assert!(page.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            while !woken.0.swap(false, Ordering::SeqCst) {
                thread::yield_now();
            }
            !scans()
        } {}
        // The server has replied and no command is in flight, so the restart interrupts no call.
        server.start_again();
        let page = block_on(page);
        assert!(matches!(page, Err(StoreError::Unavailable { .. })), "{page:?}");
    }
}
