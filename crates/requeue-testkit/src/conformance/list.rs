//! Reads: get, list, counts and upcoming load.

use crate::harness::{Harness, LEASE, id, job, kind, mail, millis, secs};
use requeue_jobs::{ChangeKind, JobState, Query, Spans, Timestamp};
use std::time::Duration;

/// Creates one job in each state, with the name of the state as its id.
async fn one_of_each(h: &Harness) {
    h.die("dead").await;
    h.put("leased").await;
    h.claim().await;
    h.put("ready").await;
    h.put(job("waiting").after(secs(60))).await;
}

/// Reads all pages of the kind, and returns the ids.
async fn page_through(h: &Harness, limit: usize, mut query: Query) -> Vec<String> {
    query.limit = limit;
    let mut seen = Vec::new();
    loop {
        let page = h.store.list(query.clone()).await.expect("the call succeeds");
        assert!(page.jobs.len() <= limit, "no more jobs than the limit");
        seen.extend(page.jobs.iter().map(|job| job.id.to_string()));
        assert!(seen.len() < 100, "the pages do not end");
        match page.cursor {
            Some(cursor) => query.after = Some(cursor),
            None => return seen,
        }
    }
}

pub(crate) async fn an_absent_job_is_none(h: &Harness) {
    assert_eq!(h.get("a").await, None);
    h.put("b").await;
    assert_eq!(h.get("a").await, None);
}

pub(crate) async fn list_and_get_return_the_same(h: &Harness) {
    one_of_each(h).await;
    let page = h.store.list(Query::new(mail())).await.expect("the call succeeds");
    assert_eq!(page.cursor, None);
    assert_eq!(page.jobs.len(), 4);
    for view in page.jobs {
        assert_eq!(h.view(view.id.as_str()).await, view);
    }
}

pub(crate) async fn jobs_are_listed_by_id(h: &Harness) {
    for name in ["b", "B", "a", "aa", "ü", "a/1"] {
        h.put(name).await;
    }
    assert_eq!(h.list(|_| {}).await, ["B", "a", "a/1", "aa", "b", "ü"]);
}

pub(crate) async fn jobs_are_listed_by_state(h: &Harness) {
    one_of_each(h).await;
    for (state, name) in [
        (JobState::Waiting, "waiting"),
        (JobState::Ready, "ready"),
        (JobState::Leased, "leased"),
        (JobState::Dead, "dead"),
    ] {
        assert_eq!(h.list(|query| query.state = Some(state)).await, [name]);
        assert_eq!(h.view(name).await.state, state);
    }
    assert_eq!(h.list(|_| {}).await.len(), 4);
}

pub(crate) async fn jobs_are_listed_by_prefix(h: &Harness) {
    for name in ["order-1", "order-10", "order-2", "ordes", "orde", "reorder-1"] {
        h.put(name).await;
    }
    let listed = h.list(|query| query.prefix = "order-1".into()).await;
    assert_eq!(listed, ["order-1", "order-10"]);
    let behind = h.list(|query| {
        query.prefix = "order".into();
        query.after = Some(id("order-1"));
    });
    assert_eq!(behind.await, ["order-10", "order-2"]);
    let from_before = h.list(|query| {
        query.prefix = "order-2".into();
        query.after = Some(id("a"));
    });
    assert_eq!(from_before.await, ["order-2"]);
    assert_eq!(h.list(|query| query.prefix = "x".into()).await, Vec::<String>::new());
}

pub(crate) async fn only_jobs_of_the_queried_kind_are_listed(h: &Harness) {
    h.put("a").await;
    h.put(job("b").of("sms")).await;
    assert_eq!(h.list(|_| {}).await, ["a"]);
    assert_eq!(h.list(|query| query.kind = kind("unheard-of")).await, Vec::<String>::new());
}

pub(crate) async fn pages_contain_every_job_exactly_once(h: &Harness) {
    let names: Vec<String> = (0..23).map(|n| format!("job-{n:02}")).collect();
    h.put_all(names.iter().map(|name| job(name))).await;
    for limit in [1, 2, 5, 22, 23, 24, 100] {
        assert_eq!(page_through(h, limit, Query::new(mail())).await, names, "{limit} a page");
    }
}

