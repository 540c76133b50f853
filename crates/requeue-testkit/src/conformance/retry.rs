//! Failed attempts: how they are counted and kept, and when the job comes back.

use crate::trial::{LEASE, Trial, ids, job, millis, secs};
use requeue_jobs::{Backoff, JobState, Mode, Settled, limits};

pub(crate) async fn a_failed_job_comes_back_after_its_delay(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    assert_eq!(t.retry(&job, secs(10)).await, Settled::RetryAt(t.after(secs(10))));
    let view = t.view("a").await;
    assert_eq!((view.state, view.due), (JobState::Waiting, t.after(secs(10))));
    assert_eq!((view.attempts, view.lease), (1, None));
    t.advance(secs(10) - millis(1));
    t.claims_nothing().await;
    t.advance(millis(1));
    let again = t.claim().await;
    assert_eq!((again.attempt, again.generation), (2, job.generation));
}

pub(crate) async fn a_failed_job_may_come_back_at_once(t: &Trial) {
    t.put("a").await;
    for attempt in 1..=3 {
        let job = t.claim().await;
        assert_eq!(job.attempt, attempt);
        assert_eq!(t.retry(&job, secs(0)).await, Settled::RetryAt(t.now()));
    }
}

pub(crate) async fn a_failed_job_stands_behind_those_that_were_due_before(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    let job = t.claim().await;
    t.retry(&job, secs(0)).await;
    assert_eq!(ids(&t.claim_up_to(10).await), ["b", "a"]);
}

pub(crate) async fn a_retry_twice_is_a_retry_once(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.retry(&job, secs(10)).await;
    t.assert_lost(&job).await;
    assert_eq!(t.view("a").await.attempts, 1);
}

pub(crate) async fn a_kinds_backoff_doubles_up_to_its_maximum(t: &Trial) {
    let backoff = Backoff { base: secs(10), max: secs(35), jitter_percent: 0 };
    t.set(|settings| settings.backoff = backoff).await;
    t.put("a").await;
    for delay in [10, 20, 35, 35] {
        let job = t.claim().await;
        assert_eq!(t.fail(&job, "no").await, Settled::RetryAt(t.after(secs(delay))));
        t.advance(secs(delay));
    }
}

pub(crate) async fn jitter_takes_away_from_the_backoff_and_adds_nothing(t: &Trial) {
    let backoff = Backoff { base: secs(100), max: secs(100), jitter_percent: 20 };
    t.set(|settings| settings.backoff = backoff).await;
    let mut delays = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        t.put(name).await;
        let job = t.claim().await;
        let Settled::RetryAt(due) = t.fail(&job, "no").await else {
            panic!("it comes back");
        };
        assert!((t.after(secs(80))..=t.after(secs(100))).contains(&due));
        delays.push(due);
    }
    delays.dedup();
    assert!(delays.len() > 1, "five jobs that failed together do not return together");
}

pub(crate) async fn a_failure_is_kept_with_its_worker_its_times_and_its_error(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    let began = t.now();
    t.advance(secs(3));
    t.fail(&job, "550 no such user: ü").await;
    let view = t.view("a").await;
    assert_eq!((view.failures.len(), view.updated_at), (1, t.now()));
    let failure = &view.failures[0];
    assert_eq!(failure.worker.as_str(), "worker-1");
    assert_eq!((failure.started_at, failure.ended_at), (began, t.now()));
    assert_eq!(failure.error.as_deref(), Some("550 no such user: ü"));
}

pub(crate) async fn the_last_five_failures_are_kept(t: &Trial) {
    t.set(|settings| settings.backoff = Backoff { max: secs(0), ..Backoff::default() }).await;
    t.put("a").await;
    for attempt in 1..=7 {
        let job = t.claim().await;
        t.fail(&job, &format!("error {attempt}")).await;
    }
    let view = t.view("a").await;
    let errors: Vec<_> = view.failures.iter().filter_map(|f| f.error.as_deref()).collect();
    assert_eq!(errors, ["error 3", "error 4", "error 5", "error 6", "error 7"]);
    assert_eq!((view.attempts, errors.len()), (7, limits::KEPT_ATTEMPTS));
}

pub(crate) async fn a_long_error_is_cut_between_characters(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.fail(&job, &format!("x{}", "ü".repeat(limits::MAX_ERROR_LEN))).await;
    let view = t.view("a").await;
    let error = view.failures[0].error.as_deref().expect("it said why");
    assert_eq!(error.len(), limits::MAX_ERROR_LEN - 1);
    assert!(error.ends_with('ü'));
}

