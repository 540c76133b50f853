//! Failed attempts: how they are counted and kept, and when the job is retried.

use crate::harness::{Harness, LEASE, ids, job, millis, secs};
use requeue_jobs::{Backoff, JobState, Mode, Settled, limits};

pub(crate) async fn a_failed_job_comes_back_after_its_delay(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    assert_eq!(h.retry(&job, secs(10)).await, Settled::RetryAt(h.after(secs(10))));
    let view = h.view("a").await;
    assert_eq!((view.state, view.version.due), (JobState::Waiting, h.after(secs(10))));
    assert_eq!((view.attempts, view.lease), (1, None));
    h.advance(secs(10) - millis(1));
    h.claims_nothing().await;
    h.advance(millis(1));
    let again = h.claim().await;
    assert_eq!((again.attempt, again.version.generation), (2, job.version.generation));
}

pub(crate) async fn a_failed_job_can_be_retried_immediately(h: &Harness) {
    h.put("a").await;
    for attempt in 1..=3 {
        let job = h.claim().await;
        assert_eq!(job.attempt, attempt);
        assert_eq!(h.retry(&job, secs(0)).await, Settled::RetryAt(h.now()));
    }
}

pub(crate) async fn a_failed_job_comes_after_jobs_that_were_due_before(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    let job = h.claim().await;
    h.retry(&job, secs(0)).await;
    assert_eq!(ids(&h.claim_up_to(10).await), ["b", "a"]);
}

pub(crate) async fn a_second_retry_changes_nothing(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.retry(&job, secs(10)).await;
    h.assert_lost(&job).await;
    assert_eq!(h.view("a").await.attempts, 1);
}

pub(crate) async fn a_kinds_backoff_doubles_up_to_its_maximum(h: &Harness) {
    let backoff = Backoff { base: secs(10), max: secs(35), jitter_percent: 0 };
    h.set(|settings| settings.backoff = backoff).await;
    h.put("a").await;
    for delay in [10, 20, 35, 35] {
        let job = h.claim().await;
        assert_eq!(h.fail(&job, "no").await, Settled::RetryAt(h.after(secs(delay))));
        h.advance(secs(delay));
    }
}

pub(crate) async fn jitter_only_shortens_the_backoff(h: &Harness) {
    let backoff = Backoff { base: secs(100), max: secs(100), jitter_percent: 20 };
    h.set(|settings| settings.backoff = backoff).await;
    let mut delays = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        h.put(name).await;
        let job = h.claim().await;
        let Settled::RetryAt(due) = h.fail(&job, "no").await else {
            panic!("the job is retried");
        };
        assert!((h.after(secs(80))..=h.after(secs(100))).contains(&due));
        delays.push(due);
    }
    delays.dedup();
    assert!(delays.len() > 1, "jobs that failed together are retried at different times");
}

pub(crate) async fn a_failure_is_kept_with_its_worker_its_times_and_its_error(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    let began = h.now();
    h.advance(secs(3));
    h.fail(&job, "550 no such user: ü").await;
    let view = h.view("a").await;
    assert_eq!((view.failures.len(), view.updated_at), (1, h.now()));
    let failure = &view.failures[0];
    assert_eq!(failure.worker.as_str(), "worker-1");
    assert_eq!((failure.started_at, failure.ended_at), (began, h.now()));
    assert_eq!(failure.error.as_deref(), Some("550 no such user: ü"));
}

pub(crate) async fn the_last_five_failures_are_kept(h: &Harness) {
    h.set(|settings| settings.backoff = Backoff { base: secs(0), ..Backoff::default() }).await;
    h.put("a").await;
    for attempt in 1..=7 {
        let job = h.claim().await;
        h.fail(&job, &format!("error {attempt}")).await;
    }
    let view = h.view("a").await;
    let errors: Vec<_> = view.failures.iter().filter_map(|f| f.error.as_deref()).collect();
    assert_eq!(errors, ["error 3", "error 4", "error 5", "error 6", "error 7"]);
    assert_eq!((view.attempts, errors.len()), (7, limits::KEPT_ATTEMPTS));
}

pub(crate) async fn a_long_error_is_cut_between_characters(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.fail(&job, &format!("x{}", "ü".repeat(limits::MAX_ERROR_LEN))).await;
    let view = h.view("a").await;
    let error = view.failures[0].error.as_deref().expect("the failure has an error");
    assert_eq!(error.len(), limits::MAX_ERROR_LEN - 1);
    assert!(error.ends_with('ü'));
}

