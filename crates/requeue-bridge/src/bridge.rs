//! [`Bridge`]: consumes a queue of a broker, and puts each message as a job.
//!
//! ```text
//!             receive          put, until it is durable         ack
//!   broker ------------> batch ------------------------> job ---------> broker forgets the message
//!      ^                   |
//!      |                   +--- invalid: publish to the place for rejected messages, confirmed, then ack
//!      +--- the connection or the process ends before the ack: delivered again, put again under the same id
//! ```
//!
//! One batch at a time, in the order of the queue: two messages with the same key are put in that order.

use crate::error::BridgeError;
use crate::incoming::{Action, Received, decide};
use crate::source::{Source, SourceConfig};
use crate::target::BrokerOptions;
use requeue_jobs::limits::{MAX_BATCH_BYTES, MAX_CONTENT_LEN};
use requeue_jobs::{
    Change, ChangeError, ChangeKind, JobId, Jobs, Kind, Put, PutError, StoreError, WallClock,
};
use requeue_push::BrokerUrl;
use std::collections::HashSet;
use std::time::Duration;

/// How many messages are received and put together. On disk, they share a sync.
const BATCH: usize = 256;

/// The pause before a connection or a put is tried again. It doubles each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The default consumer group: see [`BridgeOptions::group`].
pub const DEFAULT_GROUP: &str = "requeue";

/// What a [`Bridge`] is made with.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BridgeOptions {
    /// The consumer group of Kafka and Redis, or the prefix of the queue of RabbitMQ or the consumer of NATS
    /// that is created (default: `requeue`). Bridges with the same one share the messages.
    pub group: String,
    /// Where invalid messages are published to, at the same broker: a queue of RabbitMQ, a subject of NATS, a
    /// topic of Kafka or a stream of Redis. Default: the name of what is consumed and `.rejected`, or for NATS
    /// the subject `requeue.rejected.` and the name of the consumer.
    pub rejected: Option<String>,
    /// How the connection is made.
    pub broker: BrokerOptions,
    /// The clock from which due times are calculated.
    pub clock: WallClock,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        BridgeOptions {
            group: DEFAULT_GROUP.to_owned(),
            rejected: None,
            broker: BrokerOptions::default(),
            clock: WallClock::system(),
        }
    }
}

/// What a [`Bridge`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BridgeCounts {
    /// Messages that were put as jobs.
    pub put: u64,
    /// Messages that cancelled a job.
    pub cancelled: u64,
    /// Invalid messages that were published to the place for rejected messages.
    pub rejected: u64,
    /// How often the connection to the broker was made.
    pub connections: u64,
}

/// Consumes a queue of a message broker, and puts each message as a job of one kind.
///
/// A message is acked when its job is durable: a message is put at least once, and again under the same id if
/// it is received again.
///
/// ```no_run
/// # #[cfg(feature = "amqp")] {
/// use requeue_bridge::{Bridge, BridgeOptions};
/// use requeue_jobs::{Jobs, Kind, MemoryStore};
/// use std::sync::Arc;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
/// let bridge = Bridge::new(
///     &jobs, Kind::new("orders")?, "amqp://localhost/orders.delayed", BridgeOptions::default(),
/// )?;
/// let stop = std::future::pending();
/// let counts = bridge.run(stop).await;
/// println!("{} messages", counts.put);
/// # Ok(())
/// # }
/// # }
/// ```
#[derive(Debug)]
pub struct Bridge {
    jobs: Jobs,
    kind: Kind,
    source: SourceConfig,
    clock: WallClock,
    counts: BridgeCounts,
}

/// Why a batch was not finished.
enum Interrupted {
    /// The connection to the broker is lost.
    Connection(String),
    Stopped,
}