pub(crate) async fn a_put_does_not_reset_the_attempts(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.retry(&job, secs(0)).await;
    t.put("a").await;
    let view = t.view("a").await;
    assert_eq!((view.attempts, view.failures.len()), (1, 1));
    assert_eq!(t.claim().await.attempt, 2);
}

pub(crate) async fn a_release_does_not_reset_the_attempts(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.retry(&job, secs(0)).await;
    let job = t.claim().await;
    t.release(&job).await;
    assert_eq!(t.claim().await.attempt, 2);
}

pub(crate) async fn an_ack_resets_the_attempts(t: &Trial) {
    t.put("a").await;
    let job = t.claim().await;
    t.retry(&job, secs(0)).await;
    let job = t.claim().await;
    t.put("a").await;
    t.ack(&job).await;
    let view = t.view("a").await;
    assert_eq!((view.attempts, view.failures.len()), (0, 0));
    assert_eq!(t.claim().await.attempt, 1);
}

pub(crate) async fn the_last_attempt_ends_in_death(t: &Trial) {
    t.set(|settings| settings.max_attempts = 3).await;
    t.put("a").await;
    for _ in 0..2 {
        let job = t.claim().await;
        assert_eq!(t.retry(&job, secs(0)).await, Settled::RetryAt(t.now()));
    }
    let job = t.claim().await;
    assert_eq!((job.attempt, t.retry(&job, secs(0)).await), (3, Settled::Dead));
}

pub(crate) async fn failures_and_lapses_count_alike(t: &Trial) {
    t.set(|settings| settings.max_attempts = 3).await;
    t.put("a").await;
    let job = t.claim().await;
    t.retry(&job, secs(0)).await;
    t.claim().await;
    t.advance(LEASE);
    let job = t.claim().await;
    assert_eq!((job.attempt, t.retry(&job, secs(0)).await), (3, Settled::Dead));
}

pub(crate) async fn puts_do_not_keep_a_failing_job_alive(t: &Trial) {
    t.set(|settings| settings.max_attempts = 3).await;
    t.put("a").await;
    let mut answers = Vec::new();
    for _ in 0..3 {
        let job = t.claim().await;
        t.put("a").await;
        answers.push(t.retry(&job, secs(0)).await);
        if t.view("a").await.state != JobState::Dead {
            t.put("a").await;
        }
    }
    assert_eq!(answers[2], Settled::Dead);
}

pub(crate) async fn no_attempts_at_all_count_as_one(t: &Trial) {
    t.set(|settings| settings.max_attempts = 0).await;
    t.put("a").await;
    let job = t.claim().await;
    assert_eq!(t.retry(&job, secs(0)).await, Settled::Dead);
}

pub(crate) async fn a_put_does_not_cut_the_backoff_short(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.retry(&claimed, secs(10)).await;
    let end = t.after(secs(10));
    for wish in [job("a"), job("a").after(secs(3)), job("a").mode(Mode::Earliest)] {
        t.put(wish.body("again")).await;
        assert_eq!(t.view("a").await.due, end);
    }
    t.put(job("a").body("last").debounce(secs(1))).await;
    assert_eq!(t.view("a").await.due, end);
    t.advance(secs(10) - millis(1));
    t.claims_nothing().await;
    t.advance(millis(1));
    assert_eq!(t.claim().await.body.bytes(), b"last");
}

pub(crate) async fn a_put_may_be_due_later_than_the_backoff(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.retry(&claimed, secs(10)).await;
    t.put(job("a").after(secs(60))).await;
    assert_eq!(t.view("a").await.due, t.after(secs(60)));
    // Sooner again, but no sooner than the backoff's end.
    t.put("a").await;
    assert_eq!(t.view("a").await.due, t.after(secs(10)));
}

pub(crate) async fn a_retry_after_a_delay_sets_the_floor_too(t: &Trial) {
    t.set(|settings| settings.backoff.base = secs(3600)).await;
    t.put("a").await;
    let claimed = t.claim().await;
    t.retry(&claimed, secs(10)).await;
    t.put("a").await;
    assert_eq!(t.view("a").await.due, t.after(secs(10)));
}

pub(crate) async fn a_floor_is_gone_with_the_attempts(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.retry(&claimed, secs(3600)).await;
    t.cancel("a").await;
    t.put("a").await;
    assert_eq!(t.claim().await.attempt, 1);
}
