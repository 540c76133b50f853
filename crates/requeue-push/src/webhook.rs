//! [`Webhook`]: the target that sends an HTTP request per job.

mod request;
mod response;

use crate::client::{Progress, PushClient, Step};
use crate::config::{InvalidPush, PushConfig, PushUrl, WebhookUrl};
use crate::target::{Delivery, DeliveryFuture, DeliveryOutcome, Target};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body, Incoming};
use requeue_http::times::show_duration;
use requeue_jobs::limits::MAX_ACK_RESULT_LEN;
use response::Received;

/// Sends an HTTP request for each job. `docs/webhooks.md` describes requests and responses.
///
/// ```no_run
/// use requeue_push::{PushClient, PushClientOptions, PushTarget, Webhook, PushConfig};
///
/// let client = PushClient::new(PushClientOptions::default())?;
/// let config = PushConfig::new("https://example.com/hooks")?;
/// let target = PushTarget::webhook(config, &client)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Webhook {
    config: PushConfig,
    url: WebhookUrl,
    client: PushClient,
}

impl Webhook {
    /// Returns a target. Fails if the setting is invalid, or its URL is that of a message broker.
    pub fn new(config: PushConfig, client: &PushClient) -> Result<Self, InvalidPush> {
        config.check()?;
        let url = match &config.url {
            PushUrl::Http(url) => url.clone(),
            PushUrl::Broker(_) => return Err(InvalidPush::NotHttp),
        };
        Ok(Webhook { config, url, client: client.clone() })
    }

    /// Returns the setting.
    pub fn config(&self) -> &PushConfig {
        &self.config
    }

    async fn send(&self, delivery: &Delivery) -> DeliveryOutcome {
        let wall_clock = self.client.wall_clock();
        let (clock, timeout) = (wall_clock.clock(), self.config.timeout);
        let deadline = clock.now().saturating_add(timeout);
        let request = match request::request(&self.config, &self.url, delivery, wall_clock.now()) {
            Ok(request) => request,
            Err(error) => return DeliveryOutcome::Retry { error, after: None },
        };
        let progress = Progress::default();
        let exchange = async {
            let sent = self.client.send(&self.url, request, deadline, &progress).await;
            let (response, connection) = sent?;
            progress.begin(Step::Read);
            Ok((self.read(response).await?, connection))
        };
        match clock.timeout_at(deadline, exchange).await {
            Some(Ok((received, connection))) => {
                // If not all of the response was read, the connection is closed.
                if received.is_whole {
                    self.client.keep(connection).await;
                }
                received.outcome(wall_clock.now())
            }
            Some(Err(error)) => DeliveryOutcome::Unreachable { error },
            None => {
                let error = format!("{} within {}", progress.missing(), show_duration(timeout));
                DeliveryOutcome::Unreachable { error }
            }
        }
    }

    /// Reads as much of a response as can be kept and as there is room for.
    async fn read(&self, mut response: Response<Incoming>) -> Result<Received, String> {
        let (status, body) = (response.status(), response.body_mut());
        let (mut bytes, mut rooms) = (Vec::new(), Vec::new());
        // A result that is announced as too long is not read. Of an error, the beginning is.
        let announced = body.size_hint().lower();
        let mut is_whole = !status.is_success() || announced <= MAX_ACK_RESULT_LEN as u64;
        while is_whole && let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| format!("the response was interrupted: {error}"))?;
            // Frames other than data, such as trailers, are ignored.
            let Ok(chunk) = frame.into_data() else { continue };
            let kept = chunk.len().min(MAX_ACK_RESULT_LEN - bytes.len());
            let room = self.client.response_room(kept);
            is_whole = kept == chunk.len() && room.is_some();
            // The room is given back when the response was read: a result then counts like a body.
            rooms.extend(room);
            if is_whole || bytes.is_empty() {
                bytes.extend_from_slice(&chunk[..kept]);
            }
        }
        Ok(Received { head: response.into_parts().0, bytes, is_whole })
    }
}

impl Target for Webhook {
    fn name(&self) -> String {
        self.url.origin()
    }

    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> DeliveryFuture<'a> {
        Box::pin(self.send(delivery))
    }
}
