//! Lists in the order of time.

use crate::harness::{Harness, id, job, kind, mail, millis, secs};
use requeue_jobs::limits::{MAX_BATCH, MAX_BODY_LEN, MAX_RESULT_BYTES};
use requeue_jobs::{
    Body, ClaimedJob, Invalid, JobState, JobView, Retention, Settlement, StoreError, TimeCursor,
    TimePage, TimeQuery,
};
use std::time::Duration;

fn query(state: JobState) -> TimeQuery {
    TimeQuery::new(mail(), state)
}

async fn page(h: &Harness, query: TimeQuery) -> TimePage {
    h.store.list_by_time(query).await.expect("the call succeeds")
}

fn names(jobs: &[JobView]) -> Vec<String> {
    jobs.iter().map(|job| job.id.to_string()).collect()
}

/// Reads all pages, and returns the ids.
async fn page_through(h: &Harness, limit: usize, mut query: TimeQuery) -> Vec<String> {
    query.limit = limit;
    let mut seen = Vec::new();
    loop {
        let page = page(h, query.clone()).await;
        assert!(page.jobs.len() <= limit, "no more jobs than the limit");
        assert!(page.jobs.iter().all(|job| job.state == query.state));
        seen.extend(names(&page.jobs));
        assert!(seen.len() < 100, "the pages do not end");
        match page.cursor {
            Some(cursor) => query.after = Some(cursor),
            None => return seen,
        }
    }
}

/// Lists the jobs in a state, the earliest first.
async fn listed(h: &Harness, state: JobState) -> Vec<String> {
    names(&page(h, query(state)).await.jobs)
}

async fn claim_for(h: &Harness, lease: Duration) -> ClaimedJob {
    let claimed = h.claim_with(|claim| (claim.max, claim.lease) = (1, Some(lease))).await;
    claimed.jobs.into_iter().next().expect("a job can be claimed")
}

/// Claims three jobs, `a`, `b` and `c`.
async fn claim_three(h: &Harness) -> [ClaimedJob; 3] {
    h.put_in_order(["a", "b", "c"]).await;
    h.claim_up_to(3).await.try_into().expect("three jobs can be claimed")
}

async fn keep_done(h: &Harness) {
    let retention = Retention { age: secs(86_400), count: 1000 };
    h.set(|settings| settings.keep_done = Some(retention)).await;
}

pub(crate) async fn pending_jobs_are_listed_by_their_due_time(h: &Harness) {
    for (name, delay) in [("c", 30), ("z", 10), ("a", 20)] {
        h.put(job(name).after(secs(delay))).await;
        h.advance(secs(1));
    }
    assert_eq!(listed(h, JobState::Waiting).await, ["z", "a", "c"]);
    assert_eq!(listed(h, JobState::Ready).await, Vec::<String>::new());
    h.advance(secs(20));
    assert_eq!(listed(h, JobState::Waiting).await, ["c"]);
    assert_eq!(listed(h, JobState::Ready).await, ["z", "a"]);
    h.put(job("z").after(secs(5))).await;
    assert_eq!(listed(h, JobState::Waiting).await, ["z", "c"]);
    h.advance(secs(10));
    assert_eq!(listed(h, JobState::Ready).await, ["a", "z", "c"]);
}

pub(crate) async fn leased_jobs_are_listed_by_the_end_of_their_leases(h: &Harness) {
    h.put_in_order(["a", "b", "c"]).await;
    claim_for(h, secs(60)).await;
    let b = claim_for(h, secs(30)).await;
    claim_for(h, secs(45)).await;
    assert_eq!(listed(h, JobState::Leased).await, ["b", "c", "a"]);
    h.extend(&b, secs(50)).await;
    assert_eq!(listed(h, JobState::Leased).await, ["c", "b", "a"]);
    // An expired lease is a lease until a claim or a reap ends it.
    h.advance(secs(55));
    assert_eq!(listed(h, JobState::Leased).await, ["c", "b", "a"]);
}

