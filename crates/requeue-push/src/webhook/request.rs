//! The request of a delivery.

use crate::config::{PushConfig, WebhookFormat, WebhookUrl};
use crate::encode::{header_text, visible};
use crate::signature::sign;
use crate::target::Delivery;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use requeue_http::times::show_time;
use requeue_jobs::{Body, Timestamp};

/// The longest previous failure in a header, in bytes. Some receivers accept no more than 8 KiB of
/// headers, of which an id may take 3 KiB.
const MAX_FAILURE_LEN: usize = 256;

/// The content type of a job whose own cannot be sent.
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Returns the request of an attempt that is made at `now`. Fails with a text for people.
pub(super) fn request(
    config: &PushConfig,
    url: &WebhookUrl,
    delivery: &Delivery,
    now: Timestamp,
) -> Result<Request<Full<Bytes>>, String> {
    let job = &delivery.job;
    let (id, seconds) = (delivery.message_id(), now.as_millis() / 1000);
    // The content type of a job is any text.
    let content_type = HeaderValue::from_str(job.body().content_type()).unwrap_or(OCTETS);
    let mut request = Request::post(url.path())
        .header(header::HOST, url.authority())
        .header(header::CONTENT_TYPE, content_type)
        .header(header::USER_AGENT, concat!("requeue/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", &id)
        .header("webhook-timestamp", seconds);
    for (name, value) in delivery.headers() {
        request = request.header(name, value);
    }
    if let Some(signature) = sign(&config.secrets, &id, seconds, job.body().bytes()) {
        request = request.header("webhook-signature", signature);
    }
    if let Some(failure) = &delivery.previous_failure {
        request = request.header("requeue-previous-failure", visible(failure, MAX_FAILURE_LEN));
    }
    if config.format == WebhookFormat::CloudEvents {
        request = request
            .header("ce-specversion", "1.0")
            .header("ce-id", &id)
            .header("ce-source", format!("/v1/kinds/{}", job.kind()))
            .header("ce-type", job.kind().as_str())
            .header("ce-subject", header_text(job.id().as_str()))
            .header("ce-time", show_time(job.created_at));
    }
    for (name, value) in &config.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        let mut value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    let body = Bytes::from_owner(SharedBody(job.body().clone()));
    request.body(Full::new(body)).map_err(|error| error.to_string())
}

/// A body whose bytes are sent without being copied.
struct SharedBody(Body);

impl AsRef<[u8]> for SharedBody {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PushUrl;
    use requeue_jobs::{ClaimedJob, Fence, Generation, JobId, Kind, Receipt, Version};

    fn delivery(id: &str, body: Body) -> Delivery {
        let (kind, id) = (Kind::new("order.close").unwrap(), JobId::new(id).unwrap());
        let mut job = ClaimedJob::new(
            Receipt::new(kind, id, Fence(7), 1),
            Version::new(body, Timestamp::from_millis(1_796_112_000_000), Generation(3)),
        );
        job.attempt = 2;
        Delivery::new(job)
    }

    fn sent(config: &PushConfig, delivery: &Delivery) -> Vec<(String, String)> {
        let PushUrl::Http(url) = &config.url else { panic!("it is a webhook") };
        let request =
            request(config, url, delivery, Timestamp::from_millis(1_796_112_001_999)).unwrap();
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        request.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    #[test]
    fn a_request_describes_the_job() {
        let config = PushConfig::new("http://example.com:8080/a?b").unwrap();
        let mut delivery = delivery("order-7", Body::new(*b"{}", "application/json").unwrap());
        delivery.previous_failure = Some("status 500:\n\"oops\" ü".into());
        let version = concat!("requeue/", env!("CARGO_PKG_VERSION"));
        let expected = [
            ("host", "example.com:8080"),
            ("content-type", "application/json"),
            ("user-agent", version),
            ("webhook-id", "order%2Eclose/order-7/3"),
            ("webhook-timestamp", "1796112001"),
            ("requeue-kind", "order.close"),
            ("requeue-id", "order-7"),
            ("requeue-attempt", "2"),
            ("requeue-due", "2026-12-01T08:00:00.000Z"),
            ("requeue-fence", "7"),
            ("requeue-previous-failure", "status 500: \"oops\" ?"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(sent(&config, &delivery), expected);
    }

    #[test]
    fn any_id_and_content_type_can_be_sent() {
        let config = PushConfig::new("http://example.com/").unwrap();
        let id = "ü/ .\n%".repeat(73);
        let body = Body::new(*b"", "text/plain\r\nx-injected: 1").unwrap();
        let headers = sent(&config, &delivery(&id, body));
        let value = |name: &str| &headers.iter().find(|(found, _)| found == name).unwrap().1;
        let encoded = "%C3%BC%2F%20%2E%0A%25".repeat(73);
        assert_eq!(*value("webhook-id"), format!("order%2Eclose/{encoded}/3"));
        assert_eq!(*value("requeue-id"), "%C3%BC/%20.%0A%25".repeat(73));
        assert_eq!(value("content-type"), "application/octet-stream");
        assert!(!headers.iter().any(|(name, _)| name == "x-injected"));
    }
}
