//! Rate limits.

use crate::harness::{Harness, LEASE, ids, job, kind, mail, millis, secs};
use requeue_jobs::limits::{MAX_RATE_JOBS, MAX_RATE_PERIOD};
use requeue_jobs::{Invalid, JobState, Rate, Settings, StoreError};
use std::time::Duration;

/// Limits the kind `mail`.
async fn limit(h: &Harness, jobs: u32, per: Duration, burst: u32) {
    h.set(|settings| settings.rate = Some(Rate { jobs, per, burst: Some(burst) })).await;
}

async fn put_many(h: &Harness, count: usize) {
    for number in 0..count {
        h.put(format!("{number:02}").as_str()).await;
        // So that stores that do not order ties return them in this order.
        h.advance(millis(1));
    }
}

async fn throttled_until(h: &Harness) -> Option<Duration> {
    let until = h.kind().await.throttled_until?;
    Some(millis(until.as_millis() - h.now().as_millis()))
}

pub(crate) async fn a_claim_returns_no_more_than_the_rate_allows(h: &Harness) {
    put_many(h, 10).await;
    limit(h, 2, secs(1), 3).await;
    assert_eq!(ids(&h.claim_up_to(10).await), ["00", "01", "02"], "the burst");
    h.claims_nothing().await;
    h.advance(millis(499));
    h.claims_nothing().await;
    h.advance(millis(1));
    assert_eq!(ids(&h.claim_up_to(10).await), ["03"]);
    h.advance(secs(1));
    assert_eq!(ids(&h.claim_up_to(10).await), ["04", "05"]);
    h.advance(secs(3600));
    assert_eq!(h.claim_up_to(10).await.len(), 3, "tokens beyond the burst are lost");
}

pub(crate) async fn by_default_claims_are_spaced_evenly(h: &Harness) {
    put_many(h, 30).await;
    let rate = Rate::new(10, secs(1));
    h.set(|settings| settings.rate = Some(rate)).await;
    assert_eq!(h.settings().await.rate, Some(rate), "the burst is stored as unset");
    let mut claimed = Vec::new();
    // At each token of the first two seconds, and just before it.
    for time in (0..2000).step_by(100).flat_map(|token| [token, token + 99]) {
        claimed.extend(h.claim_up_to(10).await.iter().map(|_| time));
        h.advance(millis(if time % 100 == 0 { 99 } else { 1 }));
    }
    assert_eq!(claimed, (0..2000).step_by(100).collect::<Vec<_>>());
    h.advance(secs(3600));
    assert_eq!(h.claim_up_to(10).await.len(), 1, "also after a pause");
}

pub(crate) async fn by_default_a_burst_is_what_the_rate_allows_in_100_ms(h: &Harness) {
    put_many(h, 30).await;
    for (rate, burst) in [
        (Rate::new(100, secs(1)), 10),
        (Rate::new(119, secs(1)), 11),
        (Rate::new(1, millis(50)), 2),
        (Rate::new(600, secs(60)), 1),
        (Rate::new(1, secs(3600)), 1),
    ] {
        h.set(|settings| settings.rate = Some(rate)).await;
        assert_eq!(h.claim_up_to(20).await.len(), burst, "{rate:?}");
    }
}

pub(crate) async fn no_token_is_lost_by_rounding(h: &Harness) {
    put_many(h, 12).await;
    limit(h, 3, secs(1), 2).await;
    let mut claimed = h.claim_up_to(10).await.len();
    for _ in 0..300 {
        h.advance(millis(10));
        claimed += h.claim_up_to(10).await.len();
    }
    assert_eq!(claimed, 2 + 9, "the burst, and three seconds");
}

pub(crate) async fn the_limit_holds_across_claims_of_several_kinds(h: &Harness) {
    put_many(h, 3).await;
    h.put(job("x").of("sms")).await;
    limit(h, 1, secs(60), 1).await;
    let both = vec![mail(), kind("sms")];
    let claimed = h.claim_with(|claim| (claim.kinds, claim.max) = (both, 10)).await;
    let mut names = ids(&claimed.jobs);
    names.sort_unstable();
    assert_eq!(names, ["00", "x"], "the other kind is not limited");
}

pub(crate) async fn a_release_gives_its_token_back(h: &Harness) {
    put_many(h, 2).await;
    limit(h, 1, secs(60), 1).await;
    let job = h.claim().await;
    h.claims_nothing().await;
    h.release(&job).await;
    let job = h.claim().await;
    h.claims_nothing().await;
    // Not if the job is done, or fails.
    h.ack(&job).await;
    h.claims_nothing().await;
    h.advance(secs(60));
    let job = h.claim().await;
    h.retry(&job, secs(0)).await;
    h.claims_nothing().await;
}

