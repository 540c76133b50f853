//! What a response means for the job.

use crate::circuit::MAX_RETRY_AFTER;
use crate::encode::excerpt;
use crate::target::DeliveryOutcome;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use hyper::http::response::Parts;
use requeue_jobs::limits::MAX_CONTENT_TYPE_LEN;
use requeue_jobs::{Body, Timestamp};
use std::time::Duration;

/// How much of the body of a rejection is part of the error, in bytes.
const MAX_EXCERPT_LEN: usize = 200;

/// A response, as far as it was read.
pub(super) struct Received {
    pub(super) head: Parts,
    pub(super) bytes: Vec<u8>,
    /// Whether this is all of it.
    pub(super) is_whole: bool,
}

impl Received {
    /// Returns what becomes of the job. `now` is the time of the response.
    pub(super) fn outcome(self, now: Timestamp) -> DeliveryOutcome {
        let status = self.head.status;
        if status.is_success() {
            return DeliveryOutcome::Done { result: self.result() };
        }
        let (error, after) = (self.error(), self.retry_after(now));
        match status {
            StatusCode::GONE => DeliveryOutcome::Bury { error },
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                DeliveryOutcome::SlowDown { error, after }
            }
            _ => DeliveryOutcome::Retry { error, after },
        }
    }

    /// Returns the body as the result of the job. A longer one than can be kept is dropped.
    fn result(self) -> Option<Body> {
        if !self.is_whole || self.bytes.is_empty() {
            return None;
        }
        let content_type = self.head.headers.get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        match content_type.filter(|text| text.len() <= MAX_CONTENT_TYPE_LEN) {
            Some(content_type) => Body::new(self.bytes, content_type).ok(),
            None => Body::octets(self.bytes).ok(),
        }
    }

    /// Returns the error of a response that is not a success: the status, and how the body begins.
    fn error(&self) -> String {
        let status = self.head.status;
        if status.is_redirection() {
            let location = self.head.headers.get(LOCATION).map(|value| value.as_bytes());
            let to = location.map(|to| format!(" to {}", excerpt(to, MAX_EXCERPT_LEN)));
            return format!(
                "status {status}: a redirect{} is not followed",
                to.unwrap_or_default()
            );
        }
        match excerpt(&self.bytes, MAX_EXCERPT_LEN) {
            text if text.is_empty() => format!("status {status}"),
            text => format!("status {status}: {text}"),
        }
    }

    /// Returns the time that the receiver asks for with `Retry-After`, capped. One that is invalid, zero or
    /// in the past is ignored.
    fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        let text = self.head.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let after = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            // All characters are digits, so parsing fails only if the number is too large.
            text.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs)
        } else {
            let at = Timestamp::from(httpdate::parse_http_date(text).ok()?);
            at.saturating_since(now)
        };
        (!after.is_zero()).then(|| after.min(MAX_RETRY_AFTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Response;

    /// 1994-11-06T08:49:00Z
    const NOW: Timestamp = Timestamp::from_millis(784_111_740_000);

    fn received(status: u16, headers: &[(&str, &str)], bytes: &[u8]) -> DeliveryOutcome {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let head = response.body(()).unwrap().into_parts().0;
        Received { head, bytes: bytes.to_vec(), is_whole: true }.outcome(NOW)
    }

    fn after(value: &str) -> Option<u64> {
        match received(500, &[("retry-after", value)], b"") {
            DeliveryOutcome::Retry { after, .. } => after.map(|after| after.as_secs()),
            outcome => panic!("{outcome:?}"),
        }
    }

    #[test]
    fn the_status_decides_what_becomes_of_the_job() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(received(status, &[], b""), DeliveryOutcome::Done { result: None });
        }
        for status in [300, 301, 302, 304, 307, 308, 400, 401, 403, 404, 408, 422, 500, 502, 504] {
            let outcome = received(status, &[], b"");
            assert!(matches!(outcome, DeliveryOutcome::Retry { after: None, .. }), "{outcome:?}");
        }
        for status in [429, 503] {
            let outcome = received(status, &[("retry-after", "5")], b"");
            let after = Some(Duration::from_secs(5));
            assert!(matches!(outcome, DeliveryOutcome::SlowDown { after: a, .. } if a == after));
        }
        let error = "status 410 Gone: no such hook".to_owned();
        assert_eq!(received(410, &[], b"no such hook"), DeliveryOutcome::Bury { error });
    }

    #[test]
    fn the_error_names_status_and_body() {
        let error =
            |status, headers: &[(&str, &str)], bytes: &[u8]| match received(status, headers, bytes)
            {
                DeliveryOutcome::Retry { error, .. } => error,
                outcome => panic!("{outcome:?}"),
            };
        assert_eq!(error(500, &[], b""), "status 500 Internal Server Error");
        assert_eq!(error(400, &[], b"bad\x1b[0m\nid"), r"status 400 Bad Request: bad\u{1b}[0m\nid");
        assert_eq!(error(404, &[], &[b'x'; 1000]).len(), "status 404 Not Found: ".len() + 200);
        let redirect = error(302, &[("location", "http://10.0.0.1/")], b"");
        assert_eq!(redirect, "status 302 Found: a redirect to http://10.0.0.1/ is not followed");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_capped() {
        assert_eq!(after("120"), Some(120));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(37));
        assert_eq!(after("Sunday, 06-Nov-94 08:49:37 GMT"), Some(37));
        assert_eq!(after("Sun Nov  6 08:49:37 1994"), Some(37));
        for capped in ["3601", "99999999999999999999999", "Mon, 07 Nov 1994 08:49:37 GMT"] {
            assert_eq!(after(capped), Some(3600), "{capped}");
        }
        for ignored in ["0", "", "-5", "1.5", "soon", "Sun, 06 Nov 1994 08:48:37 GMT"] {
            assert_eq!(after(ignored), None, "{ignored}");
        }
    }

    #[test]
    fn the_body_is_the_result() {
        let result = |headers: &[(&str, &str)]| match received(200, headers, b"{}") {
            DeliveryOutcome::Done { result } => result.unwrap().content_type().to_owned(),
            outcome => panic!("{outcome:?}"),
        };
        assert_eq!(result(&[("content-type", "application/json")]), "application/json");
        assert_eq!(result(&[]), "application/octet-stream");
        let long = "x".repeat(MAX_CONTENT_TYPE_LEN + 1);
        assert_eq!(result(&[("content-type", &long)]), "application/octet-stream");
    }
}
