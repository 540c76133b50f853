//! What the bridge does with a message: plain code, without a clock or a connection.

use crate::message::{HeaderValue, Message};
use crate::outgoing::{X_DELAY, milliseconds};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use requeue_http::times::{parse_duration, parse_time, show_duration};
use requeue_jobs::limits::MAX_DELAY;
use requeue_jobs::{Due, JobId, Kind, Put, Timestamp};
use ring::rand::{SecureRandom, SystemRandom};
use std::time::Duration;

/// A message that was received.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Received {
    pub(crate) message: Message,
    /// The id that the publisher or the broker gave the message. The same if it is received again.
    pub(crate) id: Option<String>,
    /// When the broker got the message. A delay counts from then, or else from when it was received. A time
    /// in the future, from another clock, is ignored.
    pub(crate) at: Option<Timestamp>,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Put(Put),
    /// Remove the job with this id.
    Cancel(JobId),
    /// The message is invalid, for this reason.
    Reject(String),
}

/// Decides what becomes of a message that was received at `now`.
pub(crate) fn decide(received: &Received, kind: &Kind, now: Timestamp) -> Action {
    action(received, kind, now).unwrap_or_else(Action::Reject)
}

fn action(received: &Received, kind: &Kind, now: Timestamp) -> Result<Action, String> {
    let message = &received.message;
    let text = |name: &str| message.header(name).map(HeaderValue::to_text);
    let id = match text("requeue-key").or_else(|| received.id.clone()) {
        Some(id) => id,
        None => random_id()?,
    };
    let id = JobId::new(id).map_err(|error| format!("the key of the job: {error}"))?;
    match text("requeue-cancel").as_deref() {
        None | Some("false") => {}
        Some("true") => return Ok(Action::Cancel(id)),
        Some(other) => return Err(format!("header requeue-cancel is {other:?}; it must be true")),
    }
    let content = message.to_content().map_err(|error| error.to_string())?;
    let mut put = Put::new(kind.clone(), id, content);
    put.due = due(message, received.at.unwrap_or(now).min(now), now)?;
    Ok(Action::Put(put))
}

/// Returns when the job is due. A delay counts from `since`.
fn due(message: &Message, since: Timestamp, now: Timestamp) -> Result<Due, String> {
    let names = [X_DELAY, "requeue-delay", "requeue-due"];
    let mut found = names.into_iter().filter(|name| message.header(name).is_some());
    let (first, second) = (found.next(), found.next());
    if let (Some(first), Some(second)) = (first, second) {
        return Err(format!("headers {first} and {second}: a message can have only one of them"));
    }
    let Some((name, value)) = first.and_then(|name| Some((name, message.header(name)?))) else {
        return Ok(Due::Now);
    };
    let text = value.to_text();
    let wrong = |reason: String| format!("header {name} is {text:?}: {reason}");
    let at = match name {
        X_DELAY => {
            let number = milliseconds(value);
            let number =
                number.ok_or_else(|| wrong("it must be a number of milliseconds".to_owned()))?;
            // As with the plugin, a message with a negative delay is published immediately.
            since.saturating_add(Duration::from_millis(u64::try_from(number).unwrap_or(0)))
        }
        "requeue-delay" => {
            let delay = parse_duration(&text).map_err(|error| wrong(error.to_string()))?;
            since.saturating_add(delay)
        }
        _ => parse_time(&text, now, None).map_err(|error| wrong(error.to_string()))?,
    };
    let delay = at.saturating_since(now);
    if delay > MAX_DELAY {
        return Err(wrong(format!(
            "it is later than the longest delay, {}",
            show_duration(MAX_DELAY)
        )));
    }
    Ok(if delay.is_zero() { Due::Now } else { Due::At(at) })
}

