//! Apache Kafka, and other brokers with its protocol.

mod client;
mod headers;
mod producer;
mod publisher;
mod source;
mod topics;

pub(crate) use publisher::KafkaPublisher;
pub(crate) use source::{KafkaSource, check_source};

use crate::error::BridgeError;
use crate::target::BrokerOptions;
use crate::tls::{client_certificate, trusted_authorities};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use requeue_push::{BrokerUrl, InvalidPush};

/// The longest name of a topic.
const MAX_TOPIC_LEN: usize = 249;

/// How long a broker may take to respond, in milliseconds. Afterwards the connection is made again.
const RESPONSE_TIMEOUT_MS: &str = "10000";

/// The longest pause between two attempts to connect, in milliseconds.
const MAX_RECONNECT_MS: &str = "2000";

/// What is needed to connect.
#[derive(Clone)]
pub(crate) struct Connector {
    config: ClientConfig,
    /// The hosts, for error messages.
    origin: String,
    topic: String,
}

impl Connector {
    /// Fails if the URL does not name a topic, or the file of certificates cannot be read.
    pub(crate) fn new(url: &BrokerUrl, options: &BrokerOptions) -> Result<Self, BridgeError> {
        url.check_sasl()?;
        let topic = match url.segments() {
            [topic] => topic.clone(),
            _ => return Err(wrong("its path must name a topic, such as kafka://host:9092/orders")),
        };
        check_topic(&topic).map_err(|reason| wrong(&reason))?;
        let mut config = ClientConfig::new();
        // What the library logs is logged on the level debug, and is not filtered twice.
        config.set_log_level(RDKafkaLogLevel::Info);
        let origin = url.origin();
        let hosts = origin.split_once("://").map_or("", |(_, hosts)| hosts);
        for (name, value) in [
            ("bootstrap.servers", hosts),
            ("client.id", "requeue"),
            ("socket.keepalive.enable", "true"),
            ("socket.timeout.ms", RESPONSE_TIMEOUT_MS),
            ("socket.connection.setup.timeout.ms", RESPONSE_TIMEOUT_MS),
            ("reconnect.backoff.max.ms", MAX_RECONNECT_MS),
        ] {
            config.set(name, value);
        }
        let protocol = match (url.is_tls(), url.user().is_some()) {
            (false, false) => "plaintext",
            (true, false) => "ssl",
            (false, true) => "sasl_plaintext",
            (true, true) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some(user) = url.user() {
            let mechanism = url.parameter("sasl").unwrap_or("plain").to_ascii_uppercase();
            config.set("sasl.mechanism", mechanism);
            config.set("sasl.username", user);
            config.set("sasl.password", url.password().unwrap_or_default());
        } else if url.parameter("sasl").is_some() {
            return Err(wrong("it has the parameter sasl and no user"));
        }
        if url.is_tls() {
            // Without any, the library looks for those of the system itself.
            let authorities = trusted_authorities(options)?;
            if !authorities.is_empty() {
                config.set("ssl.ca.pem", authorities);
            }
            if let Some(own) = client_certificate(options)? {
                config.set("ssl.certificate.pem", own.certificate);
                config.set("ssl.key.pem", own.key);
            }
        }
        Ok(Connector { config, origin, topic })
    }

    /// Returns the settings of a client: those of all clients, and these.
    fn config(&self, settings: &[(&str, &str)]) -> ClientConfig {
        let mut config = self.config.clone();
        for (name, value) in settings {
            config.set(*name, *value);
        }
        config
    }
}

/// Fails with a text for people if a topic cannot have this name.
fn check_topic(name: &str) -> Result<(), String> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fits = (1..=MAX_TOPIC_LEN).contains(&name.len()) && !matches!(name, "." | "..");
    match fits && name.chars().all(is_valid) {
        true => Ok(()),
        false => Err(format!(
            "the topic {name:?} is invalid; it must have 1 to {MAX_TOPIC_LEN} letters, digits, dots, underscores \
             and hyphens"
        )),
    }
}

fn wrong(reason: &str) -> BridgeError {
    BridgeError::Invalid(InvalidPush::Url { reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connector(url: &str) -> Result<Connector, BridgeError> {
        Connector::new(&BrokerUrl::parse(url).unwrap(), &BrokerOptions::default())
    }

    #[test]
    fn a_url_becomes_settings() {
        let connector =
            connector("kafka+tls://u:p%40@a:1,[::1]:2/orders?sasl=scram-sha-512").unwrap();
        let get = |name: &str| connector.config.get(name);
        assert_eq!(get("bootstrap.servers"), Some("a:1,[::1]:2"));
        assert_eq!(get("security.protocol"), Some("sasl_ssl"));
        assert_eq!(get("sasl.mechanism"), Some("SCRAM-SHA-512"));
        assert_eq!((get("sasl.username"), get("sasl.password")), (Some("u"), Some("p@")));
        assert_eq!(connector.topic, "orders");
        assert!(connector.config(&[("acks", "all")]).create_native_config().is_ok());
    }

    #[test]
    fn invalid_urls_are_rejected() {
        for (url, expected) in [
            ("kafka://h", "must name a topic"),
            ("kafka://h/a/b", "must name a topic"),
            ("kafka://h/a%20b", "the topic \"a b\" is invalid"),
            ("kafka://h/..", "is invalid"),
            ("kafka://h/t?sasl=plain", "no user"),
            ("kafka://u:p@h/t?sasl=gssapi", "scram-sha-256"),
        ] {
            let error = connector(url).err().unwrap().to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }
}