pub(crate) async fn a_put_does_not_reset_the_attempts(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.retry(&job, secs(0)).await;
    h.put("a").await;
    let view = h.view("a").await;
    assert_eq!((view.attempts, view.failures.len()), (1, 1));
    assert_eq!(h.claim().await.attempt, 2);
}

pub(crate) async fn a_release_does_not_reset_the_attempts(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.retry(&job, secs(0)).await;
    let job = h.claim().await;
    h.release(&job).await;
    assert_eq!(h.claim().await.attempt, 2);
}

pub(crate) async fn an_ack_resets_the_attempts(h: &Harness) {
    h.put("a").await;
    let job = h.claim().await;
    h.retry(&job, secs(0)).await;
    let job = h.claim().await;
    h.put("a").await;
    h.ack(&job).await;
    let view = h.view("a").await;
    assert_eq!((view.attempts, view.failures.len()), (0, 0));
    assert_eq!(h.claim().await.attempt, 1);
}

pub(crate) async fn a_job_dies_after_its_last_attempt(h: &Harness) {
    h.set(|settings| settings.max_attempts = 3).await;
    h.put("a").await;
    for _ in 0..2 {
        let job = h.claim().await;
        assert_eq!(h.retry(&job, secs(0)).await, Settled::RetryAt(h.now()));
    }
    let job = h.claim().await;
    assert_eq!((job.attempt, h.retry(&job, secs(0)).await), (3, Settled::Dead));
}

pub(crate) async fn failures_and_expiries_both_count(h: &Harness) {
    h.set(|settings| settings.max_attempts = 3).await;
    h.put("a").await;
    let job = h.claim().await;
    h.retry(&job, secs(0)).await;
    h.claim().await;
    h.advance(LEASE);
    let job = h.claim().await;
    assert_eq!((job.attempt, h.retry(&job, secs(0)).await), (3, Settled::Dead));
}

pub(crate) async fn puts_do_not_keep_a_failing_job_alive(h: &Harness) {
    h.set(|settings| settings.max_attempts = 3).await;
    h.put("a").await;
    let mut results = Vec::new();
    for _ in 0..3 {
        let job = h.claim().await;
        h.put("a").await;
        results.push(h.retry(&job, secs(0)).await);
        if h.view("a").await.state != JobState::Dead {
            h.put("a").await;
        }
    }
    assert_eq!(results[2], Settled::Dead);
}

pub(crate) async fn max_attempts_of_zero_means_one(h: &Harness) {
    h.set(|settings| settings.max_attempts = 0).await;
    h.put("a").await;
    let job = h.claim().await;
    assert_eq!(h.retry(&job, secs(0)).await, Settled::Dead);
}

pub(crate) async fn a_put_does_not_end_the_backoff(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(10)).await;
    let end = h.after(secs(10));
    for put in [job("a"), job("a").after(secs(3)), job("a").mode(Mode::Earliest)] {
        h.put(put.body("again")).await;
        assert_eq!(h.view("a").await.version.due, end);
    }
    h.put(job("a").body("last").debounce(secs(1))).await;
    assert_eq!(h.view("a").await.version.due, end);
    h.advance(secs(10) - millis(1));
    h.claims_nothing().await;
    h.advance(millis(1));
    assert_eq!(h.claim().await.body().bytes(), b"last");
}

pub(crate) async fn a_put_may_be_due_later_than_the_backoff(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(10)).await;
    h.put(job("a").after(secs(60))).await;
    assert_eq!(h.view("a").await.version.due, h.after(secs(60)));
    // Earlier again, but not before the end of the backoff.
    h.put("a").await;
    assert_eq!(h.view("a").await.version.due, h.after(secs(10)));
}

pub(crate) async fn a_put_does_not_end_the_delay_of_a_retry(h: &Harness) {
    h.set(|settings| settings.backoff.base = secs(3600)).await;
    h.put("a").await;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(10)).await;
    h.put("a").await;
    assert_eq!(h.view("a").await.version.due, h.after(secs(10)));
}

pub(crate) async fn the_backoff_ends_when_the_attempts_are_reset(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.retry(&claimed, secs(3600)).await;
    h.cancel("a").await;
    h.put("a").await;
    assert_eq!(h.claim().await.attempt, 1);
}
