//! The shop of the scenario: its kinds of jobs, what their bodies contain, and the decisions about
//! orders, invoices and events. Plain code: it reads no clock and calls no store.

use super::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// Reminds a customer to pay. Done jobs are kept, with their results.
pub(super) const ORDER_REMIND: &str = "order.remind";
/// Closes an order that was not paid.
pub(super) const ORDER_CLOSE: &str = "order.close";
/// Sends an invoice by e-mail. Fails often.
pub(super) const INVOICE_SEND: &str = "invoice.send";
/// Applies an event of a feed whose events arrive out of order.
pub(super) const FEED_APPLY: &str = "feed.apply";
/// Sends a text message. Limited to a rate.
pub(super) const SMS_SEND: &str = "sms.send";
/// Runs by a cron expression.
pub(super) const REPORT_DAILY: &str = "report.daily";
/// Runs every minute.
pub(super) const CLEANUP: &str = "cleanup";
/// Delivered by webhook.
pub(super) const CRM_SYNC: &str = "crm.sync";
/// Delivered by webhook, to a target that cannot be reached.
pub(super) const PARTNER_NOTIFY: &str = "partner.notify";
/// A kind that is paused, with a few jobs that nobody works on.
pub(super) const NEWSLETTER_SEND: &str = "newsletter.send";

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// How many records of the feed are remembered. Their children arrive within seconds.
const MAX_RECORDS: usize = 10_000;

const FIRST_NAMES: [&str; 12] = [
    "Ann", "Bilal", "Chiara", "Daniel", "Elif", "Femi", "Grace", "Hugo", "Ines", "Jun", "Kofi",
    "Lena",
];
const LAST_NAMES: [&str; 12] = [
    "Adler",
    "Bianchi",
    "Costa",
    "Demir",
    "Eriksen",
    "Fontaine",
    "Garcia",
    "Hoffmann",
    "Ito",
    "Jansen",
    "Kowalski",
    "Lindqvist",
];
const ITEMS: [&str; 8] = [
    "espresso machine",
    "desk lamp",
    "running shoes",
    "backpack",
    "headphones",
    "tent",
    "cast-iron pan",
    "fountain pen",
];

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Customer {
    pub(super) id: u64,
    pub(super) name: String,
    /// `None` if the customer did not give one: invoices to such a customer cannot be sent.
    pub(super) email: Option<String>,
}

impl Customer {
    pub(super) fn new(random: &mut Random) -> Self {
        let (first, last) = (*random.pick(&FIRST_NAMES), *random.pick(&LAST_NAMES));
        let email = format!("{}.{}@example.com", first.to_lowercase(), last.to_lowercase());
        let id = 1000 + random.below(9000);
        Customer { id, name: format!("{first} {last}"), email: Some(email) }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) order: u64,
    pub(super) customer: Customer,
    pub(super) item: String,
    pub(super) total_cents: u64,
    pub(super) currency: String,
}

impl Order {
    pub(super) fn new(number: u64, random: &mut Random) -> Self {
        Order {
            order: number,
            customer: Customer::new(random),
            item: (*random.pick(&ITEMS)).to_owned(),
            total_cents: 990 + 10 * random.below(60_000),
            currency: "EUR".to_owned(),
        }
    }

    pub(super) fn id(&self) -> String {
        format!("order-{}", self.order)
    }

    /// Large orders come first.
    pub(super) fn priority(&self) -> u8 {
        match self.total_cents {
            400_000.. => 7,
            150_000.. => 3,
            _ => 0,
        }
    }
}

/// When an order is paid. `None`: not before its reminder.
pub(super) fn payment(random: &mut Random) -> Option<Duration> {
    let paid = random.chance(95);
    paid.then(|| random.between(Duration::from_secs(2), Duration::from_secs(90)))
}

/// When the customer is reminded, and when the order is closed.
pub(super) fn deadlines(random: &mut Random) -> (Duration, Duration) {
    let remind = random.between(2 * MINUTE, 15 * MINUTE);
    let days = *random.pick(&[1, 1, 1, 1, 1, 1, 1, 3, 3, 7]);
    (remind, days * DAY)
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Invoice {
    pub(super) order: u64,
    pub(super) customer: Customer,
    pub(super) total_cents: u64,
    pub(super) currency: String,
    pub(super) template: String,
}

impl Invoice {
    /// The invoice of an order. Some cannot be sent: the template or the address is missing.
    pub(super) fn new(order: &Order, random: &mut Random) -> Self {
        let template = if random.chance(5) { "invoice-v3" } else { "invoice-v2" };
        let mut customer = order.customer.clone();
        if random.chance(3) {
            customer.email = None;
        }
        Invoice {
            order: order.order,
            customer,
            total_cents: order.total_cents,
            currency: order.currency.clone(),
            template: template.to_owned(),
        }
    }

    pub(super) fn id(&self) -> String {
        format!("invoice-{}", self.order)
    }
}

/// Why an invoice was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MailError {
    /// Another attempt may succeed.
    Temporary(String),
    /// No attempt will succeed.
    Permanent(String),
}

