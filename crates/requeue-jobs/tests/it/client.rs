//! The guarantees of [`Jobs`], the client of a store.

use requeue_jobs::{
    ChangeError, Changed, Invalid, JobState, Jobs, ManualClock, MemoryStore, Mode, Page, PutError,
    PutOutcome, SettleError, Settled, StoreError, Timestamp, WallClock, limits,
};
use requeue_testkit::block_on;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn jobs() -> (Jobs, ManualClock) {
    let clock = ManualClock::new();
    let store = MemoryStore::with(WallClock::manual(&clock, Timestamp::from_millis(1_000_000)));
    (Jobs::with_clock(Arc::new(store), &clock), clock)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_put_specifies_the_due_time_the_mode_and_the_condition() {
    block_on(async {
        let (jobs, _clock) = jobs();
        let due =
            async |jobs: &Jobs| jobs.get("k", "i").await.unwrap().unwrap().version.due.as_millis();
        jobs.put("k", "i", "1").after(5 * SECOND).await.unwrap();
        assert_eq!(due(&jobs).await, 1_005_000);
        jobs.put("k", "i", "2").at(Timestamp::from_millis(1_007_000)).await.unwrap();
        assert_eq!(due(&jobs).await, 1_007_000);
        jobs.put("k", "i", "3").after(9 * SECOND).mode(Mode::Earliest).await.unwrap();
        assert_eq!(due(&jobs).await, 1_007_000);
        let kept = jobs.put("k", "i", "4").mode(Mode::Keep).await.unwrap();
        assert_eq!(kept.outcome, PutOutcome::Kept);
        let stale = jobs.put("k", "i", "5").if_generation(requeue_jobs::Generation(1)).await;
        assert!(matches!(stale, Err(PutError::Generation { .. })));
        let updated = jobs.put("k", "i", "6").if_generation(kept.generation).content_type("a/b");
        assert_eq!(updated.await.unwrap().outcome, PutOutcome::Updated);
        let view = jobs.get("k", "i").await.unwrap().unwrap();
        assert_eq!((view.body().bytes(), view.body().content_type()), (&b"6"[..], "a/b"));
        let exists = jobs.put("k", "i", "7").if_absent().await;
        assert!(matches!(exists, Err(PutError::Exists { .. })));
    });
}

#[test]
fn invalid_arguments_are_rejected_with_the_reason() {
    block_on(async {
        let (jobs, _clock) = jobs();
        let message = async |put: requeue_jobs::PutJob| put.await.unwrap_err().to_string();
        let long = "t".repeat(limits::MAX_CONTENT_TYPE_LEN + 1);
        let large = vec![0; limits::MAX_BODY_LEN + 1];
        assert!(message(jobs.put("a b", "i", "").after(SECOND)).await.contains("' '"));
        assert!(message(jobs.put("k", "", "")).await.contains("the id"));
        assert!(message(jobs.put("k", "i", large)).await.contains("1048577"));
        assert!(message(jobs.put("k", "i", "").content_type(&long)).await.contains("129"));
        let absent = jobs.cancel("k", "i").await;
        assert!(matches!(absent, Err(ChangeError::Absent { .. })));
        assert!(jobs.run_now("k", "").await.is_err() && jobs.revive("", "i").await.is_err());
        let unnamed = jobs.claim(["k"], "").await;
        assert!(matches!(unnamed, Err(StoreError::Invalid(Invalid::Empty { .. }))));
        assert!(jobs.get("k", "").await.is_err());
    });
}

#[test]
fn a_job_is_claimed_extended_released_retried_and_acked_by_its_receipt() {
    block_on(async {
        let (jobs, clock) = jobs();
        jobs.put("k", "i", "").await.unwrap();
        let claim = async || jobs.claim(["k"], "w").lease(SECOND).await.unwrap().jobs.pop();
        let job = claim().await.unwrap();
        clock.advance(SECOND / 2);
        let until = Timestamp::from_millis(1_001_500);
        assert_eq!(jobs.extend(&job.receipt, SECOND).await, Ok(Settled::Extended(until)));
        assert_eq!(jobs.release(&job.receipt).await, Ok(Settled::Released));
        assert!(matches!(jobs.ack(&job.receipt).await, Err(SettleError::LeaseLost { .. })));
        let job = claim().await.unwrap();
        assert!(matches!(jobs.retry(&job.receipt, "no").await, Ok(Settled::RetryAt(_))));
        assert_eq!(jobs.run_now("k", "i").await, Ok(Changed::Ready));
        let job = claim().await.unwrap();
        assert_eq!(job.attempt, 2);
        assert_eq!(jobs.ack(&job.receipt).await, Ok(Settled::Done));
        assert_eq!(claim().await, None);
    });
}

#[test]
fn no_two_claims_have_the_same_nonce() {
    block_on(async {
        let (jobs, _clock) = jobs();
        let mut nonces = std::collections::HashSet::new();
        for id in 0..100 {
            jobs.put("k", &id.to_string(), "").await.unwrap();
            nonces.insert(jobs.claim(["k"], "w").await.unwrap().jobs[0].receipt.nonce());
        }
        assert_eq!(nonces.len(), 100);
    });
}

#[test]
fn a_waiting_claim_returns_a_job_that_becomes_due() {
    let (jobs, clock) = jobs();
    block_on(jobs.put("k", "i", "").after(25 * SECOND).into_future()).unwrap();
    let mut claim = pin!(jobs.claim(["k"], "w").wait(60 * SECOND).into_future());
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..25 {
        assert!(claim.as_mut().poll(&mut cx).is_pending());
        clock.advance(SECOND);
    }
    let Poll::Ready(claimed) = claim.as_mut().poll(&mut cx) else { panic!("the job is due") };
    assert_eq!(claimed.unwrap().jobs[0].id().as_str(), "i");
}

#[test]
fn a_claim_waits_no_longer_than_its_limit() {
    let (jobs, clock) = jobs();
    let mut claim = pin!(jobs.claim(["k"], "w").wait(2500 * SECOND / 1000).into_future());
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..5 {
        assert!(claim.as_mut().poll(&mut cx).is_pending());
        clock.advance(SECOND / 2);
    }
    let Poll::Ready(claimed) = claim.as_mut().poll(&mut cx) else { panic!("the limit has passed") };
    assert!(claimed.unwrap().jobs.is_empty());
}

#[cfg(feature = "serde")]
#[test]
fn a_json_body_round_trips() {
    block_on(async {
        let (jobs, _clock) = jobs();
        jobs.put_json("k", "i", &vec![1, 2]).after(SECOND).await.unwrap();
        jobs.run_now("k", "i").await.unwrap();
        let job = &jobs.claim(["k"], "w").await.unwrap().jobs[0];
        assert_eq!(job.body().content_type(), "application/json");
        assert_eq!(job.json::<Vec<u8>>(), Ok(vec![1, 2]));
        assert!(matches!(job.json::<String>(), Err(Invalid::NotJson { .. })));
        let keys = std::collections::HashMap::from([((), ())]);
        let put = jobs.put_json("k", "i", &keys).await;
        assert!(put.unwrap_err().to_string().contains("key must be a string"));
    });
}

#[test]
fn a_claim_of_zero_jobs_returns_immediately() {
    let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    block_on(async {
        jobs.put("k", "i", "").await.expect("the memory store does not fail");
        let claim = jobs.claim(["k"], "w").max(0).wait(Duration::from_secs(3600));
        assert!(claim.await.expect("the memory store does not fail").jobs.is_empty());
    });
}

#[test]
fn many_puts_are_split_into_calls_and_each_has_its_result() {
    block_on(async {
        let (jobs, _clock) = jobs();
        let count = limits::MAX_BATCH + 5;
        let puts = (0..count).map(|n| jobs.put("k", &n.to_string(), "").if_absent());
        assert_eq!(jobs.put_all(puts).await.unwrap().len(), count);
        assert_eq!(jobs.kind("k").await.unwrap().counts.pending, count as u64);
        let puts = ["new", "", "3"].map(|id| jobs.put("k", id, "").if_absent());
        let error = jobs.put_all(puts).await.unwrap_err();
        let text = "2 of 3 jobs were not put; the first is number 1: the id must not be empty";
        assert_eq!(error.to_string(), text);
        let results = error.results;
        assert_eq!(results.len(), 3);
        assert_eq!(results[0].as_ref().unwrap().outcome, PutOutcome::Created);
        assert!(results[1].as_ref().unwrap_err().to_string().contains("the id"));
        assert!(matches!(results[2], Err(PutError::Exists { .. })));
        assert_eq!(jobs.put_all([]).await, Ok(vec![]));
    });
}

#[test]
fn many_large_puts_are_split_by_their_bytes() {
    block_on(async {
        let (jobs, _clock) = jobs();
        let body = vec![0; limits::MAX_BODY_LEN];
        let count = limits::MAX_BATCH_BYTES / limits::MAX_BODY_LEN + 1;
        let puts = (0..count).map(|n| jobs.put("k", &n.to_string(), &body));
        assert_eq!(jobs.put_all(puts).await.unwrap().len(), count);
    });
}

#[test]
fn jobs_are_listed_by_state_and_prefix_page_by_page() {
    block_on(async {
        let (jobs, _clock) = jobs();
        for id in ["a1", "a2", "a3", "b1"] {
            jobs.put("k", id, "").await.unwrap();
        }
        jobs.put("k", "a4", "").after(SECOND).await.unwrap();
        let ready = || jobs.list("k").state(JobState::Ready).prefix("a").limit(2);
        let ids = |page: &Page| page.jobs.iter().map(|job| job.id.to_string()).collect::<Vec<_>>();
        let first = ready().await.unwrap();
        assert_eq!(ids(&first), ["a1", "a2"]);
        let second = ready().after(first.cursor.clone().expect("there are more")).await.unwrap();
        assert_eq!((ids(&second), second.cursor), (vec!["a3".to_owned()], None));
        assert!(jobs.list("a b").await.is_err());
        assert_eq!(jobs.kinds().await.unwrap().len(), 1);
    });
}

#[test]
fn invalid_settings_are_rejected_and_change_nothing() {
    block_on(async {
        let (jobs, _clock) = jobs();
        let set = jobs.change_settings("k", |settings| settings.concurrency = Some(0)).await;
        assert!(matches!(set, Err(StoreError::Invalid(Invalid::TooLow { .. }))), "{set:?}");
        assert_eq!(jobs.settings("k").await.unwrap().concurrency, None);
        let set = jobs.change_settings("k", |settings| settings.paused = true).await.unwrap();
        assert!(set.paused && jobs.settings("k").await.unwrap().paused);
    });
}

#[test]
fn a_buried_job_is_dead_with_its_error() {
    block_on(async {
        let (jobs, _clock) = jobs();
        jobs.put("k", "i", "").await.unwrap();
        let claimed = jobs.claim(["k"], "w").await.unwrap();
        jobs.bury(&claimed.jobs[0].receipt, "no such order").await.unwrap();
        let job = jobs.get("k", "i").await.unwrap().unwrap();
        assert_eq!(job.state, JobState::Dead);
        assert_eq!(job.failures[0].error.as_deref(), Some("no such order"));
    });
}
