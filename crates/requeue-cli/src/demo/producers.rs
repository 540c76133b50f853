//! The programs that put jobs: the shop, the feed, and a worker that hangs.
//!
//! Each is an endless loop, which is aborted when the demo ends. What they put is bounded: orders are
//! paid or closed, and ids that nobody works on are put again instead of new ones.

use super::random::Random;
use super::scenario::Scenario;
use super::shop::{
    CRM_SYNC, Customer, Event, FEED_APPLY, INVOICE_SEND, Invoice, ORDER_CLOSE, ORDER_REMIND, Order,
    PARTNER_NOTIFY, SMS_SEND, deadlines, payment,
};
use crate::error::chain;
use requeue_jobs::{Jobs, PutJob};
use serde_json::json;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The number of the first new order.
const FIRST_ORDER: u64 = 100_000;

/// How many messages are put together. Their rate limit lets 5 per second through.
const SMS_BURST: u64 = 60;

/// How many partners there are. Their jobs cannot be delivered: a new one replaces the last.
const PARTNERS: u64 = 20;

/// How many records of the stock change all the time.
const STOCK_RECORDS: u64 = 3;

/// The lease of the worker that hangs, which expires.
const HUNG_LEASE: Duration = Duration::from_secs(5);

/// How long a producer waits after an error of the server.
const ERROR_PAUSE: Duration = Duration::from_secs(2);

/// Starts all producers. They end when the set is dropped.
pub(super) fn start(scenario: &Arc<Scenario>, random: &mut Random) -> JoinSet<()> {
    let mut producers = JoinSet::new();
    producers.spawn(orders(Arc::clone(scenario), random.split()));
    producers.spawn(feed(Arc::clone(scenario), random.split()));
    producers.spawn(stock(Arc::clone(scenario), random.split()));
    producers.spawn(messages(Arc::clone(scenario), random.split()));
    producers.spawn(webhooks(Arc::clone(scenario), random.split()));
    producers.spawn(hung_worker(Arc::clone(scenario), random.split()));
    producers
}

/// Orders arrive. Most are paid soon, which cancels their jobs and creates an invoice.
async fn orders(scenario: Arc<Scenario>, mut random: Random) {
    // Those that will be paid, within 90 seconds.
    let mut unpaid: Vec<(Instant, Order)> = Vec::new();
    for number in FIRST_ORDER.. {
        let order = Order::new(number, &mut random);
        let (remind, close) = deadlines(&mut random);
        let (jobs, id) = (&scenario.jobs, order.id());
        let remind =
            jobs.put_json(ORDER_REMIND, &id, &order).priority(order.priority()).after(remind);
        let close = jobs.put_json(ORDER_CLOSE, &id, &order).after(close);
        put(jobs, [remind, close]).await;
        if let Some(after) = payment(&mut random) {
            unpaid.push((Instant::now() + scenario.speed.scaled(after), order));
        }
        let now = Instant::now();
        let paid: Vec<_> = unpaid.extract_if(.., |(paid_at, _)| *paid_at <= now).collect();
        for (_, order) in paid {
            let id = order.id();
            // A job that is done, or that somebody has removed, needs no cancelling.
            let _ = tokio::join!(jobs.cancel(ORDER_REMIND, &id), jobs.cancel(ORDER_CLOSE, &id));
            let invoice = Invoice::new(&order, &mut random);
            put(jobs, [jobs.put_json(INVOICE_SEND, &invoice.id(), &invoice)]).await;
        }
        scenario.pause(&mut random, 150..500).await;
    }
}

/// Records arrive with a child each. Sometimes the child is first.
async fn feed(scenario: Arc<Scenario>, mut random: Random) {
    for number in 1_u64.. {
        let (parent, child) = (format!("delivery-{number}"), format!("parcel-{number}"));
        let late = if random.chance(30) {
            scenario.speed.scaled(random.between(Duration::from_secs(1), Duration::from_secs(6)))
        } else {
            Duration::ZERO
        };
        let quantity = 1 + random.below(20);
        let first = Event { record: parent.clone(), parent: None, quantity };
        let second = Event { record: child.clone(), parent: Some(parent.clone()), quantity };
        let jobs = &scenario.jobs;
        let puts = [
            jobs.put_json(FEED_APPLY, &parent, &first).after(late),
            jobs.put_json(FEED_APPLY, &child, &second),
        ];
        put(jobs, puts).await;
        scenario.pause(&mut random, 150..350).await;
    }
}

/// A few records change all the time, also while a worker applies their last change: those puts become
/// successors of leased jobs.
async fn stock(scenario: Arc<Scenario>, mut random: Random) {
    loop {
        let record = format!("stock-{}", 1 + random.below(STOCK_RECORDS));
        let event = Event { record: record.clone(), parent: None, quantity: random.below(500) };
        put(&scenario.jobs, [scenario.jobs.put_json(FEED_APPLY, &record, &event)]).await;
        scenario.pause(&mut random, 200..600).await;
    }
}

/// Messages come in bursts that take longer than their rate limit allows.
async fn messages(scenario: Arc<Scenario>, mut random: Random) {
    for burst in 0.. {
        let jobs = &scenario.jobs;
        let puts = (0..SMS_BURST).map(|number| {
            let number = burst * SMS_BURST + number;
            // Numbers that are reserved for fiction.
            let to = format!("+1 202 555 01{:02}", random.below(100));
            let (text, priority) = if random.chance(15) {
                (format!("Your login code is {:06}", random.below(1_000_000)), 9)
            } else {
                (format!("Parcel {number} arrives today"), 0)
            };
            let body = json!({ "to": to, "text": text });
            jobs.put_json(SMS_SEND, &format!("sms-{number}"), &body).priority(priority)
        });
        put(jobs, puts).await;
        scenario.pause(&mut random, 13_000..17_000).await;
    }
}

/// Changes of customers and notifications of partners, which the server delivers.
async fn webhooks(scenario: Arc<Scenario>, mut random: Random) {
    for number in 1_u64.. {
        let (jobs, customer) = (&scenario.jobs, Customer::new(&mut random));
        let id = format!("customer-{}-{number}", customer.id);
        let change = *random.pick(&["address changed", "newsletter cancelled", "order paid"]);
        let body = json!({ "customer": customer, "change": change });
        let mut puts = vec![jobs.put_json(CRM_SYNC, &id, &body)];
        if random.chance(15) {
            let partner = format!("partner-{}", 1 + random.below(PARTNERS));
            let body = json!({ "partner": partner, "orders": 1 + random.below(40) });
            puts.push(jobs.put_json(PARTNER_NOTIFY, &partner, &body));
        }
        put(jobs, puts).await;
        scenario.pause(&mut random, 150..500).await;
    }
}

/// A worker that claims an invoice now and then, and never settles it: its lease expires.
async fn hung_worker(scenario: Arc<Scenario>, mut random: Random) {
    loop {
        scenario.pause(&mut random, 8_000..25_000).await;
        let claim = scenario.jobs.claim([INVOICE_SEND], "mailer-hung");
        let claim = claim.lease(HUNG_LEASE).wait(Duration::from_secs(10));
        if let Err(error) = claim.await {
            report(&error).await;
        }
    }
}

async fn put(jobs: &Jobs, puts: impl IntoIterator<Item = PutJob>) {
    if let Err(error) = jobs.put_all(puts).await {
        report(&error).await;
    }
}

/// Logs an error, and waits: the demo goes on when the server works again.
async fn report(error: &(dyn Error + Send + Sync + 'static)) {
    tracing::error!(error = chain(error), "the demo could not use its server");
    tokio::time::sleep(ERROR_PAUSE).await;
}