pub(crate) async fn retries_and_expired_leases_take_a_token_again(h: &Harness) {
    h.put("a").await;
    limit(h, 1, secs(60), 1).await;
    let job = h.claim().await;
    h.retry(&job, secs(0)).await;
    h.claims_nothing().await;
    h.advance(secs(60));
    h.claim().await;
    h.advance(LEASE);
    assert!(LEASE < secs(60));
    h.claims_nothing().await;
    assert_eq!(h.view("a").await.state, JobState::Leased, "its lease has not been ended");
    h.advance(secs(60) - LEASE);
    assert_eq!(h.claim().await.attempt, 3);
}

pub(crate) async fn a_reap_ends_expired_leases_without_a_token(h: &Harness) {
    h.put("a").await;
    limit(h, 1, secs(60), 1).await;
    h.claim().await;
    h.advance(LEASE);
    assert_eq!(h.reap().await, 1);
    let view = h.view("a").await;
    assert_eq!((view.state, view.attempts), (JobState::Ready, 1));
    h.claims_nothing().await;
    h.advance(secs(60) - LEASE);
    assert_eq!(h.claim().await.attempt, 2, "the reap has taken no token");
}

pub(crate) async fn a_wait_ends_with_the_next_token(h: &Harness) {
    put_many(h, 2).await;
    limit(h, 2, secs(1), 1).await;
    h.claim().await;
    let mut waiting = h.wait();
    h.advance(millis(499));
    assert!(!waiting.is_over());
    h.advance(millis(1));
    waiting.ends().await;
    h.claim().await;
}

pub(crate) async fn a_release_ends_a_wait_for_a_token(h: &Harness) {
    put_many(h, 2).await;
    limit(h, 1, secs(60), 1).await;
    let job = h.claim().await;
    let waiting = h.wait();
    h.release(&job).await;
    waiting.ends().await;
}

pub(crate) async fn a_higher_rate_ends_a_wait(h: &Harness) {
    put_many(h, 2).await;
    limit(h, 1, secs(60), 1).await;
    h.claim().await;
    let waiting = h.wait();
    limit(h, 100, secs(1), 10).await;
    waiting.ends().await;
    h.claim().await;
}

pub(crate) async fn a_kind_shows_until_when_it_is_throttled(h: &Harness) {
    put_many(h, 3).await;
    assert_eq!(throttled_until(h).await, None);
    limit(h, 3, secs(1), 2).await;
    assert_eq!(throttled_until(h).await, None);
    h.claim_up_to(2).await;
    assert_eq!(throttled_until(h).await, Some(millis(334)));
    h.advance(millis(334));
    assert_eq!(throttled_until(h).await, None);
    let views = h.kinds().await;
    assert_eq!(views[0].throttled_until, None);
    h.claim().await;
    assert_eq!(h.kinds().await[0].throttled_until, h.kind().await.throttled_until);
    assert!(throttled_until(h).await.is_some());
}

pub(crate) async fn other_settings_keep_the_tokens_and_another_rate_starts_anew(h: &Harness) {
    put_many(h, 3).await;
    limit(h, 1, secs(60), 1).await;
    h.claim().await;
    h.set(|settings| settings.max_attempts = 7).await;
    h.claims_nothing().await;
    limit(h, 1, secs(60), 2).await;
    assert_eq!(h.claim_up_to(10).await.len(), 2);
    h.set(|settings| settings.rate = None).await;
    assert_eq!(throttled_until(h).await, None);
}

pub(crate) async fn a_rate_out_of_range_is_rejected(h: &Harness) {
    let good = Rate { jobs: 1, per: secs(1), burst: Some(1) };
    for (rate, field) in [
        (Rate { jobs: 0, ..good }, "the number of jobs of the rate"),
        (Rate { jobs: MAX_RATE_JOBS + 1, ..good }, "the number of jobs of the rate"),
        (Rate { burst: Some(0), ..good }, "the burst of the rate"),
        (Rate { burst: Some(MAX_RATE_JOBS + 1), ..good }, "the burst of the rate"),
        (Rate { per: Duration::ZERO, ..good }, "the period of the rate"),
        (Rate { per: MAX_RATE_PERIOD + millis(1), ..good }, "the period of the rate"),
    ] {
        let mut settings = Settings::default();
        settings.rate = Some(rate);
        let error = h.store.set(mail(), settings).await.expect_err("it is out of range");
        let StoreError::Invalid(invalid) = error else { panic!("{error}") };
        let (Invalid::TooLow { field: found, .. }
        | Invalid::TooHigh { field: found, .. }
        | Invalid::OutOfRange { field: found, .. }) = invalid
        else {
            panic!("{invalid}")
        };
        assert_eq!(found, field);
    }
    assert_eq!(h.settings().await, Settings::default());
}