pub(crate) async fn pages_of_one_state_contain_every_job_in_it(h: &Harness) {
    for n in 0..10 {
        let delay = secs(60 * (n % 2));
        h.put(job(&format!("job-{n}")).after(delay)).await;
    }
    let query = Query { state: Some(JobState::Waiting), ..Query::new(mail()) };
    let waiting = page_through(h, 2, query).await;
    assert_eq!(waiting, ["job-1", "job-3", "job-5", "job-7", "job-9"]);
}

pub(crate) async fn an_unchanged_job_is_on_exactly_one_page(h: &Harness) {
    for name in ["a", "b", "c", "d", "e", "f"] {
        h.put(name).await;
    }
    let mut query = Query { limit: 2, ..Query::new(mail()) };
    let first = h.store.list(query.clone()).await.expect("the call succeeds");
    // The job of the cursor is removed, another is added before it, and one after it is delayed.
    h.cancel("b").await;
    h.put("aa").await;
    h.put(job("d").after(secs(60))).await;
    query.after = first.cursor;
    let rest = page_through(h, 2, query).await;
    assert_eq!(rest, ["c", "d", "e", "f"]);
}

pub(crate) async fn counts_are_kept_by_state(h: &Harness) {
    assert_eq!(h.counts().await, [0, 0, 0, 0]);
    one_of_each(h).await;
    assert_eq!(h.counts().await, [2, 1, 1, 1]);
    h.advance(secs(60));
    // The number of ready jobs depends on the time. The others change only by operations.
    assert_eq!(h.counts().await, [2, 1, 1, 2]);
}

pub(crate) async fn counts_always_equal_the_listed_jobs(h: &Harness) {
    let agree = async || {
        let mut listed = [0; 4];
        for (state, n) in [
            (JobState::Waiting, 0),
            (JobState::Leased, 1),
            (JobState::Dead, 2),
            (JobState::Ready, 3),
        ] {
            listed[n] = h.list(|query| query.state = Some(state)).await.len() as u64;
        }
        listed[0] += listed[3];
        assert_eq!(h.counts().await, listed);
    };
    one_of_each(h).await;
    agree().await;
    for name in ["ready", "waiting", "leased", "dead"] {
        h.put(name).await;
        agree().await;
    }
    h.advance(LEASE);
    let claimed = h.claim_up_to(10).await;
    agree().await;
    assert_eq!(claimed.len(), 4);
    h.ack(&claimed[0]).await;
    h.release(&claimed[1]).await;
    h.retry(&claimed[2], secs(60)).await;
    h.cancel(claimed[3].id().as_str()).await;
    agree().await;
    h.ack(&claimed[3]).await;
    agree().await;
    for name in ["ready", "waiting", "leased", "dead"] {
        let _absent = h.change(name, ChangeKind::Cancel).await;
        agree().await;
    }
    assert_eq!(h.counts().await, [0, 0, 0, 0]);
}

async fn upcoming(h: &Harness, from: Timestamp, length: Duration, count: usize) -> Vec<u64> {
    h.store.upcoming(mail(), Spans { from, length, count }).await.expect("the call succeeds")
}

pub(crate) async fn upcoming_load_is_counted_by_spans_of_time(h: &Harness) {
    for (name, delay) in [("a", 0), ("b", 9_999), ("c", 10_000), ("d", 29_999), ("e", 30_000)] {
        h.put(job(name).after(millis(delay))).await;
    }
    assert_eq!(upcoming(h, h.now(), secs(10), 3).await, [2, 1, 1]);
    // A job that is due before the first span is not counted.
    assert_eq!(upcoming(h, h.after(secs(10)), secs(10), 3).await, [1, 1, 1]);
    assert_eq!(upcoming(h, h.now(), secs(60), 1).await, [5]);
    assert!(upcoming(h, h.now(), secs(10), 0).await.is_empty());
}

pub(crate) async fn upcoming_load_counts_pending_jobs(h: &Harness) {
    one_of_each(h).await;
    assert_eq!(upcoming(h, h.now(), secs(60), 2).await, [1, 1]);
    let nothing = Spans { from: h.now(), length: secs(60), count: 2 };
    let unknown = h.store.upcoming(kind("unheard-of"), nothing).await;
    assert_eq!(unknown, Ok(vec![0, 0]));
}

pub(crate) async fn a_span_without_length_is_a_millisecond(h: &Harness) {
    h.put("a").await;
    h.put(job("b").after(millis(2))).await;
    assert_eq!(upcoming(h, h.now(), secs(0), 3).await, [1, 0, 1]);
}
