//! Listing by id.
//!
//! Redis keeps no order of ids, and an index of them would cost every job a third more memory and
//! every put and ack more time. Instead, listing pays: it scans all ids of the kind, and keeps the
//! first ids after the cursor in memory to serve the next pages. A million jobs are listed in twenty
//! scans.

use crate::keys::Keys;
use crate::reply::{Reply, text, unexpected};
use crate::store::{RedisStore, lock};
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::{JobId, JobState, Page, Query, StoreError};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Max. ids kept of a scan.
const MAX_SCANNED: usize = 50_000;
/// ScanCache that are kept, for so many who list at the same time.
const MAX_SCANS: usize = 4;
/// For so long one is used: who lists by way of several processes may come by a cursor that another
/// was given here, and would miss what was put since.
const KEPT: Duration = Duration::from_secs(30);
/// What a server looks at in one go.
const SCAN: usize = 1000;

/// ScanCache of those who list, the latest first.
#[derive(Default)]
pub(crate) struct ScanCache(Mutex<VecDeque<ScannedIds>>);

/// Ids that follow one another, for one who lists: it is found again by the cursor that it was
/// given. Who begins elsewhere wants to see what is there now.
struct ScannedIds {
    /// What was asked for; where the next page begins.
    query: Query,
    /// Sorted: all that there were, or the first of them.
    ids: Vec<JobId>,
    is_last: bool,
    scanned: Instant,
}

impl ScanCache {
    fn take(&self, query: &Query) -> Option<ScannedIds> {
        let mut scans = lock(&self.0);
        scans.retain(|scan| scan.scanned.elapsed() < KEPT);
        let is_it =
            |scan: &ScannedIds| Query { limit: query.limit, ..scan.query.clone() } == *query;
        let place = scans.iter().position(is_it)?;
        scans.remove(place)
    }

    fn keep(&self, scan: ScannedIds) {
        let mut scans = lock(&self.0);
        scans.truncate(MAX_SCANS - 1);
        scans.push_front(scan);
    }
}

impl RedisStore {
    pub(crate) async fn list_page(&self, query: Query) -> Result<Page, StoreError> {
        let limit = query.limit.clamp(1, MAX_BATCH);
        let keys = self.keys(&query.kind);
        let mut scan = match self.shared.scans.take(&query) {
            Some(scan) => scan,
            None => self.scan(&keys, query).await?,
        };
        let mut jobs = Vec::new();
        loop {
            let ScannedIds { query, ids, is_last, .. } = &scan;
            let mut from = ids.partition_point(|id| Some(id) <= query.after.as_ref());
            // One more than is asked for tells whether there are more.
            while from < ids.len() && jobs.len() <= limit {
                let upto = ids.len().min(from + MAX_BATCH);
                let room = limit + 1 - jobs.len();
                let (seen, found) =
                    self.views(&query.kind, &keys, query.state, room, &ids[from..upto]).await?;
                jobs.extend(found);
                from += seen;
            }
            if *is_last || jobs.len() > limit {
                break;
            }
            let after = ids.last().cloned();
            scan = self.scan(&keys, Query { after, ..scan.query }).await?;
        }
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let cursor = jobs.last().filter(|_| more).map(|job| job.id.clone());
        if cursor.is_some() {
            scan.query.after = cursor.clone();
            self.shared.scans.keep(scan);
        }
        Ok(Page { jobs, cursor })
    }

    /// Which run of which server it is: where a scan has come to means nothing to another, which
    /// would leave out jobs without a word.
    async fn run_id(&self, keys: &Keys) -> Result<Option<String>, StoreError> {
        let mut cmd = redis::cmd("INFO");
        cmd.arg("server");
        let info = text(self.read(&keys.tag, cmd).await?)?;
        Ok(info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::to_owned))
    }

    /// The first ids that follow.
    async fn scan(&self, keys: &Keys, query: Query) -> Result<ScannedIds, StoreError> {
        let (scanned, server) = (Instant::now(), self.run_id(keys).await?);
        let [due, leased, dead, ..] = &keys.all;
        let lists = match query.state {
            None => vec![due, leased, dead],
            Some(JobState::Waiting | JobState::Ready) => vec![due],
            Some(JobState::Leased) => vec![leased],
            Some(JobState::Dead) => vec![dead],
        };
        let (mut ids, mut is_last) = (BTreeSet::new(), true);
        for list in lists {
            let mut cursor = "0".to_owned();
            loop {
                let mut cmd = redis::cmd("ZSCAN");
                cmd.arg(list).arg(&cursor).arg("COUNT").arg(SCAN);
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
            let reason = "another server took over while its jobs were listed".to_owned();
            return Err(StoreError::Unavailable { reason });
        }
        Ok(ScannedIds { query, ids: ids.into_iter().collect(), is_last, scanned })
    }
}

/// What Redis takes for "begins with this".
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
    use requeue_jobs::{Body, Kind, Put};
    use requeue_testkit::block_on;
    use requeue_testkit::servers::RedisServer;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};
    use std::thread;

    fn query(after: Option<&str>, limit: usize) -> Query {
        let after = after.map(|id| JobId::new(id).expect("an id"));
        Query { after, limit, ..Query::new(Kind::new("mail").expect("a kind")) }
    }

    fn put(store: &RedisStore, ids: impl Iterator<Item = String>) {
        let put =
            |id| Put::new(query(None, 1).kind, JobId::new(id).expect("an id"), Body::default());
        let puts: Vec<_> = ids.map(put).collect();
        for puts in puts.chunks(MAX_BATCH) {
            block_on(store.put_all(puts.to_vec())).expect("the server answers");
        }
    }

    fn list(store: &RedisStore, query: Query) -> (Vec<String>, Option<JobId>) {
        let page = block_on(store.list_page(query)).expect("the server answers");
        (page.jobs.iter().map(|job| job.id.to_string()).collect(), page.cursor)
    }

    #[test]
    fn whoever_begins_to_list_sees_what_is_there_wherever_it_begins() {
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
    fn a_kind_that_is_larger_than_a_window_is_listed_as_it_is_each_time() {
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
        // Twice two scans, of fifty calls each; and not all of it for every page.
        let stats = server.command(&["INFO", "commandstats"]);
        let (_, calls) = stats.split_once("cmdstat_zscan:calls=").unwrap();
        let calls: usize = calls.split_once(',').unwrap().0.parse().unwrap();
        assert!((200..400).contains(&calls), "{calls} calls");
    }

    /// Whether it was woken since it was last asked.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_server_that_begins_anew_half_way_is_not_believed() {
        let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
        let store = block_on(RedisStore::connect(&server.url())).unwrap();
        put(&store, (0..5 * SCAN).map(|n| n.to_string()));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut page = pin!(store.list_page(query(None, 1)));
        let scans = || server.command(&["INFO", "commandstats"]).contains("cmdstat_zscan");
        while {
            assert!(page.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            while !woken.0.swap(false, Ordering::SeqCst) {
                thread::yield_now();
            }
            !scans()
        } {}
        // The server has replied and no command is in flight: the restart cuts no call.
        server.start_again();
        let page = block_on(page);
        assert!(matches!(page, Err(StoreError::Unavailable { .. })), "{page:?}");
    }
}
