//! Publishes messages to a subject, and waits for the acknowledgement of the stream that stores them.

use super::headers::headers;
use super::subject::{is_publishable, token, tokens};
use super::{Connected, Connector};
use crate::error::BridgeError;
use crate::outgoing::Outgoing;
use crate::target::{BrokerOptions, Publish, PublishFuture};
use async_nats::connection::State;
use async_nats::jetstream::context::{
    Context, GetStreamByNameErrorKind, PublishError, PublishErrorKind,
};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, ErrorCode};
use requeue_push::{BrokerUrl, DeliveryOutcome};
use std::error::Error;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Publishes the jobs of a kind to a subject.
pub(crate) struct NatsPublisher {
    connector: Connector,
    /// The subject, which may contain names in braces.
    subject: String,
    /// `None` before the first message. The client connects again by itself.
    connected: Mutex<Option<Arc<JetStream>>>,
}

struct JetStream {
    context: Context,
    connected: Connected,
}

impl NatsPublisher {
    pub(crate) fn new(url: BrokerUrl, options: &BrokerOptions) -> Result<Self, BridgeError> {
        let connector = Connector::new(&url, options)?;
        let subject = url.segments().last().cloned().unwrap_or_default();
        Ok(NatsPublisher { connector, subject, connected: Mutex::new(None) })
    }

    /// Returns the client, or makes one.
    async fn jetstream(&self, made: &mut Option<Arc<JetStream>>) -> Result<Arc<JetStream>, String> {
        if let Some(made) = made {
            return Ok(Arc::clone(made));
        }
        let connected = self.connector.connect().await?;
        let context = jetstream::new(connected.client.clone());
        let jetstream = Arc::new(JetStream { context, connected });
        *made = Some(Arc::clone(&jetstream));
        Ok(jetstream)
    }

    async fn send(&self, message: &Outgoing) -> DeliveryOutcome {
        let subject = message.fill(&self.subject, |name, value| match name {
            // The subject with which the message came in.
            "key" if message.message.key.is_some() => tokens(value),
            _ => token(value),
        });
        if !is_publishable(&subject) {
            let error = format!("{subject:?} is not a subject that can be published to");
            return DeliveryOutcome::Bury { error };
        }
        let unavailable = |error: String| DeliveryOutcome::Unavailable { error };
        // Until the message is sent, the others wait: they are sent in the order of the calls.
        let mut made = self.connected.lock().await;
        let jetstream = match self.jetstream(&mut made).await {
            Ok(jetstream) => jetstream,
            Err(error) => return unavailable(error),
        };
        let Connected { client, losses, server_error } = &jetstream.connected;
        // The client would keep the message until it is connected again, after the job was released.
        let lost = || unavailable(format!("the connection to {} is lost", self.connector.origin));
        if client.connection_state() != State::Connected {
            return lost();
        }
        let mut losses = losses.clone();
        losses.mark_unchanged();
        let publish = PublishMessage::build()
            .payload(message.message.payload.clone().into())
            .headers(headers(&message.message))
            .message_id(&message.id);
        let sent = jetstream.context.send_publish(subject.clone(), publish).await;
        drop(made);
        let confirmed = async { sent?.await };
        tokio::select! {
            confirmed = confirmed => match confirmed {
                // A duplicate: an earlier attempt was stored, and its acknowledgement was lost.
                Ok(_) => DeliveryOutcome::Done { result: None },
                Err(error) => {
                    let reported = server_error.borrow().clone();
                    self.failed(&jetstream.context, &subject, &error, reported).await
                }
            },
            // The acknowledgement does not come any more, even if the message is stored.
            _ = losses.changed() => lost(),
        }
    }

    async fn failed(
        &self,
        context: &Context,
        subject: &str,
        error: &PublishError,
        reported: Option<String>,
    ) -> DeliveryOutcome {
        let text = format!("subject {subject:?}: {error}");
        match error.kind() {
            PublishErrorKind::StreamNotFound => match context.stream_by_subject(subject).await {
                Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => {
                    let error = format!("no stream captures the subject {subject:?}");
                    DeliveryOutcome::Retry { error, after: None }
                }
                // There is a stream, but it has no leader, or JetStream is starting.
                _ => DeliveryOutcome::Unavailable { error: text },
            },
            PublishErrorKind::MaxPayloadExceeded => DeliveryOutcome::Bury { error: text },
            PublishErrorKind::MaxAckPending => DeliveryOutcome::Overloaded { error: text },
            PublishErrorKind::TimedOut => {
                let reported = reported.map(|error| format!(" (NATS reported: {error})"));
                let error = format!("{text}{}", reported.unwrap_or_default());
                DeliveryOutcome::Unavailable { error }
            }
            PublishErrorKind::BrokenPipe => DeliveryOutcome::Unavailable { error: text },
            _ => match jetstream_code(error) {
                Some(
                    ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM
                    | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
                ) => DeliveryOutcome::Bury { error: text },
                // The stream, its account or the disk is full.
                Some(
                    ErrorCode::STREAM_STORE_FAILED
                    | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
                    | ErrorCode::INSUFFICIENT_RESOURCES
                    | ErrorCode::MEMORY_RESOURCES_EXCEEDED
                    | ErrorCode::STORAGE_RESOURCES_EXCEEDED,
                ) => DeliveryOutcome::Overloaded { error: text },
                Some(_) => DeliveryOutcome::Retry { error: text, after: None },
                None => DeliveryOutcome::Unavailable { error: text },
            },
        }
    }
}

/// Returns the code with which the stream did not accept a message.
fn jetstream_code(error: &PublishError) -> Option<ErrorCode> {
    let source = error.source()?.downcast_ref::<jetstream::Error>()?;
    Some(source.error_code())
}

impl Publish for NatsPublisher {
    fn publish<'a>(&'a self, message: &'a Outgoing) -> PublishFuture<'a> {
        Box::pin(self.send(message))
    }
}