pub(crate) async fn dead_jobs_are_listed_by_the_time_of_their_death(h: &Harness) {
    let [a, b, c] = claim_three(h).await;
    for job in [&c, &a, &b] {
        h.settle(job, Settlement::Bury { error: "no".into() }).await.expect("the lease is current");
        h.advance(secs(1));
    }
    assert_eq!(listed(h, JobState::Dead).await, ["c", "a", "b"]);
}

pub(crate) async fn done_jobs_are_listed_by_the_time_of_their_ack(h: &Harness) {
    keep_done(h).await;
    let [a, b, c] = claim_three(h).await;
    for job in [&b, &c, &a] {
        h.ack(job).await;
        h.advance(secs(1));
    }
    assert_eq!(listed(h, JobState::Done).await, ["b", "c", "a"]);
}

pub(crate) async fn the_newest_can_be_first(h: &Harness) {
    keep_done(h).await;
    for (name, delay) in [("c", 30), ("z", 10), ("a", 20)] {
        h.put(job(name).after(secs(delay))).await;
    }
    let newest =
        async |state| names(&page(h, TimeQuery { newest_first: true, ..query(state) }).await.jobs);
    assert_eq!(newest(JobState::Waiting).await, ["c", "a", "z"]);
    h.advance(secs(20));
    assert_eq!(newest(JobState::Waiting).await, ["c"]);
    assert_eq!(newest(JobState::Ready).await, ["a", "z"]);
    let z = claim_for(h, secs(60)).await;
    let a = claim_for(h, secs(30)).await;
    assert_eq!(newest(JobState::Leased).await, ["z", "a"]);
    h.advance(secs(10));
    for job in [z, a, h.claim().await] {
        h.ack(&job).await;
        h.advance(secs(1));
    }
    assert_eq!(newest(JobState::Done).await, ["c", "a", "z"]);
    assert_eq!(newest(JobState::Ready).await, Vec::<String>::new());
}

pub(crate) async fn priorities_do_not_change_the_order(h: &Harness) {
    for (name, delay, priority) in [("a", 30, 9), ("b", 10, 0), ("c", 20, 5), ("d", 40, 0)] {
        h.put(job(name).after(secs(delay)).priority(priority)).await;
    }
    assert_eq!(listed(h, JobState::Waiting).await, ["b", "c", "a", "d"]);
    h.advance(secs(40));
    assert_eq!(listed(h, JobState::Ready).await, ["b", "c", "a", "d"]);
    let newest = TimeQuery { newest_first: true, ..query(JobState::Ready) };
    assert_eq!(page_through(h, 1, newest).await, ["d", "a", "c", "b"]);
    // The highest priority is claimed first, and has the longest lease.
    for lease in [60, 50, 40, 30] {
        claim_for(h, secs(lease)).await;
    }
    assert_eq!(listed(h, JobState::Leased).await, ["d", "b", "c", "a"]);
}

pub(crate) async fn only_jobs_of_the_kind_and_state_are_listed(h: &Harness) {
    keep_done(h).await;
    h.die("dead").await;
    for name in ["done", "leased"] {
        h.put(name).await;
        let claimed = h.claim().await;
        if name == "done" {
            h.ack(&claimed).await;
        }
    }
    h.put("ready").await;
    h.put(job("waiting").after(secs(60))).await;
    h.put(job("other").of("sms").after(secs(60))).await;
    for (state, name) in [
        (JobState::Waiting, "waiting"),
        (JobState::Ready, "ready"),
        (JobState::Leased, "leased"),
        (JobState::Dead, "dead"),
        (JobState::Done, "done"),
    ] {
        for newest_first in [false, true] {
            let page = page(h, TimeQuery { newest_first, ..query(state) }).await;
            assert_eq!((page.jobs, page.cursor), (vec![h.view(name).await], None));
        }
    }
    let unknown = TimeQuery { kind: kind("unheard-of"), ..query(JobState::Ready) };
    assert_eq!(page(h, unknown).await, TimePage::default());
}

