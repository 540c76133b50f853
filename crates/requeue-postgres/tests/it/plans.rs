//! Frequent calls read about as many rows as they are about, whatever the server believes about its tables: no statistics, those of
//! an empty table, or those of jobs that were all in another state.
//!
//! The numbers are those that the server counts: entries of indexes and rows of tables that were read, and pages.

use crate::support::{
    LONG, claim, connect, fresh, id, insist, is_whole, kind, kind_named, put, put_after,
};
use requeue_jobs::{
    Change, ChangeKind, Fence, JobId, Query, Receipt, Settle, Settlement, Store, TimeQuery,
};
use requeue_postgres::{Options, PostgresStore};
use requeue_testkit::block_on;
use requeue_testkit::servers::{PostgresServer, PostgresVersion, until};
use std::ops::Range;
use std::time::Duration;

/// The number of jobs of each kind that are waiting, that are ready, and that are leased.
const MANY: usize = 4_000;
/// The number of jobs that a call is about.
const FEW: usize = 100;
/// How many entries and rows a call may read for each of its jobs, and how many pages.
const ROWS: u64 = 12;
const PAGES: u64 = 60;
/// What a call reads besides, for example one job of each priority.
const REST: u64 = 300;

struct Tables {
    server: PostgresServer,
    options: Options,
}

#[derive(Debug, Clone, Copy)]
struct Reads {
    scans_of_table: u64,
    rows: u64,
    pages: u64,
}

impl Tables {
    fn new(version: &PostgresVersion) -> Self {
        // The statistics are those that a test makes.
        let server = PostgresServer::with(version, &["-c", "autovacuum=off"]);
        let mut options = fresh();
        options.max_connections = 1;
        let tables = Tables { server, options };
        let store = tables.connect();
        for name in ["mail", "other"] {
            let mut first = put_after("first", LONG);
            first.kind = kind_named(name);
            block_on(store.put(vec![first])).expect("the server is up");
        }
        tables
    }

    fn connect(&self) -> PostgresStore {
        connect(&self.server.url(), self.options.clone())
    }

    fn query(&self, sql: &str) -> String {
        self.server.query(&sql.replace("S.", &format!("{}.", self.options.schema)))
    }

    /// Fills two kinds: `waiting-…`, `ready-…` and `leased-…`, all with the fence 1 and the nonce 7.
    fn fill(&self) {
        for (name, delay) in [("leased", 0), ("ready", 0), ("waiting", 3_600_000)] {
            self.query(&format!(
                "select count(p) from S.kind k cross join lateral S._put(null, k.kind_id, \
                   array(select format('{name}-%s', n) from generate_series(1, {MANY}) n), \
                   array(select '\\x00'::bytea from generate_series(1, {MANY})), null, \
                   array(select {delay} + n from generate_series(1, {MANY}) n), null, null, null, null, null, null) p"
            ));
        }
        // Long ago, so that all are due. As claims would have left them.
        self.query(
            "update S.job set list = 10, due = at, at = (extract(epoch from now()) * 1000)::bigint + 3600000, fence = 1, nonce = 7, \
             claimed_at = 1, worker = 'w' where id like 'leased-%'",
        );
        self.query("update S.job set at = at - 600000 where id like 'ready-%'");
        self.query(&format!(
            "insert into S.delta (kind_id, pending, leased, fence) select kind_id, -{MANY}, {MANY}, 1 from S.kind"
        ));
    }

    /// Returns what was read of jobs and counts so far. Sessions report that at the latest when they end.
    fn reads(&self) -> Reads {
        self.reads_with(0)
    }

    /// Returns what was read, when all sessions but so many have ended.
    fn reads_with(&self, open: usize) -> Reads {
        let sessions = "select count(*) from pg_stat_activity where application_name = 'requeue'";
        until("the others have ended", || self.server.query(sessions) == open.to_string());
        let of = "schemaname || '.' = 'S.' and relname in ('job', 'delta', 'total')";
        let counts = self.query(&format!(
            "select (select sum(seq_scan) from pg_stat_user_tables where {of} and relname = 'job'), \
               (select sum(seq_tup_read) from pg_stat_user_tables where {of}) \
                 + (select sum(idx_tup_read) from pg_stat_user_indexes where {of}), \
               (select sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit) \
                 from pg_statio_user_tables where {of})"
        ));
        let counts: Vec<u64> =
            counts.split('|').map(|count| count.parse().expect("a number")).collect();
        Reads { scans_of_table: counts[0], rows: counts[1], pages: counts[2] }
    }

