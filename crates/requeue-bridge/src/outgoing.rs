//! [`Outgoing`]: the message that is published for a job.

use crate::message::{HeaderValue, Message};
use requeue_push::{BrokerUrl, Delivery, PushConfig, fill_template};

/// What the names of headers begin with that this project defines: instructions to the bridge in a message that
/// comes in, facts about the job in one that is published. Those that came in are not published again: consumers
/// could not tell a publisher's `requeue-fence` from that of the job.
const OWN_PREFIX: &str = "requeue-";

/// The header of RabbitMQ's delayed-message plugin: a delay in milliseconds.
pub(crate) const X_DELAY: &str = "x-delay";

/// A message that is published for a job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outgoing {
    /// The same for every attempt to deliver the job: kind, id and generation.
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) job_id: String,
    /// The message, with the headers that describe the job and those of the push setting.
    pub(crate) message: Message,
}

impl Outgoing {
    /// Fails with a text for people if the job has a stored message that cannot be read.
    pub(crate) fn new(config: &PushConfig, delivery: &Delivery) -> Result<Self, String> {
        let mut message = Message::from_content(&delivery.job.version.content)?;
        message.headers.retain(|(name, _)| !is_own(name));
        for (name, value) in &mut message.headers {
            if name.eq_ignore_ascii_case(X_DELAY) {
                // As the plugin does it: consumers see that the message was delayed, and it is not delayed again.
                if let Some(delay) = milliseconds(value) {
                    *value = HeaderValue::Int(-delay.saturating_abs());
                }
            }
        }
        let job =
            delivery.headers().map(|(name, value)| (name.to_owned(), HeaderValue::Text(value)));
        let added = config.headers.iter();
        let added = added.map(|(name, value)| (name.clone(), HeaderValue::Text(value.clone())));
        message.headers.extend(job.into_iter().chain(added));
        Ok(Outgoing {
            id: delivery.message_id(),
            kind: delivery.job.kind().to_string(),
            job_id: delivery.job.id().to_string(),
            message,
        })
    }

    /// Returns the parameter of the URL with this name, as a template of the job. `None` if the URL lacks it.
    #[cfg_attr(not(any(feature = "amqp", feature = "kafka")), allow(dead_code))]
    pub(crate) fn template(&self, url: &BrokerUrl, name: &str) -> Option<String> {
        url.parameter(name).map(|template| self.fill(template, |_, value| value.to_owned()))
    }

    /// Fills a template with what describes the job. `encode` gets a name and its value, and makes the value
    /// fit for the place.
    pub(crate) fn fill(&self, template: &str, encode: impl Fn(&str, &str) -> String) -> String {
        let key = self.message.key.as_deref().map(String::from_utf8_lossy);
        let filled = fill_template(template, |name| match name {
            "id" => Some(encode(name, &self.job_id)),
            "kind" => Some(encode(name, &self.kind)),
            "key" => Some(encode(name, key.as_deref().unwrap_or(&self.job_id))),
            _ => None,
        });
        filled.unwrap_or_else(|| template.to_owned())
    }
}

fn is_own(name: &str) -> bool {
    let prefix = name.trim_start().as_bytes().get(..OWN_PREFIX.len());
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(OWN_PREFIX.as_bytes()))
}

/// Returns the number of milliseconds in a header `x-delay`, with the types that the plugin accepts.
pub(crate) fn milliseconds(value: &HeaderValue) -> Option<i64> {
    match value {
        HeaderValue::Int(number) => Some(*number),
        HeaderValue::Float { float } if float.is_finite() => Some(*float as i64),
        HeaderValue::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::{ClaimedJob, Fence, Generation, JobId, Kind, Receipt, Timestamp, Version};

    fn delivery(message: &Message) -> Delivery {
        let (kind, id) = (Kind::new("order.close").unwrap(), JobId::new("7").unwrap());
        let receipt = Receipt::new(kind, id, Fence(9), 1);
        let content = message.to_content().unwrap();
        let version = Version::new(content, Timestamp::default(), Generation(3));
        Delivery::new(ClaimedJob::new(receipt, version))
    }

    #[test]
    fn a_message_is_published_as_it_came_in() {
        let mut message = Message::new(*b"{}");
        message.key = Some(b"orders.eu".to_vec());
        for (name, value) in [("x-delay", "5000"), ("tenant", "a"), ("requeue-key", "7")] {
            message.headers.push((name.to_owned(), value.into()));
        }
        // A publisher must not be able to speak for the job, and a consumer may take the first of two headers.
        for name in [
            "requeue-fence",
            "Requeue-Id",
            "REQUEUE-KIND",
            " requeue-attempt",
            "requeue-message-id",
        ] {
            message.headers.push((name.to_owned(), "forged".into()));
        }
        let mut config = PushConfig::new("amqp://h/e?routing_key={kind}-{id}-{key}").unwrap();
        config.headers.insert("team".to_owned(), "b".to_owned());
        let outgoing = Outgoing::new(&config, &delivery(&message)).unwrap();
        assert_eq!(outgoing.id, "order%2Eclose/7/3");
        let names: Vec<_> =
            outgoing.message.headers.iter().map(|(name, _)| name.as_str()).collect();
        let job = ["requeue-kind", "requeue-id", "requeue-attempt", "requeue-due", "requeue-fence"];
        assert_eq!(names, [&["x-delay", "tenant"][..], &job, &["team"]].concat());
        assert_eq!(outgoing.message.header("x-delay"), Some(&HeaderValue::Int(-5000)));
        let requeue_push::PushUrl::Broker(url) = &config.url else { panic!("{config:?}") };
        let filled = outgoing.template(url, "routing_key");
        assert_eq!(filled.as_deref(), Some("order.close-7-orders.eu"));
    }
}