pub(crate) async fn pages_contain_every_job_exactly_once(h: &Harness) {
    // Three priorities, and times in another order than the ids.
    let due = |n: u64| secs(60 + 7 * n % 23);
    let mut names: Vec<(Duration, String)> = Vec::new();
    for n in 0..23 {
        let name = format!("job-{n:02}");
        h.put(job(&name).after(due(n)).priority((n % 3) as u8)).await;
        names.push((due(n), name));
    }
    names.sort();
    let mut names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
    for newest_first in [false, true] {
        for limit in [1, 2, 5, 22, 23, 24, 100] {
            let query = TimeQuery { newest_first, ..query(JobState::Waiting) };
            assert_eq!(page_through(h, limit, query).await, names, "{limit} a page");
        }
        names.reverse();
    }
}

/// Puts jobs of three priorities that are due in the same millisecond, a minute from now.
async fn put_ties(h: &Harness, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|n| format!("job-{n:02}")).collect();
    let due = h.after(secs(60));
    // In another order than that of their ids.
    let puts = (0..count).map(|n| (n * 7 + 3) % count);
    let puts = puts.map(|n| job(&names[n]).at(due).priority((n % 3) as u8));
    assert!(h.put_all(puts).await.iter().all(Result::is_ok));
    names
}

pub(crate) async fn jobs_of_the_same_millisecond_are_in_the_same_order_on_all_pages(h: &Harness) {
    let all = put_ties(h, 20).await;
    for newest_first in [false, true] {
        let query = TimeQuery { newest_first, ..query(JobState::Waiting) };
        let order = page_through(h, 100, query.clone()).await;
        let mut sorted = order.clone();
        sorted.sort();
        assert_eq!(sorted, all);
        for limit in [1, 3, 7, 19] {
            assert_eq!(page_through(h, limit, query.clone()).await, order, "{limit} a page");
        }
    }
}

pub(crate) async fn an_unchanged_job_is_on_exactly_one_page(h: &Harness) {
    for (newest_first, unchanged) in [(false, ["c", "e", "f"]), (true, ["d", "b", "a"])] {
        for (name, delay) in [("a", 10), ("b", 20), ("c", 30), ("d", 40), ("e", 50), ("f", 60)] {
            h.put(job(name).after(secs(delay))).await;
        }
        let mut query = TimeQuery { newest_first, limit: 2, ..query(JobState::Waiting) };
        let first = page(h, query.clone()).await;
        let expected = if newest_first { ["f", "e"] } else { ["a", "b"] };
        assert_eq!(names(&first.jobs), expected);
        // The jobs of the first page are removed, others are added before and after the cursor, and
        // one that follows moves to another place.
        for name in expected {
            h.cancel(name).await;
        }
        h.put(job("first").after(secs(5))).await;
        h.put(job("last").after(secs(70))).await;
        h.put(job(if newest_first { "c" } else { "d" }).after(secs(65))).await;
        query.after = first.cursor;
        let mut rest = page_through(h, 2, query).await;
        rest.retain(|name| unchanged.contains(&name.as_str()));
        assert_eq!(rest, unchanged);
        for name in ["first", "last"] {
            h.cancel(name).await;
        }
    }
}

pub(crate) async fn a_cursor_whose_job_is_gone_continues_at_its_place(h: &Harness) {
    // Among jobs of the same millisecond, and of different ones.
    for (ties, newest_first) in [(true, false), (true, true), (false, false), (false, true)] {
        let all = put_ties(h, 8).await;
        if !ties {
            for (n, name) in all.iter().enumerate() {
                h.put(job(name).after(secs(60 + n as u64)).priority((n % 3) as u8)).await;
            }
        }
        let mut query = TimeQuery { newest_first, limit: 3, ..query(JobState::Waiting) };
        let order = page_through(h, 100, query.clone()).await;
        let first = page(h, query.clone()).await;
        assert_eq!(names(&first.jobs), order[..3]);
        for job in &first.jobs {
            h.cancel(job.id.as_str()).await;
        }
        query.after = first.cursor;
        assert_eq!(page_through(h, 2, query.clone()).await, order[3..]);
        // The last job is claimed, and so in another list, when its cursor is used.
        query.after = None;
        query.limit = 1;
        let first = page(h, query.clone()).await;
        h.run_now(first.jobs[0].id.as_str()).await;
        assert_eq!(h.claim().await.id(), &id(&order[3]));
        query.after = first.cursor;
        assert_eq!(page_through(h, 2, query).await, order[4..]);
    }
}