impl Bridge {
    /// Returns a bridge that is not connected yet. Fails if the URL does not name a source, or this build does
    /// not support the broker.
    pub fn new(
        jobs: &Jobs,
        kind: Kind,
        url: &str,
        options: BridgeOptions,
    ) -> Result<Self, BridgeError> {
        if !BrokerUrl::is_broker(url) {
            return Err(BridgeError::NotABroker);
        }
        let BridgeOptions { group, rejected, broker: options, clock } = options;
        let source = SourceConfig { url: BrokerUrl::parse(url)?, group, rejected, options };
        source.check()?;
        Ok(Bridge { jobs: jobs.clone(), kind, source, clock, counts: BridgeCounts::default() })
    }

    /// Runs until `stop` is ready, and returns what was done. While the broker or the store is unavailable, it
    /// tries again.
    ///
    /// When `stop` is ready, a batch that is being put is finished if the store responds. Dropping the future
    /// is safe, too: what was not acked is delivered again.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> BridgeCounts {
        let mut stop = std::pin::pin!(stop);
        let (origin, mut pause) = (self.source.url.origin(), FIRST_PAUSE);
        loop {
            let connected = tokio::select! {
                biased;
                () = &mut stop => return self.counts,
                connected = self.source.connect() => connected,
            };
            let error = match connected {
                Ok(mut source) => {
                    self.counts.connections += 1;
                    tracing::info!(broker = origin, kind = %self.kind, "consuming messages");
                    let before = self.counts;
                    let ended = self.consume(&mut *source, stop.as_mut()).await;
                    if self.counts != before {
                        pause = FIRST_PAUSE;
                    }
                    match ended {
                        Interrupted::Stopped => {
                            drop(tokio::time::timeout(MAX_PAUSE, source.close()).await);
                            return self.counts;
                        }
                        Interrupted::Connection(error) => error,
                    }
                }
                Err(error) => error,
            };
            tracing::warn!(broker = origin, error, "no connection; trying again");
            tokio::select! {
                biased;
                () = &mut stop => return self.counts,
                () = tokio::time::sleep(pause) => {}
            }
            pause = pause.saturating_mul(2).min(MAX_PAUSE);
        }
    }

    /// Consumes messages until the connection is lost or `stop` is ready.
    async fn consume(
        &mut self,
        source: &mut dyn Source,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Interrupted {
        loop {
            let received = tokio::select! {
                biased;
                () = &mut stop => return Interrupted::Stopped,
                received = source.receive(BATCH) => received,
            };
            let handled = match received {
                Ok(batch) => self.handle(source, batch, stop.as_mut()).await,
                Err(error) => Err(Interrupted::Connection(error)),
            };
            if let Err(interrupted) = handled {
                return interrupted;
            }
        }
    }

    /// Puts the messages of a batch, and acks them.
    async fn handle(
        &mut self,
        source: &mut dyn Source,
        batch: Vec<Received>,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Interrupted> {
        let now = self.clock.now();
        let actions = batch.iter().map(|received| decide(received, &self.kind, now));
        let actions: Vec<_> = actions.collect();
        // What is applied is counted when it is acked.
        let mut done = BridgeCounts::default();
        let mut rejected = Vec::new();
        let mut puts: Vec<(usize, Put)> = Vec::new();
        for (n, action) in actions.into_iter().enumerate() {
            match action {
                Action::Put(put) => puts.push((n, put)),
                Action::Reject(reason) => rejected.push((n, reason)),
                Action::Cancel(id) => {
                    // After the puts before it.
                    let puts = std::mem::take(&mut puts);
                    self.put(source, puts, &mut done, &mut rejected, stop.as_mut()).await?;
                    self.cancel(source, id, &mut done, stop.as_mut()).await?;
                }
            }
        }
        self.put(source, puts, &mut done, &mut rejected, stop.as_mut()).await?;
        for (n, reason) in rejected {
            tracing::warn!(reason, "rejected a message");
            source
                .reject(&batch[n].message.rejected(&reason))
                .await
                .map_err(Interrupted::Connection)?;
            done.rejected += 1;
        }
        source.ack().await.map_err(Interrupted::Connection)?;
        self.counts.put += done.put;
        self.counts.cancelled += done.cancelled;
        self.counts.rejected += done.rejected;
        Ok(())
    }

    /// Puts jobs in their order, and tries again until each is durable or rejected by the store.
    async fn put(
        &self,
        source: &mut dyn Source,
        puts: Vec<(usize, Put)>,
        done: &mut BridgeCounts,
        rejected: &mut Vec<(usize, String)>,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Interrupted> {
        for batch in batches(puts) {
            let (mut left, mut pause) = (batch, FIRST_PAUSE);
            while !left.is_empty() {
                let puts = left.iter().map(|(_, put)| put.clone()).collect();
                let error = match self.jobs.store().put(puts).await {
                    Ok(results) => {
                        let (mut again, mut error) = (Vec::new(), None);
                        for ((n, put), result) in left.into_iter().zip(results) {
                            match result {
                                Ok(_) => done.put += 1,
                                Err(PutError::Store(failed)) if is_temporary(&failed) => {
                                    error = Some(failed);
                                    again.push((n, put));
                                }
                                Err(error) => rejected.push((n, error.to_string())),
                            }
                        }
                        left = again;
                        error
                    }
                    Err(error) if is_temporary(&error) => Some(error),
                    Err(error) => {
                        let reason = error.to_string();
                        rejected.extend(left.drain(..).map(|(n, _)| (n, reason.clone())));
                        None
                    }
                };
                if let Some(error) = error {
                    pause = self.pause(source, pause, &error, stop.as_mut()).await?;
                }
            }
        }
        Ok(())
    }

    async fn cancel(
        &self,
        source: &mut dyn Source,
        id: JobId,
        done: &mut BridgeCounts,
        mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Interrupted> {
        let mut pause = FIRST_PAUSE;
        loop {
            let change =
                Change { kind: self.kind.clone(), id: id.clone(), action: ChangeKind::Cancel };
            let results = self.jobs.store().change(vec![change]).await;
            let error = match results.map(|mut results| results.pop()) {
                Ok(Some(Err(ChangeError::Store(error)))) | Err(error) if is_temporary(&error) => {
                    error
                }
                // There may be no such job: it was delivered, or is cancelled already.
                _ => {
                    done.cancelled += 1;
                    return Ok(());
                }
            };
            pause = self.pause(source, pause, &error, stop.as_mut()).await?;
        }
    }

    /// Waits before a call to the store is repeated. Returns the next pause.
    async fn pause(
        &self,
        source: &mut dyn Source,
        pause: Duration,
        error: &StoreError,
        stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Duration, Interrupted> {
        tracing::warn!(%error, "messages wait for the store");
        tokio::select! {
            biased;
            () = stop => return Err(Interrupted::Stopped),
            () = tokio::time::sleep(pause) => {}
        }
        source.keep().await.map_err(Interrupted::Connection)?;
        Ok(pause.saturating_mul(2).min(MAX_PAUSE))
    }
}

/// Splits puts into batches that a store accepts: no key twice, so that a put that is repeated after an unknown
/// outcome does not come after a later one, and not too many bytes.
fn batches(puts: Vec<(usize, Put)>) -> Vec<Vec<(usize, Put)>> {
    let (mut batches, mut current): (Vec<_>, Vec<(usize, Put)>) = (Vec::new(), Vec::new());
    let (mut ids, mut bytes) = (HashSet::new(), 0);
    for (n, put) in puts {
        let is_full = bytes + put.content.len() > MAX_BATCH_BYTES - MAX_CONTENT_LEN;
        if is_full || ids.contains(&put.id) {
            batches.push(std::mem::take(&mut current));
            ids.clear();
            bytes = 0;
        }
        bytes += put.content.len();
        ids.insert(put.id.clone());
        current.push((n, put));
    }
    batches.push(current);
    batches
}

/// Whether repeating the call may help.
fn is_temporary(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. } | StoreError::Unknown { .. })
}
