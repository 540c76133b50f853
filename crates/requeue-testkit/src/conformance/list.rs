//! Asking: get, list, counts, and upcoming load.

use crate::trial::{LEASE, Trial, id, job, kind, mail, millis, secs};
use requeue_jobs::{ChangeKind, JobState, Query, Spans, Timestamp};
use std::time::Duration;

/// One job in each state, named after it.
async fn one_of_each(t: &Trial) {
    t.die("dead").await;
    t.put("leased").await;
    t.claim().await;
    t.put("ready").await;
    t.put(job("waiting").after(secs(60))).await;
}

/// Pages through the kind, and answers every id that was seen.
async fn page_through(t: &Trial, limit: usize, mut query: Query) -> Vec<String> {
    query.limit = limit;
    let mut seen = Vec::new();
    loop {
        let page = t.store.list(query.clone()).await.expect("it is answered");
        assert!(page.jobs.len() <= limit, "no more than were asked for");
        seen.extend(page.jobs.iter().map(|job| job.id.to_string()));
        assert!(seen.len() < 100, "the pages have an end");
        match page.cursor {
            Some(cursor) => query.after = Some(cursor),
            None => return seen,
        }
    }
}

pub(crate) async fn an_absent_job_is_none(t: &Trial) {
    assert_eq!(t.get("a").await, None);
    t.put("b").await;
    assert_eq!(t.get("a").await, None);
}

pub(crate) async fn a_list_tells_what_get_tells(t: &Trial) {
    one_of_each(t).await;
    let page = t.store.list(Query::new(mail())).await.expect("it is answered");
    assert_eq!(page.cursor, None);
    assert_eq!(page.jobs.len(), 4);
    for view in page.jobs {
        assert_eq!(t.view(view.id.as_str()).await, view);
    }
}

pub(crate) async fn jobs_are_listed_by_id(t: &Trial) {
    for name in ["b", "B", "a", "aa", "ü", "a/1"] {
        t.put(name).await;
    }
    assert_eq!(t.list(|_| {}).await, ["B", "a", "a/1", "aa", "b", "ü"]);
}

pub(crate) async fn jobs_are_listed_by_state(t: &Trial) {
    one_of_each(t).await;
    for (state, name) in [
        (JobState::Waiting, "waiting"),
        (JobState::Ready, "ready"),
        (JobState::Leased, "leased"),
        (JobState::Dead, "dead"),
    ] {
        assert_eq!(t.list(|query| query.state = Some(state)).await, [name]);
        assert_eq!(t.view(name).await.state, state);
    }
    assert_eq!(t.list(|_| {}).await.len(), 4);
}

pub(crate) async fn jobs_are_listed_by_prefix(t: &Trial) {
    for name in ["order-1", "order-10", "order-2", "ordes", "orde", "reorder-1"] {
        t.put(name).await;
    }
    let listed = t.list(|query| query.prefix = "order-1".into()).await;
    assert_eq!(listed, ["order-1", "order-10"]);
    let behind = t.list(|query| {
        query.prefix = "order".into();
        query.after = Some(id("order-1"));
    });
    assert_eq!(behind.await, ["order-10", "order-2"]);
    let from_before = t.list(|query| {
        query.prefix = "order-2".into();
        query.after = Some(id("a"));
    });
    assert_eq!(from_before.await, ["order-2"]);
    assert_eq!(t.list(|query| query.prefix = "x".into()).await, Vec::<String>::new());
}

pub(crate) async fn only_the_kind_that_was_asked_for_is_listed(t: &Trial) {
    t.put("a").await;
    t.put(job("b").of("sms")).await;
    assert_eq!(t.list(|_| {}).await, ["a"]);
    assert_eq!(t.list(|query| query.kind = kind("unheard-of")).await, Vec::<String>::new());
}

pub(crate) async fn pages_show_every_job_exactly_once(t: &Trial) {
    let names: Vec<String> = (0..23).map(|n| format!("job-{n:02}")).collect();
    t.put_all(names.iter().map(|name| job(name))).await;
    for limit in [1, 2, 5, 22, 23, 24, 100] {
        assert_eq!(page_through(t, limit, Query::new(mail())).await, names, "{limit} a page");
    }
}

