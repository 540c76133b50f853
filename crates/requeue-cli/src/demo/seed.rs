//! What exists when the demo begins: the settings of the kinds, schedules, and jobs that are due
//! now and over the next week.

use super::random::Random;
use super::receiver::WebhookTargets;
use super::scenario::Scenario;
use super::shop::{
    CLEANUP, CRM_SYNC, Customer, FEED_APPLY, INVOICE_SEND, Invoice, NEWSLETTER_SEND, ORDER_CLOSE,
    ORDER_REMIND, Order, PARTNER_NOTIFY, REPORT_DAILY, SMS_SEND,
};
use crate::error::{CliError, Exit, Result};
use crate::times;
use requeue_http::HttpStore;
use requeue_http::client::path;
use requeue_jobs::{Body, PutJob, ScheduleSpec, Timestamp};
use serde_json::{Value, json};
use std::time::Duration;

/// Numbers of the orders that exist when the demo begins. Those of new orders are higher.
const FIRST_OLD_ORDER: u64 = 10_000;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY_MILLIS: u64 = 86_400_000;

/// How many orders close on each of the next seven days, in percent of all.
const ORDERS_PER_DAY: [u64; 7] = [30, 20, 15, 12, 10, 8, 5];

/// How busy the shop is in each hour of the day (UTC), in percent of the busiest.
const HOURS: [u64; 24] =
    [10, 5, 5, 5, 5, 10, 25, 45, 60, 70, 75, 80, 70, 65, 60, 60, 65, 80, 95, 100, 90, 60, 35, 20];

/// Sets up the kinds, and puts what is there at the beginning.
pub(super) async fn seed(
    http: &HttpStore,
    scenario: &Scenario,
    targets: &WebhookTargets,
    random: &mut Random,
) -> Result<()> {
    for (kind, patch) in settings(scenario, targets) {
        http.call::<Value>("PATCH", &path(&["v1", "kinds", kind]), Some(&patch)).await?;
    }
    schedules(scenario).await?;
    let put = scenario.jobs.put_all(puts(scenario, random)).await;
    put.map_err(|error| CliError::from_error(Exit::Failed, &error))?;
    Ok(())
}

/// The settings that differ from the defaults, in the form of the HTTP API. Dead and done jobs are kept
/// for at most an hour, so that a demo can run for days.
fn settings(scenario: &Scenario, targets: &WebhookTargets) -> Vec<(&'static str, Value)> {
    let hour = |count: u64| json!({ "age": "1h", "count": count });
    let rate = json!({ "jobs": scenario.speed.count(5), "per": "1s" });
    vec![
        (ORDER_REMIND, json!({ "keep_done": { "for": "1h", "count": 500 } })),
        (ORDER_CLOSE, json!({ "concurrency": 4 })),
        (
            INVOICE_SEND,
            json!({
                "max_attempts": 4,
                "backoff": { "base": "1s", "max": "8s" },
                "retention": hour(500),
            }),
        ),
        (FEED_APPLY, json!({ "retention": hour(100) })),
        (SMS_SEND, json!({ "rate": rate, "retention": hour(100) })),
        (CRM_SYNC, json!({ "push": targets.working(), "retention": hour(100) })),
        (PARTNER_NOTIFY, json!({ "push": targets.unreachable(), "retention": hour(100) })),
        (NEWSLETTER_SEND, json!({ "paused": true })),
    ]
}

async fn schedules(scenario: &Scenario) -> Result<()> {
    let jobs = &scenario.jobs;
    let body = |value: Value| Body::new(value.to_string().into_bytes(), "application/json");
    let mut sales = ScheduleSpec::cron("0 8 * * MON-FRI", "Europe/Berlin");
    sales.content.body = body(json!({ "report": "sales", "until": "{{scheduled_at}}" }))?;
    jobs.set_schedule(REPORT_DAILY, "sales", sales).await?;
    let mut stock = ScheduleSpec::cron("30 17 * * *", "America/New_York");
    stock.content.body = body(json!({ "report": "stock", "until": "{{scheduled_at}}" }))?;
    stock.paused = true;
    jobs.set_schedule(REPORT_DAILY, "stock", stock).await?;
    let mut sessions = ScheduleSpec::every(MINUTE);
    sessions.content.body = body(json!({ "table": "sessions", "older_than": "30d" }))?;
    jobs.set_schedule(CLEANUP, "sessions", sessions).await?;
    jobs.run_schedule(REPORT_DAILY, "sales").await?;
    jobs.run_schedule(CLEANUP, "sessions").await?;
    Ok(())
}

