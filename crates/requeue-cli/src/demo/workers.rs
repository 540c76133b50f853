//! The workers. Their handlers only wait and decide: they send nothing.

use super::random::Random;
use super::scenario::Scenario;
use super::shop::{
    CLEANUP, Event, FEED_APPLY, INVOICE_SEND, Invoice, MailError, ORDER_CLOSE, ORDER_REMIND, Order,
    REPORT_DAILY, SMS_SEND, send_invoice,
};
use crate::error::Result;
use requeue_jobs::{BoxError, JobOutcome, JobRun, JobWorker, Outcome, RunningJobs};
use serde_json::json;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long running handlers may take to finish at the end. Then their jobs are retried.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// How long an event waits for its parent.
const PARENT_DELAY: Duration = Duration::from_secs(2);

/// Name, kinds and concurrency of the workers.
const WORKERS: [(&str, &[&str], usize); 6] = [
    ("worker-1", &[ORDER_REMIND, ORDER_CLOSE, CLEANUP, REPORT_DAILY], 4),
    ("worker-2", &[ORDER_REMIND, ORDER_CLOSE, SMS_SEND], 6),
    ("worker-3", &[SMS_SEND], 2),
    ("mailer", &[INVOICE_SEND], 5),
    ("feed-a", &[FEED_APPLY], 8),
    ("feed-b", &[FEED_APPLY], 3),
];

/// Starts all workers.
pub(super) fn start(scenario: &Arc<Scenario>) -> Result<Vec<RunningJobs>> {
    let start = |&(name, kinds, concurrency): &(&str, &[&str], usize)| {
        let worker = JobWorker::new(&scenario.jobs, kinds.iter().copied(), name)?;
        let scenario = Arc::clone(scenario);
        Ok(worker.concurrency(concurrency).spawn(move |run| work(Arc::clone(&scenario), run)))
    };
    WORKERS.iter().map(start).collect()
}

/// Stops all workers, all at the same time. Handlers that take longer than [`STOP_LIMIT`] are dropped.
pub(super) async fn stop(workers: Vec<RunningJobs>) {
    // Each shutdown begins with its call.
    let ends: Vec<_> = workers.iter().map(|worker| worker.stop(STOP_LIMIT)).collect();
    for end in ends {
        end.await;
    }
}

async fn work(scenario: Arc<Scenario>, run: JobRun) -> Result<JobOutcome, BoxError> {
    let id = run.job.id().as_str();
    let mut random = Random::of_attempt(scenario.seed, id, run.attempt);
    match run.job.kind().as_str() {
        ORDER_REMIND => remind(&scenario, &run.job.json()?, &mut random).await,
        INVOICE_SEND => send(&scenario, &run.job.json()?, &mut random).await,
        FEED_APPLY => apply(&scenario, &run.job.json()?, &mut random).await,
        ORDER_CLOSE | SMS_SEND => {
            scenario.pause(&mut random, 60..400).await;
            Ok(Outcome::Done.into())
        }
        _ => {
            scenario.pause(&mut random, 2_000..6_000).await;
            Ok(Outcome::Done.into())
        }
    }
}

/// Most customers pay when they are reminded: their orders are not closed.
async fn remind(
    scenario: &Scenario,
    order: &Order,
    random: &mut Random,
) -> Result<JobOutcome, BoxError> {
    scenario.pause(random, 200..1_500).await;
    let paid = random.chance(60);
    if paid {
        // It may be closed already.
        let _ = scenario.jobs.cancel(ORDER_CLOSE, &order.id()).await;
    }
    Ok(JobOutcome::done_with_json(&json!({ "sent_to": order.customer.email, "paid": paid }))?)
}

async fn send(
    scenario: &Scenario,
    invoice: &Invoice,
    random: &mut Random,
) -> Result<JobOutcome, BoxError> {
    scenario.pause(random, 150..1_200).await;
    match send_invoice(invoice, random) {
        Ok(()) => Ok(Outcome::Done.into()),
        Err(MailError::Temporary(error)) => Err(error.into()),
        Err(MailError::Permanent(error)) => Ok(Outcome::give_up(error).into()),
    }
}

async fn apply(
    scenario: &Scenario,
    event: &Event,
    random: &mut Random,
) -> Result<JobOutcome, BoxError> {
    // Changes of the stock take long enough to be put again meanwhile.
    let millis = if event.record.starts_with("stock-") { 900..1_800 } else { 30..300 };
    scenario.pause(random, millis).await;
    let applied = scenario.records.lock().unwrap_or_else(PoisonError::into_inner).apply(event);
    match applied {
        Ok(()) => Ok(Outcome::Done.into()),
        Err(parent) => {
            let error = format!("record {parent} has not arrived yet");
            Ok(JobOutcome::retry_after(scenario.speed.scaled(PARENT_DELAY), error))
        }
    }
}