pub(crate) async fn pages_of_one_state_show_every_job_of_it(t: &Trial) {
    for n in 0..10 {
        let delay = secs(60 * (n % 2));
        t.put(job(&format!("job-{n}")).after(delay)).await;
    }
    let query = Query { state: Some(JobState::Waiting), ..Query::new(mail()) };
    let waiting = page_through(t, 2, query).await;
    assert_eq!(waiting, ["job-1", "job-3", "job-5", "job-7", "job-9"]);
}

pub(crate) async fn a_job_that_nobody_touches_is_on_one_page_whatever_others_do(t: &Trial) {
    for name in ["a", "b", "c", "d", "e", "f"] {
        t.put(name).await;
    }
    let mut query = Query { limit: 2, ..Query::new(mail()) };
    let first = t.store.list(query.clone()).await.expect("it is answered");
    // The cursor's own job goes, another comes before it, one behind is put off.
    t.cancel("b").await;
    t.put("aa").await;
    t.put(job("d").after(secs(60))).await;
    query.after = first.cursor;
    let rest = page_through(t, 2, query).await;
    assert_eq!(rest, ["c", "d", "e", "f"]);
}

pub(crate) async fn counts_are_kept_by_state(t: &Trial) {
    assert_eq!(t.counts().await, [0, 0, 0, 0]);
    one_of_each(t).await;
    assert_eq!(t.counts().await, [2, 1, 1, 1]);
    t.advance(secs(60));
    // Ready is derived from the time; the others change with operations only.
    assert_eq!(t.counts().await, [2, 1, 1, 2]);
}

pub(crate) async fn counts_equal_what_is_listed_whatever_happens(t: &Trial) {
    let agree = async || {
        let mut listed = [0; 4];
        for (state, n) in [
            (JobState::Waiting, 0),
            (JobState::Leased, 1),
            (JobState::Dead, 2),
            (JobState::Ready, 3),
        ] {
            listed[n] = t.list(|query| query.state = Some(state)).await.len() as u64;
        }
        listed[0] += listed[3];
        assert_eq!(t.counts().await, listed);
    };
    one_of_each(t).await;
    agree().await;
    for name in ["ready", "waiting", "leased", "dead"] {
        t.put(name).await;
        agree().await;
    }
    t.advance(LEASE);
    let claimed = t.claim_up_to(10).await;
    agree().await;
    assert_eq!(claimed.len(), 4);
    t.ack(&claimed[0]).await;
    t.release(&claimed[1]).await;
    t.retry(&claimed[2], secs(60)).await;
    t.cancel(claimed[3].id().as_str()).await;
    agree().await;
    t.ack(&claimed[3]).await;
    agree().await;
    for name in ["ready", "waiting", "leased", "dead"] {
        let _absent = t.change(name, ChangeKind::Cancel).await;
        agree().await;
    }
    assert_eq!(t.counts().await, [0, 0, 0, 0]);
}

async fn upcoming(t: &Trial, from: Timestamp, length: Duration, count: usize) -> Vec<u64> {
    t.store.upcoming(mail(), Spans { from, length, count }).await.expect("it is answered")
}

pub(crate) async fn upcoming_load_is_counted_by_spans_of_time(t: &Trial) {
    for (name, delay) in [("a", 0), ("b", 9_999), ("c", 10_000), ("d", 29_999), ("e", 30_000)] {
        t.put(job(name).after(millis(delay))).await;
    }
    assert_eq!(upcoming(t, t.now(), secs(10), 3).await, [2, 1, 1]);
    // What is due before the first span is in none.
    assert_eq!(upcoming(t, t.after(secs(10)), secs(10), 3).await, [1, 1, 1]);
    assert_eq!(upcoming(t, t.now(), secs(60), 1).await, [5]);
    assert!(upcoming(t, t.now(), secs(10), 0).await.is_empty());
}

pub(crate) async fn upcoming_load_is_of_pending_jobs(t: &Trial) {
    one_of_each(t).await;
    assert_eq!(upcoming(t, t.now(), secs(60), 2).await, [1, 1]);
    let nothing = Spans { from: t.now(), length: secs(60), count: 2 };
    let unknown = t.store.upcoming(kind("unheard-of"), nothing).await;
    assert_eq!(unknown, Ok(vec![0, 0]));
}

pub(crate) async fn a_span_without_length_is_a_millisecond(t: &Trial) {
    t.put("a").await;
    t.put(job("b").after(millis(2))).await;
    assert_eq!(upcoming(t, t.now(), secs(0), 3).await, [1, 0, 1]);
}