/// The jobs at the beginning.
fn puts(scenario: &Scenario, random: &mut Random) -> Vec<PutJob> {
    let (jobs, now) = (&scenario.jobs, times::now());
    let mut numbers = FIRST_OLD_ORDER..;
    let mut order = |random: &mut Random| {
        Order::new(numbers.next().expect("a u64 does not overflow here"), random)
    };
    let remind = |order: &Order, after| {
        jobs.put_json(ORDER_REMIND, &order.id(), order).priority(order.priority()).after(after)
    };
    let close = |order: &Order, after| jobs.put_json(ORDER_CLOSE, &order.id(), order).after(after);
    let mut puts = Vec::new();
    for (count, within) in [(60, MINUTE), (400, HOUR)] {
        for _ in 0..count {
            let (order, after) = (order(random), random.between(Duration::ZERO, within));
            puts.extend([remind(&order, after), close(&order, after + 24 * HOUR)]);
        }
    }
    for _ in 0..100 {
        puts.push(close(&order(random), random.between(Duration::ZERO, 15 * MINUTE)));
    }
    for _ in 0..4000 {
        puts.push(close(&order(random), within_the_week(now, random)));
    }
    // Invoices that fail for all reasons: nobody has to wait for the first dead job.
    for number in 0..40 {
        let mut invoice = Invoice::new(&order(random), random);
        match number % 10 {
            0 => invoice.template = "invoice-v3".to_owned(),
            1 => invoice.customer.email = None,
            _ => {}
        }
        puts.push(jobs.put_json(INVOICE_SEND, &invoice.id(), &invoice));
    }
    for number in 1..=12 {
        let body = json!({ "issue": 48, "recipient": Customer::new(random) });
        puts.push(jobs.put_json(NEWSLETTER_SEND, &format!("issue-48-{number}"), &body));
    }
    puts
}

/// A time in the next seven days: the next day is the fullest, and nights are quiet.
fn within_the_week(now: Timestamp, random: &mut Random) -> Duration {
    let mut rest = random.below(ORDERS_PER_DAY.iter().sum());
    let mut day = 0;
    for share in ORDERS_PER_DAY {
        if rest < share {
            break;
        }
        rest -= share;
        day += 1;
    }
    let mut after = Duration::ZERO;
    // A time that was not chosen in this many rounds is taken as it is.
    for _ in 0..20 {
        after = Duration::from_millis(day * DAY_MILLIS + random.below(DAY_MILLIS));
        let of_day = (now.as_millis() + after.as_millis() as u64) % DAY_MILLIS;
        if random.chance(HOURS[(of_day / 3_600_000) as usize % HOURS.len()]) {
            break;
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_of_the_week_have_a_shape() {
        let (now, mut random) = (Timestamp::from_millis(7 * DAY_MILLIS), Random::new(7));
        let mut days = [0; 7];
        let (mut night, mut evening) = (0, 0);
        for _ in 0..4000 {
            let after = within_the_week(now, &mut random).as_millis() as u64;
            days[(after / DAY_MILLIS) as usize] += 1;
            match after % DAY_MILLIS / 3_600_000 {
                2..5 => night += 1,
                18..21 => evening += 1,
                _ => {}
            }
        }
        assert!(days.iter().all(|count| *count > 100), "{days:?}");
        assert!(days[0] > 4 * days[6], "{days:?}");
        assert!(evening > 5 * night, "{evening} in the evening, {night} at night");
    }
}
