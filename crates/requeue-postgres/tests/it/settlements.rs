//! Retries, buries, releases and requeues in one statement: the same as the rules, which settle what that statement leaves.

use crate::support::{LONG, PostgresFixture, SERVER, claim_of, kind_named, put_of};
use requeue_jobs::{
    Backoff, Change, ChangeKind, ClaimedJob, Generation, JobView, Kind, Settings, Settle, Settled,
    Settlement, Store, StoreMetric,
};
use requeue_postgres::PostgresStore;
use requeue_testkit::{Fixture, Random, block_on};
use std::time::Duration;

fn claimed(store: &PostgresStore, kind: &Kind, max: usize) -> Vec<ClaimedJob> {
    let claimed = block_on(store.claim(claim_of(kind, max, LONG))).expect("the server is up");
    assert_eq!(claimed.errors, []);
    claimed.jobs
}

fn settle(store: &PostgresStore, jobs: &[ClaimedJob], actions: &[Settlement]) -> Vec<Settled> {
    let settle = |(job, action): (&ClaimedJob, &Settlement)| Settle {
        receipt: job.receipt.clone(),
        action: action.clone(),
    };
    let batch = jobs.iter().zip(actions).map(settle).collect();
    let results = block_on(store.settle(batch)).expect("the server is up");
    results.into_iter().map(|result| result.expect("the lease is held")).collect()
}

fn views(store: &PostgresStore, kind: &Kind) -> Vec<JobView> {
    let query = requeue_jobs::Query::new(kind.clone());
    block_on(store.list(query)).expect("the server is up").jobs
}

fn change(store: &PostgresStore, job: &JobView, action: ChangeKind) {
    let change = Change { kind: job.kind.clone(), id: job.id.clone(), action };
    block_on(store.change(vec![change])).expect("the server is up").remove(0).expect("it exists");
}

fn statements(store: &PostgresStore) -> f64 {
    let metrics = store.status().metrics;
    let is_it = |metric: &&StoreMetric| metric.name == "postgres_statements_total";
    metrics.iter().find(is_it).expect("it is reported").value
}

fn random_action(random: &mut Random) -> Settlement {
    let error =
        random.pick(&["no", "", "\0\u{1}\"\\\n", "ünd\u{10ffff}"]).repeat(random.below(900));
    let delay = Duration::from_nanos(random.number() % 100_000_000_000);
    match random.below(6) {
        0 => Settlement::Bury { error },
        1 => Settlement::Release,
        2 => Settlement::RequeueAfter(delay),
        n => Settlement::Retry { error, delay: (n == 3).then_some(delay) },
    }
}

/// The rules settle a batch in which a job occurs twice.
#[test]
fn a_statement_settles_jobs_as_the_rules_do() {
    let fixture = PostgresFixture::at(&SERVER.url());
    let store = fixture.postgres();
    let kinds = ["by.statement", "by.rules"].map(kind_named);
    let mut settings = Settings::default();
    settings.backoff.jitter_percent = 0;
    (settings.max_attempts, settings.retention.count) = (7, 3);
    for kind in &kinds {
        block_on(store.set(kind.clone(), settings.clone())).expect("the server is up");
        let puts = (0..6).map(|n| put_of(kind, &format!("job-{n}"))).collect();
        block_on(store.put(puts)).expect("the server is up");
    }
    let mut random = Random::new(35);
    for round in 0..60 {
        let actions: Vec<_> = (0..6).map(|_| random_action(&mut random)).collect();
        let settled = kinds.clone().map(|kind| {
            let (mut jobs, mut actions) = (claimed(&store, &kind, 6), actions.clone());
            jobs.sort_by(|a, b| a.id().cmp(b.id()));
            actions.truncate(jobs.len());
            if kind == kinds[0] || jobs.is_empty() {
                return settle(&store, &jobs, &actions);
            }
            let mut batch: Vec<_> = jobs
                .iter()
                .zip(actions)
                .map(|(job, action)| Settle { receipt: job.receipt.clone(), action })
                .collect();
            batch.push(Settle { receipt: jobs[0].receipt.clone(), action: Settlement::Ack });
            let mut results = block_on(store.settle(batch)).expect("the server is up");
            results.pop().expect("there is one").expect_err("it is settled");
            results.into_iter().map(|result| result.expect("the lease is held")).collect()
        });
        assert_eq!(settled[0], settled[1], "round {round}");
        let views = kinds.clone().map(|kind| {
            let mut views = views(&store, &kind);
            for view in &mut views {
                (view.kind, view.version.generation) = (kinds[0].clone(), Generation(0));
            }
            views
        });
        assert_eq!(views[0], views[1], "round {round}");
        fixture.check();
        fixture.advance(Duration::from_secs(10));
        for view in kinds.iter().flat_map(|kind| views_to_revive(&store, kind)) {
            change(&store, &view, ChangeKind::Revive);
        }
    }
}

/// Others stay dead, and some of them become too many.
fn views_to_revive(store: &PostgresStore, kind: &Kind) -> Vec<JobView> {
    let is_dead = |view: &JobView| view.state == requeue_jobs::JobState::Dead;
    let mut dead: Vec<_> = views(store, kind).into_iter().filter(is_dead).collect();
    dead.truncate(1);
    dead
}

#[test]
fn a_batch_is_one_statement() {
    let fixture = PostgresFixture::at(&SERVER.url());
    let (store, kind) = (fixture.postgres(), kind_named("mail"));
    let puts = (0..8).map(|n| put_of(&kind, &format!("job-{n}"))).collect();
    block_on(store.put(puts)).expect("the server is up");
    let jobs = claimed(&store, &kind, 8);
    let error = || "no".to_owned();
    let actions = [
        Settlement::Retry { error: error(), delay: None },
        Settlement::Retry { error: error(), delay: Some(LONG) },
        Settlement::Bury { error: error() },
        Settlement::Release,
        Settlement::RequeueAfter(LONG),
    ];
    let before = statements(&store);
    settle(&store, &jobs[..5], &actions);
    assert_eq!(statements(&store) - before, 1.0);
    fixture.check();
}

#[test]
fn the_backoff_is_that_of_the_settings_to_the_millisecond() {
    let fixture = PostgresFixture::at(&SERVER.url());
    let (store, kind) = (fixture.postgres(), kind_named("mail"));
    block_on(store.put(vec![put_of(&kind, "a")])).expect("the server is up");
    let mut random = Random::new(36);
    let mut settings = Settings::default();
    settings.max_attempts = u32::MAX;
    for _ in 0..60 {
        let max = Duration::from_nanos(random.number() >> (random.below(45) + 6))
            .min(requeue_jobs::limits::MAX_DELAY);
        let base =
            Duration::from_nanos((random.number() >> random.below(50)).min(max.as_nanos() as u64));
        let jitter_percent = random.below(101) as u8;
        settings.backoff = Backoff { base, max, jitter_percent };
        block_on(store.set(kind.clone(), settings.clone())).expect("the server is up");
        let job = claimed(&store, &kind, 1).remove(0);
        let seed = job.receipt.fence().0 ^ job.receipt.nonce();
        let delay = settings.backoff.delay(job.attempt, seed);
        let expected = Settled::RetryAt(fixture.now().saturating_add(delay));
        let before = statements(&store);
        let retry = Settlement::Retry { error: String::new(), delay: None };
        assert_eq!(settle(&store, &[job], &[retry]), [expected], "{settings:?}");
        assert_eq!(statements(&store) - before, 1.0);
        fixture.advance(max.saturating_add(Duration::from_millis(1)));
    }
}