/// Returns an id for a message that has none. If it is received twice, there are two jobs.
fn random_id() -> Result<String, String> {
    let mut bytes = [0; 15];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the system has no random numbers".to_owned())?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_796_112_000_000);

    fn with(headers: &[(&str, HeaderValue)]) -> Action {
        let mut message = Message::new(*b"x");
        message.headers =
            headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let received = Received { message, id: Some("m-1".to_owned()), at: None };
        decide(&received, &Kind::new("k").unwrap(), NOW)
    }

    fn due_of(headers: &[(&str, HeaderValue)]) -> Due {
        match with(headers) {
            Action::Put(put) => put.due,
            action => panic!("{headers:?}: {action:?}"),
        }
    }

    #[test]
    fn a_header_decides_when_the_job_is_due() {
        let after = |millis| Due::At(NOW.saturating_add(Duration::from_millis(millis)));
        assert_eq!(due_of(&[]), Due::Now);
        assert_eq!(due_of(&[("x-delay", HeaderValue::Int(5000))]), after(5000));
        assert_eq!(due_of(&[("x-delay", "5000".into())]), after(5000));
        assert_eq!(due_of(&[("x-delay", HeaderValue::Float { float: 1.9 })]), after(1));
        assert_eq!(due_of(&[("x-delay", HeaderValue::Int(-5000))]), Due::Now);
        assert_eq!(due_of(&[("requeue-delay", "5m".into())]), after(300_000));
        assert_eq!(due_of(&[("requeue-due", "2026-12-01T08:00:01Z".into())]), after(1000));
        assert_eq!(due_of(&[("requeue-due", "2020-01-01T00:00:00Z".into())]), Due::Now);
    }

    #[test]
    fn a_delay_counts_from_when_the_broker_got_the_message() {
        let mut message = Message::new(*b"x");
        message.headers.push(("requeue-delay".to_owned(), "10s".into()));
        let at = Some(Timestamp::from_millis(NOW.as_millis() - 4000));
        let received = Received { message, id: None, at };
        let kind = Kind::new("k").unwrap();
        let Action::Put(put) = decide(&received, &kind, NOW) else { panic!() };
        assert_eq!(put.due, Due::At(NOW.saturating_add(Duration::from_secs(6))));
        assert_eq!(put.id.as_str().len(), 20);
        let ahead = Some(Timestamp::from_millis(NOW.as_millis() + 4000));
        let received = Received { at: ahead, ..received };
        let Action::Put(put) = decide(&received, &kind, NOW) else { panic!() };
        assert_eq!(put.due, Due::At(NOW.saturating_add(Duration::from_secs(10))));
    }

    #[test]
    fn the_key_of_a_message_is_the_id_of_its_job() {
        let Action::Put(put) = with(&[("requeue-key", "order-7".into())]) else { panic!() };
        assert_eq!(put.id.as_str(), "order-7");
        let Action::Put(put) = with(&[]) else { panic!() };
        assert_eq!(put.id.as_str(), "m-1");
        let cancel = with(&[("Requeue-Key", "order-7".into()), ("requeue-cancel", "true".into())]);
        assert_eq!(cancel, Action::Cancel(JobId::new("order-7").unwrap()));
    }

    #[test]
    fn an_invalid_message_is_rejected_with_a_reason() {
        let years = HeaderValue::Int(11 * 366 * 86_400_000);
        for (headers, expected) in [
            (
                vec![("x-delay", HeaderValue::from("soon"))],
                "header x-delay is \"soon\": it must be a number",
            ),
            (vec![("x-delay", HeaderValue::Bool(true))], "milliseconds"),
            (vec![("x-delay", years)], "the longest delay"),
            (vec![("requeue-delay", "5".into())], "a number without a unit is rejected"),
            (vec![("requeue-due", "tomorrow 9".into())], "header requeue-due"),
            (vec![("requeue-delay", "5s".into()), ("x-delay", "1".into())], "only one of them"),
            (vec![("requeue-key", "".into())], "the key of the job"),
            (vec![("requeue-cancel", "yes".into())], "it must be true"),
        ] {
            match with(&headers) {
                Action::Reject(reason) => assert!(reason.contains(expected), "{reason}"),
                action => panic!("{headers:?}: {action:?}"),
            }
        }
        let message = Message::new(vec![0; (1 << 20) + 1]);
        let received = Received { message, id: None, at: None };
        let action = decide(&received, &Kind::new("k").unwrap(), NOW);
        assert!(matches!(action, Action::Reject(reason) if reason.contains("1048576")));
    }
}
