//! Publishes messages with delays, consumes them, and records when each arrives.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// The largest number of published messages without a confirmation.
pub(super) const WINDOW: usize = 256;
/// The bytes of a message.
pub(super) const PAYLOAD: usize = 100;
/// The longest time without any message. Only a broken system takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Resolves when the broker has stored the message.
pub(super) type Confirmed = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) trait Publisher {
    /// Sends a message that is due after the delay. The returned future waits for its confirmation.
    async fn send(&mut self, payload: String, delay: Duration) -> Confirmed;
}

pub(super) trait Consumer: Send + 'static {
    /// Waits for a message, and returns it with those that have already arrived.
    fn receive(&mut self) -> impl Future<Output = Vec<String>> + Send;

    /// Acknowledges all messages that were returned.
    fn ack(&mut self) -> impl Future<Output = ()> + Send;
}

/// The messages of a measurement.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) count: usize,
    /// The time between two messages. Zero: as fast as the window permits.
    pub(super) interval: Duration,
    /// They are used in turn.
    pub(super) delays: Vec<Duration>,
}

/// The result of a load.
#[derive(Debug)]
pub(super) struct Delivered {
    /// From the first publish to the last delivery.
    pub(super) took: Duration,
    /// Nanoseconds from the due time to the arrival, for each message. Negative if it was early.
    pub(super) late_ns: Vec<i64>,
}

impl Load {
    /// Publishes all messages, and waits until each has arrived. `name` is different for each load of
    /// a consumer: messages of other loads are ignored.
    pub(super) async fn run<C: Consumer>(
        &self,
        name: &'static str,
        publisher: &mut impl Publisher,
        consumer: C,
    ) -> (Delivered, C) {
        let consumed = tokio::spawn(consume(consumer, name, self.count));
        let started = Instant::now();
        let due = self.publish(name, publisher, started).await;
        let (arrived, consumer) = consumed.await.expect("the consumer receives all messages");
        let last = arrived.iter().max().expect("there are messages");
        let late_ns = arrived.iter().zip(due).map(|(&arrived, due)| signed_ns(arrived, due));
        (Delivered { took: *last - started, late_ns: late_ns.collect() }, consumer)
    }

    /// Returns the due times.
    async fn publish(
        &self,
        name: &str,
        publisher: &mut impl Publisher,
        started: Instant,
    ) -> Vec<Instant> {
        let mut due = Vec::with_capacity(self.count);
        let mut unconfirmed = VecDeque::with_capacity(WINDOW);
        for number in 0..self.count {
            let planned = started + self.interval * number as u32;
            if !self.interval.is_zero() {
                tokio::time::sleep_until(planned.into()).await;
            }
            if unconfirmed.len() == WINDOW {
                confirmed(unconfirmed.pop_front()).await;
            }
            let delay = self.delays[number % self.delays.len()];
            let text = format!("{name} {number} ");
            let payload = format!("{text:x<PAYLOAD$}");
            due.push(Instant::now() + delay);
            unconfirmed.push_back(publisher.send(payload, delay).await);
        }
        while !unconfirmed.is_empty() {
            confirmed(unconfirmed.pop_front()).await;
        }
        due
    }
}

async fn confirmed(message: Option<Confirmed>) {
    if let Some(message) = message {
        tokio::time::timeout(PATIENCE, message).await.expect("the broker confirms the message");
    }
}

/// Receives messages until each has arrived, and returns the times at which they arrived first.
async fn consume<C: Consumer>(
    mut consumer: C,
    name: &'static str,
    count: usize,
) -> (Vec<Instant>, C) {
    let mut arrived = vec![None; count];
    let mut left = count;
    while left > 0 {
        let received = tokio::time::timeout(PATIENCE, consumer.receive()).await;
        let now = Instant::now();
        let received =
            received.unwrap_or_else(|_| panic!("{left} of {count} messages did not arrive"));
        for number in received.iter().filter_map(|payload| number(payload, name)) {
            // A message may be delivered more than once.
            if arrived[number].is_none() {
                arrived[number] = Some(now);
                left -= 1;
            }
        }
        consumer.ack().await;
    }
    (arrived.into_iter().flatten().collect(), consumer)
}

/// The number of a message of the load `name`.
fn number(payload: &str, name: &str) -> Option<usize> {
    let mut words = payload.split(' ');
    (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
}

fn signed_ns(arrived: Instant, due: Instant) -> i64 {
    let ns = |time: Duration| time.as_nanos() as i64;
    match arrived.checked_duration_since(due) {
        Some(late) => ns(late),
        None => -ns(due - arrived),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    struct Timers(UnboundedSender<String>);

    impl Publisher for Timers {
        async fn send(&mut self, payload: String, delay: Duration) -> Confirmed {
            let queue = self.0.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                // Twice, as a queue may do.
                queue.send(payload.clone()).and_then(|()| queue.send(payload)).ok();
            });
            Box::pin(ready(()))
        }
    }

    impl Consumer for UnboundedReceiver<String> {
        async fn receive(&mut self) -> Vec<String> {
            vec![self.recv().await.expect("there is a publisher")]
        }

        async fn ack(&mut self) {}
    }

    #[test]
    fn each_message_is_recorded_once_and_after_its_delay() {
        crate::workloads::tokio_with_io().block_on(async {
            let (sender, receiver) = unbounded_channel();
            let delays = [2, 1].map(Duration::from_millis).to_vec();
            let load = Load { count: 300, interval: Duration::ZERO, delays };
            sender.send("other 0 xxx".to_owned()).unwrap();
            let (delivered, _) = load.run("m", &mut Timers(sender), receiver).await;
            assert_eq!(delivered.late_ns.len(), 300);
            assert!(delivered.late_ns.iter().all(|&late| late > -1_000_000));
            assert!(delivered.took >= Duration::from_millis(1));
        });
    }

    #[test]
    fn a_number_belongs_to_its_load() {
        assert_eq!(number("m 17 xxx", "m"), Some(17));
        assert_eq!(number("w 17 xxx", "m"), None);
        assert_eq!(number("m", "m"), None);
    }
}
