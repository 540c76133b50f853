//! What all clients of the library have in common: their log, their errors, and how they end.

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How long a reported error explains a failure. The library reports the same error again after 30 seconds.
const RECENT: Duration = Duration::from_secs(60);

/// The latest error that a client has reported in the background, such as a failed login. A message that was
/// not delivered in time fails without a reason: this is the reason.
#[derive(Debug, Clone, Default)]
pub(super) struct LastError(Arc<Mutex<Option<(Instant, String)>>>);

impl LastError {
    fn set(&self, text: String) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), text));
    }

    /// Returns the latest error if it is recent enough to explain a failure now.
    pub(super) fn recent(&self) -> Option<String> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| at.elapsed() < RECENT).map(|(_, text)| text.clone())
    }
}

/// Receives the log lines and errors of a client.
#[derive(Debug, Clone, Default)]
pub(super) struct Context {
    pub(super) last_error: LastError,
}

impl ClientContext for Context {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, message, "librdkafka");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(error = describe(&error), reason, "librdkafka");
        // It only counts the brokers. The reason was reported before.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            // Without the state of the connection and the number of equal errors.
            let reason = reason.split_once(" (after ").map_or(reason, |(reason, _)| reason);
            self.last_error.set(reason.to_owned());
        }
    }
}

impl ConsumerContext for Context {
    fn post_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => {
                tracing::debug!(partitions = list.count(), "partitions assigned");
            }
            Rebalance::Revoke(list) => {
                tracing::debug!(partitions = list.count(), "partitions revoked");
            }
            Rebalance::Error(error) => tracing::debug!(error = describe(error), "rebalance failed"),
        }
    }
}

/// Returns an error as a text for people. It contains no setting, because one of them is the password.
pub(super) fn describe(error: &KafkaError) -> String {
    match (error, error.rdkafka_error_code()) {
        (KafkaError::ClientConfig(_, reason, name, _value), _) => {
            format!("setting {name}: {reason}")
        }
        (KafkaError::Nul(_), _) => "a setting contains a zero byte".to_owned(),
        (_, Some(code)) => code.to_string(),
        (error, None) => error.to_string(),
    }
}

/// A client that is dropped on a thread of its own: the library waits for its threads, for up to seconds.
pub(super) struct Client<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Client<T> {
    /// Creates a client without blocking the runtime. Fails with a text for people.
    pub(super) async fn create(
        create: impl FnOnce() -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<Self, String> {
        match blocking(create).await? {
            Ok(client) => Ok(Client(Some(client))),
            Err(error) => Err(describe(&error)),
        }
    }

    /// Drops the client, and waits until it has ended.
    pub(super) async fn end(mut self) -> Result<(), String> {
        let client = self.0.take();
        blocking(move || drop(client)).await
    }
}

impl<T: Send + 'static> Deref for Client<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only `end` and `drop` take it")
    }
}

impl<T: Send + 'static> Drop for Client<T> {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            thread::spawn(move || drop(client));
        }
    }
}

/// Runs a blocking call of the library on a thread of its own. If the runtime ends, it does not wait for the call.
pub(super) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (sender, returned) = oneshot::channel();
    // A consumer spawns a task when it is created.
    let runtime = Handle::current();
    thread::spawn(move || {
        let _entered = runtime.enter();
        // Nobody may wait for it any more.
        drop(sender.send(call()));
    });
    returned.await.map_err(|_| "a call of the library panicked".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::types::RDKafkaConfRes;

    #[test]
    fn an_error_contains_no_setting() {
        let error = KafkaError::ClientConfig(
            RDKafkaConfRes::RD_KAFKA_CONF_INVALID,
            "invalid".to_owned(),
            "sasl.password".to_owned(),
            "hunter2".to_owned(),
        );
        assert_eq!(describe(&error), "setting sasl.password: invalid");
        let error = KafkaError::Global(RDKafkaErrorCode::Authentication);
        assert_eq!(describe(&error), "Authentication (Local: Authentication failure)");
    }

    #[test]
    fn the_latest_error_explains_a_failure() {
        let context = Context::default();
        assert_eq!(context.last_error.recent(), None);
        let reason = "h:1: login failed (after 3ms in state AUTH_REQ)";
        context.error(KafkaError::Global(RDKafkaErrorCode::Authentication), reason);
        context.error(KafkaError::Global(RDKafkaErrorCode::AllBrokersDown), "1/1 are down");
        assert_eq!(context.last_error.recent().as_deref(), Some("h:1: login failed"));
    }
}