    /// Makes calls, each with a new connection, and checks what each of them reads. They are about jobs with different numbers,
    /// from `first` times as many as each is about.
    fn check_each(&self, state: &str, first: usize) {
        let mut problems = Vec::new();
        for (number, (name, call)) in CALLS.into_iter().enumerate() {
            let before = self.reads();
            let number = first + number;
            call(&self.connect(), number * FEW..(number + 1) * FEW);
            problems.extend(problem(&format!("{state}: {name}"), before, self.reads()));
        }
        assert_eq!(problems, Vec::<String>::new());
    }
}

/// Returns a description if some calls have read too much.
fn problem(what: &str, before: Reads, after: Reads) -> Option<String> {
    let (rows, pages) = (after.rows - before.rows, after.pages - before.pages);
    let scans = after.scans_of_table - before.scans_of_table;
    let is_fine =
        scans == 0 && rows <= ROWS * FEW as u64 + REST && pages <= PAGES * FEW as u64 + REST;
    let text = format!("{what}: {rows} rows, {pages} pages, the whole table {scans} times");
    println!("{text}");
    (!is_fine).then_some(text)
}

fn ids(state: &str, of: Range<usize>) -> impl Iterator<Item = JobId> {
    of.map(move |n| id(&format!("{state}-{}", n + 1)))
}

fn settle(store: &PostgresStore, of: Range<usize>, action: &Settlement) {
    let settle =
        |id| Settle { receipt: Receipt::new(kind(), id, Fence(1), 7), action: action.clone() };
    let settled = block_on(store.settle(ids("leased", of).map(settle).collect()));
    for result in settled.expect("the server is up") {
        result.expect("the lease is held");
    }
}

type Call = fn(&PostgresStore, Range<usize>);

const CALLS: [(&str, Call); 14] = [
    ("put of new jobs", |store, of| {
        let puts = ids("new", of).map(|id| put(id.as_str())).collect();
        block_on(store.put(puts)).expect("the server is up");
    }),
    ("put of waiting jobs", |store, of| {
        let puts = ids("waiting", of).map(|id| put_after(id.as_str(), LONG)).collect();
        block_on(store.put(puts)).expect("the server is up");
    }),
    ("claim", |store, of| {
        let claimed = block_on(store.claim(claim(of.len(), LONG))).expect("the server is up");
        assert_eq!(claimed.jobs.len(), FEW);
    }),
    ("claim with a rate limit", |store, of| {
        let mut settings = block_on(store.settings(kind())).expect("the server is up");
        let per = Duration::from_secs(1);
        settings.rate = Some(requeue_jobs::Rate { jobs: 1000, per, burst: Some(1000) });
        block_on(store.set(kind(), settings.clone())).expect("the server is up");
        let claimed = block_on(store.claim(claim(of.len(), LONG))).expect("the server is up");
        assert_eq!(claimed.jobs.len(), FEW);
        settings.rate = None;
        block_on(store.set(kind(), settings)).expect("the server is up");
    }),
    ("extend", |store, of| settle(store, of, &Settlement::Extend(Some(LONG)))),
    ("ack", |store, of| settle(store, of, &Settlement::Ack)),
    ("retry", |store, of| {
        settle(store, of, &Settlement::Retry { delay: Some(LONG), error: String::new() })
    }),
    ("release", |store, of| settle(store, of, &Settlement::Release)),
    ("cancel", |store, of| {
        let cancel = |id| Change { kind: kind(), id, action: ChangeKind::Cancel };
        let changed = block_on(store.change(ids("waiting", of).map(cancel).collect()));
        assert!(changed.expect("the server is up").iter().all(Result::is_ok));
    }),
    ("wait", |store, _| {
        // A store that does not know a kind only finds out that it exists.
        for kind in [kind(), kind_named("other")] {
            let cancel = Change { kind, id: id("missing"), action: ChangeKind::Cancel };
            block_on(store.change(vec![cancel])).expect("the server is up");
        }
        block_on(store.wait(vec![kind(), kind_named("other")], LONG)).expect("the server is up");
    }),
    ("reap", |store, _| {
        assert_eq!(block_on(store.reap(FEW)).expect("the server is up").count, 0);
    }),
    ("get", |store, of| {
        for id in ids("waiting", of) {
            block_on(store.get(kind(), id)).expect("the server is up");
        }
    }),
    ("list by time", |store, of| {
        let query =
            TimeQuery { limit: of.len(), ..TimeQuery::new(kind(), requeue_jobs::JobState::Leased) };
        let page = block_on(store.list_by_time(query)).expect("the server is up");
        assert_eq!(page.jobs.len(), FEW);
    }),
    ("list", |store, of| {
        let query = Query { limit: of.len(), ..Query::new(kind()) };
        assert_eq!(block_on(store.list(query)).expect("the server is up").jobs.len(), FEW);
    }),
];