pub(crate) async fn a_malformed_cursor_is_invalid(h: &Harness) {
    h.put("a").await;
    for kind in [mail(), kind("unheard-of")] {
        let cursor = TimeCursor::new("nowhere").expect("a short text");
        let after = Some(cursor.clone());
        let query = TimeQuery { kind, after, ..query(JobState::Ready) };
        let result = h.store.list_by_time(query).await;
        assert!(matches!(result, Err(StoreError::Invalid(_))), "{result:?}");
    }
    // Others may be valid in some stores.
    let long = "9".repeat(400);
    for text in ["-", ".", "1-", "-1", "1.", "1.a", "0-0", "1-1-1", "ü", "\0", "1e9-2", &long] {
        let after = Some(TimeCursor::new(text).expect("a short text"));
        for newest_first in [false, true] {
            let after = after.clone();
            let query = TimeQuery { after, newest_first, ..query(JobState::Ready) };
            let result = h.store.list_by_time(query).await;
            let is_invalid = matches!(result, Err(StoreError::Invalid(_)));
            assert!(is_invalid || result.is_ok(), "{text:?}: {result:?}");
        }
    }
    for text in [String::new(), "9".repeat(1000)] {
        let error = TimeCursor::new(text).expect_err("its length is invalid");
        assert!(matches!(error, Invalid::TooLong { .. } | Invalid::Empty { .. }));
    }
}

pub(crate) async fn a_page_has_a_thousand_jobs_at_most(h: &Harness) {
    let names: Vec<String> = (0..=MAX_BATCH).map(|n| format!("{n:04}")).collect();
    for names in names.chunks(MAX_BATCH) {
        let puts = names.iter().map(|name| job(name).after(millis(5)));
        assert!(h.put_all(puts).await.iter().all(Result::is_ok));
    }
    let query = TimeQuery { limit: usize::MAX, ..query(JobState::Waiting) };
    let first = page(h, query.clone()).await;
    assert_eq!(first.jobs.len(), MAX_BATCH);
    let second = page(h, TimeQuery { after: first.cursor, ..query }).await;
    assert_eq!((second.jobs.len(), second.cursor), (1, None));
}

pub(crate) async fn a_page_has_sixteen_mebibytes_of_bodies(h: &Harness) {
    const MOST: usize = MAX_RESULT_BYTES / MAX_BODY_LEN;
    let body = Body::octets(vec![7; MAX_BODY_LEN]).expect("the value is within the limit");
    // A successor counts, too.
    h.put(job("leased").carrying(body.clone())).await;
    claim_for(h, secs(10)).await;
    h.put(job("leased").carrying(body.clone())).await;
    for n in 1..MOST {
        h.put(job(&format!("{n:02}")).carrying(body.clone())).await;
    }
    let claimed = h.claim_with(|claim| (claim.max, claim.lease) = (100, Some(secs(20)))).await;
    assert_eq!(claimed.jobs.len(), MOST - 1);
    let query = TimeQuery { limit: MAX_BATCH, ..query(JobState::Leased) };
    let first = page(h, query.clone()).await;
    assert_eq!(first.jobs.len(), MOST - 1);
    assert!(first.jobs[0].next.is_some());
    let second = page(h, TimeQuery { after: first.cursor, ..query }).await;
    assert_eq!((second.jobs.len(), second.cursor), (1, None));
}