/// Decides whether an attempt to send an invoice succeeds.
pub(super) fn send_invoice(invoice: &Invoice, random: &mut Random) -> Result<(), MailError> {
    let customer = invoice.customer.id;
    if invoice.customer.email.is_none() {
        let error = format!("customer {customer} has no e-mail address");
        return Err(MailError::Permanent(error));
    }
    // The mailer cannot know that the template will never be there: it tries until the attempts are
    // used up.
    if invoice.template != "invoice-v2" {
        let error = format!("template {:?} not found", invoice.template);
        return Err(MailError::Temporary(error));
    }
    match random.below(100) {
        0..18 => {
            Err(MailError::Temporary(format!("SMTP 451: mailbox of customer {customer} is busy")))
        }
        18..25 => {
            let millis = 2000 + random.below(500);
            let order = invoice.order;
            let error = format!("PDF of order {order} was not rendered within {millis} ms");
            Err(MailError::Temporary(error))
        }
        _ => Ok(()),
    }
}

/// An event of the feed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Event {
    pub(super) record: String,
    /// The record that has to exist before this event can be applied.
    pub(super) parent: Option<String>,
    pub(super) quantity: u64,
}

/// The records that events of the feed created, up to [`MAX_RECORDS`]: the oldest are dropped.
#[derive(Debug, Default)]
pub(super) struct Records {
    known: HashSet<String>,
    /// Invariant: contains exactly `known`, oldest first.
    order: VecDeque<String>,
}

impl Records {
    /// Applies an event. Returns the parent if that has not arrived yet.
    pub(super) fn apply(&mut self, event: &Event) -> Result<(), String> {
        if let Some(parent) = &event.parent
            && !self.known.contains(parent)
        {
            return Err(parent.clone());
        }
        if self.known.insert(event.record.clone()) {
            self.order.push_back(event.record.clone());
        }
        if self.order.len() > MAX_RECORDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        debug_assert_eq!(self.known.len(), self.order.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(record: &str, parent: Option<&str>) -> Event {
        Event { record: record.to_owned(), parent: parent.map(str::to_owned), quantity: 1 }
    }

    #[test]
    fn an_event_waits_for_its_parent() {
        let mut records = Records::default();
        let child = event("line-1", Some("order-1"));
        assert_eq!(records.apply(&child), Err("order-1".to_owned()));
        assert_eq!(records.apply(&event("order-1", None)), Ok(()));
        assert_eq!(records.apply(&child), Ok(()));
    }

    #[test]
    fn the_oldest_records_are_forgotten() {
        let mut records = Records::default();
        for number in 0..=MAX_RECORDS {
            records.apply(&event(&number.to_string(), None)).unwrap();
        }
        assert_eq!(records.known.len(), MAX_RECORDS);
        assert_eq!(records.apply(&event("a", Some("0"))), Err("0".to_owned()));
        assert_eq!(records.apply(&event("a", Some("1"))), Ok(()));
    }

    #[test]
    fn invoices_fail_with_different_errors_and_most_are_sent_in_the_end() {
        let mut random = Random::new(7);
        let mut sent = 0;
        let mut errors = HashSet::new();
        for number in 0..1000 {
            let order = Order::new(number, &mut random);
            let invoice = Invoice::new(&order, &mut random);
            let attempts: Vec<_> = (1..=4).map(|_| send_invoice(&invoice, &mut random)).collect();
            sent += usize::from(attempts.contains(&Ok(())));
            for error in attempts.into_iter().filter_map(Result::err) {
                let (MailError::Temporary(text) | MailError::Permanent(text)) = error;
                errors.insert(text.split(' ').next().unwrap().to_owned());
            }
        }
        assert!((850..990).contains(&sent), "{sent} of 1000 were sent");
        let expected = ["PDF", "SMTP", "customer", "template"];
        assert_eq!(errors, expected.map(str::to_owned).into());
    }

    #[test]
    fn most_orders_are_paid_before_their_reminder() {
        let mut random = Random::new(7);
        let payments: Vec<_> = (0..1000).map(|_| payment(&mut random)).collect();
        let unpaid = payments.iter().filter(|paid| paid.is_none()).count();
        assert!((20..100).contains(&unpaid), "{unpaid} of 1000 are not paid");
        let (remind, close) = deadlines(&mut random);
        assert!(payments.iter().flatten().all(|paid| *paid < remind));
        assert!(remind < close);
    }
}