#[test]
fn calls_read_few_rows_of_tables_that_were_never_analyzed() {
    let tables = Tables::new(&PostgresVersion::chosen());
    tables.fill();
    tables.check_each("never analyzed", 0);
    is_whole(&tables.connect());
}

#[test]
fn calls_read_few_rows_although_the_statistics_are_old() {
    for version in PostgresVersion::all() {
        let tables = Tables::new(&version);
        tables.query("analyze");
        tables.fill();
        tables.check_each("analyzed when empty", 0);
        // Nearly all jobs are waiting.
        tables.query("create table S.saved as select * from S.job where list = 10");
        tables.query("delete from S.job where list = 10");
        tables.query("analyze");
        tables.query("insert into S.job select * from S.saved");
        tables.check_each("analyzed without leased jobs", CALLS.len());
        is_whole(&tables.connect());
    }
}

/// A session that has planned its statements for empty tables keeps the plans.
#[test]
fn calls_read_few_rows_in_a_session_that_has_seen_the_tables_empty() {
    for version in PostgresVersion::all() {
        let tables = Tables::new(&version);
        let stores = CALLS.map(|_| tables.connect());
        stores.iter().for_each(warm_up);
        tables.fill();
        let mut problems = Vec::new();
        for (number, (store, (name, call))) in stores.into_iter().zip(CALLS).enumerate() {
            let before = tables.reads_with(CALLS.len() - number);
            call(&store, number * FEW..(number + 1) * FEW);
            drop(store);
            let after = tables.reads_with(CALLS.len() - number - 1);
            problems.extend(problem(&format!("planned when empty: {name}"), before, after));
        }
        assert_eq!(problems, Vec::<String>::new());
    }
}

/// Makes all calls so often that the session has plans for their statements.
fn warm_up(store: &PostgresStore) {
    for _ in 0..10 {
        block_on(store.put(vec![put("a"), put("b")])).expect("the server is up");
        block_on(store.wait(vec![kind()], LONG)).expect("the server is up");
        let jobs = insist("they are claimed", || block_on(store.claim(claim(2, LONG)))).jobs;
        let retry = Settlement::Retry { delay: Some(LONG), error: String::new() };
        for (job, action) in
            [(0, Settlement::Extend(None)), (0, Settlement::Ack), (1, Settlement::Release)]
        {
            let settle = Settle { receipt: jobs[job].receipt.clone(), action };
            block_on(store.settle(vec![settle])).expect("the server is up");
        }
        let job = insist("it is claimed", || block_on(store.claim(claim(1, LONG)))).jobs.remove(0);
        block_on(store.settle(vec![Settle { receipt: job.receipt, action: retry }]))
            .expect("the server is up");
        let cancel = Change { kind: kind(), id: id("b"), action: ChangeKind::Cancel };
        block_on(store.change(vec![cancel])).expect("the server is up");
        block_on(store.reap(FEW)).expect("the server is up");
        block_on(store.get(kind(), id("a"))).expect("the server is up");
        block_on(store.list(Query::new(kind()))).expect("the server is up");
        let leased = TimeQuery::new(kind(), requeue_jobs::JobState::Leased);
        block_on(store.list_by_time(leased)).expect("the server is up");
    }
}
