//! The URL of a message broker, with the place that messages are published to or consumed from.

use super::InvalidPush;
use super::url::MAX_URL_LEN;
use std::collections::BTreeMap;
use std::fmt;

/// What a response shows instead of a secret.
const MASK: &str = "…";

/// The names in braces that a template may contain.
const TEMPLATE_NAMES: [&str; 3] = ["id", "key", "kind"];

/// The message brokers that jobs can be published to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Broker {
    /// RabbitMQ, and other brokers with AMQP 0.9.1.
    Amqp,
    /// NATS with JetStream.
    Nats,
    /// Apache Kafka, and other brokers with its protocol.
    Kafka,
    /// Redis Streams.
    Redis,
}

impl Broker {
    /// Returns the scheme of its URLs without TLS, which is also the name of the cargo feature: `amqp`,
    /// `nats`, `kafka` or `redis`.
    pub fn scheme(self) -> &'static str {
        match self {
            Broker::Amqp => "amqp",
            Broker::Nats => "nats",
            Broker::Kafka => "kafka",
            Broker::Redis => "redis",
        }
    }

    fn of_scheme(scheme: &str) -> Option<(Self, bool)> {
        Some(match scheme {
            "amqp" => (Broker::Amqp, false),
            "amqps" => (Broker::Amqp, true),
            "nats" => (Broker::Nats, false),
            "nats+tls" | "tls" => (Broker::Nats, true),
            "kafka" => (Broker::Kafka, false),
            "kafka+tls" => (Broker::Kafka, true),
            "redis" => (Broker::Redis, false),
            "rediss" => (Broker::Redis, true),
            _ => return None,
        })
    }

    fn default_port(self, tls: bool) -> u16 {
        match (self, tls) {
            (Broker::Amqp, false) => 5672,
            (Broker::Amqp, true) => 5671,
            (Broker::Nats, _) => 4222,
            (Broker::Kafka, _) => 9092,
            (Broker::Redis, _) => 6379,
        }
    }

    /// The parameters of a URL that jobs are published to.
    fn target_parameters(self) -> &'static [&'static str] {
        match self {
            Broker::Amqp => &["routing_key", "mandatory"],
            Broker::Nats => &[],
            Broker::Kafka => &["key", "sasl"],
            Broker::Redis => &["db", "maxlen"],
        }
    }

    /// What the path of a URL names, for error messages.
    fn place(self) -> &'static str {
        match self {
            Broker::Amqp => {
                "an exchange, such as amqp://host/exchange or amqp://host/vhost/exchange"
            }
            Broker::Nats => "a subject, such as nats://host/orders.due",
            Broker::Kafka => "a topic, such as kafka://host:9092/orders",
            Broker::Redis => "a stream, such as redis://host/orders",
        }
    }
}

/// The URL of a message broker, such as `amqp://user:password@host/vhost/exchange?routing_key=orders`.
///
/// [`Debug`](fmt::Debug) and [`masked`](Self::masked) do not show its password.
///
/// ```
/// use requeue_push::{Broker, BrokerUrl};
///
/// let url = BrokerUrl::parse("amqp://shop:hunter2@rabbit/orders?routing_key={kind}")?;
/// assert_eq!((url.broker(), url.password()), (Broker::Amqp, Some("hunter2")));
/// assert_eq!(url.hosts(), [("rabbit".to_owned(), 5672)]);
/// assert_eq!(url.segments(), ["orders"]);
/// assert_eq!(url.masked(), "amqp://shop:…@rabbit/orders?routing_key={kind}");
/// # Ok::<(), requeue_push::InvalidPush>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerUrl {
    text: String,
    broker: Broker,
    tls: bool,
    user: Option<String>,
    password: Option<String>,
    /// Names in lower case. An IPv6 address is without brackets.
    hosts: Vec<(String, u16)>,
    segments: Vec<String>,
    parameters: BTreeMap<String, String>,
}

impl BrokerUrl {
    /// Whether a text has the scheme of a broker.
    pub fn is_broker(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| Broker::of_scheme(scheme).is_some())
    }

    /// Parses a URL. No error repeats the URL, because it may contain a password.
    pub fn parse(text: &str) -> Result<Self, InvalidPush> {
        if text.len() > MAX_URL_LEN {
            let len = text.len();
            return Err(wrong(format!("it has {len} bytes; the limit is {MAX_URL_LEN}")));
        }
        if text.contains('#') || text.contains(char::is_whitespace) {
            return Err(wrong("it contains '#' or a space; percent-encode such characters"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let (broker, tls) = Broker::of_scheme(scheme).ok_or_else(|| {
            wrong(
                "its scheme must be amqp, amqps, nats, nats+tls, kafka, kafka+tls, redis or rediss",
            )
        })?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.find('/') {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, ""),
        };
        let (info, hosts) = match authority.rsplit_once('@') {
            Some((info, hosts)) => (Some(info), hosts),
            None => (None, authority),
        };
        let (user, password) = match info.map(|info| info.split_once(':').unwrap_or((info, ""))) {
            None => (None, None),
            Some((user, password)) => {
                let password = Some(decode(password)?).filter(|text| !text.is_empty());
                (Some(decode(user)?).filter(|text| !text.is_empty()), password)
            }
        };
        let port = broker.default_port(tls);
        let hosts = hosts.split(',').map(|host| host_and_port(host, port));
        let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        if hosts.len() > 1 && !matches!(broker, Broker::Kafka | Broker::Nats) {
            return Err(wrong("it names several hosts; only kafka and nats support that"));
        }
        let segments = match path {
            "" => Vec::new(),
            path => path.split('/').map(decode).collect::<Result<_, _>>()?,
        };
        let mut parameters = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if parameters.insert(name.to_owned(), decode(value)?).is_some() {
                return Err(wrong(format!("the parameter {name} is given twice")));
            }
        }
        let text = text.to_owned();
        Ok(BrokerUrl { text, broker, tls, user, password, hosts, segments, parameters })
    }

    /// Checks that the URL names a place that jobs can be published to, and has no unknown parameters.
    pub fn check_target(&self) -> Result<(), InvalidPush> {
        self.check_parameters(self.broker.target_parameters())?;
        let (count, most) = (self.segments.len(), if self.broker == Broker::Amqp { 2 } else { 1 });
        // The default exchange of RabbitMQ has no name, and routes by the name of a queue.
        let is_default = self.broker == Broker::Amqp && self.parameter("routing_key").is_some();
        let place = self.segments.last().map_or("", String::as_str);
        if count > most || (place.is_empty() && !is_default) {
            return Err(wrong(format!("its path must name {}", self.broker.place())));
        }
        let templates = ["routing_key", "key"].map(|name| self.parameter(name).unwrap_or_default());
        let subject = if self.broker == Broker::Nats { place } else { "" };
        templates.into_iter().chain([subject]).try_for_each(check_template)?;
        if let Some(value) = self.parameter("mandatory")
            && !matches!(value, "true" | "false")
        {
            return Err(wrong(format!("mandatory is {value:?}; it must be true or false")));
        }
        for name in ["db", "maxlen"] {
            if let Some(value) = self.parameter(name)
                && value.parse::<u32>().is_err()
            {
                return Err(wrong(format!("{name} is {value:?}; it must be a number")));
            }
        }
        self.check_sasl()
    }

    /// Checks the parameter `sasl` of Kafka.
    pub fn check_sasl(&self) -> Result<(), InvalidPush> {
        match self.parameter("sasl") {
            None | Some("plain" | "scram-sha-256" | "scram-sha-512") => Ok(()),
            Some(other) => Err(wrong(format!(
                "sasl is {other:?}; it must be plain, scram-sha-256 or scram-sha-512"
            ))),
        }
    }

    /// Fails if the URL has a parameter that is not one of these.
    pub fn check_parameters(&self, known: &[&str]) -> Result<(), InvalidPush> {
        match self.parameters.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) if known.is_empty() => {
                Err(wrong(format!("the parameter {name:?} is unknown; there are none")))
            }
            Some(name) => Err(wrong(format!(
                "the parameter {name:?} is unknown; there are {}",
                known.join(", ")
            ))),
        }
    }

    /// Returns the URL as it was given, with its password.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Returns the broker that the scheme names.
    pub fn broker(&self) -> Broker {
        self.broker
    }

    /// Whether connections are encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Returns the user. For NATS, a user without a password is a token.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the password.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Returns the hosts, in lower case, with their ports.
    pub fn hosts(&self) -> &[(String, u16)] {
        &self.hosts
    }

    /// Returns the decoded segments of the path.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// Returns the decoded value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Returns scheme and hosts, such as `amqp://rabbit:5672`. Kinds with the same origin are slowed down
    /// together.
    pub fn origin(&self) -> String {
        let hosts = self.hosts.iter().map(|(host, port)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        });
        let tls = match (self.broker, self.tls) {
            (_, false) => "",
            (Broker::Amqp | Broker::Redis, true) => "s",
            (Broker::Nats | Broker::Kafka, true) => "+tls",
        };
        format!("{}{tls}://{}", self.broker.scheme(), hosts.collect::<Vec<_>>().join(","))
    }

    /// Returns the URL with `…` instead of the password, or of the token of NATS.
    pub fn masked(&self) -> String {
        self.parts().map_or_else(
            || self.text.clone(),
            |(before, _, after)| format!("{before}{MASK}{after}"),
        )
    }

    /// Whether the secret of the URL is the mask that [`masked`](Self::masked) puts there.
    pub(super) fn is_masked(&self) -> bool {
        self.parts().is_some_and(|(_, secret, _)| secret == MASK)
    }

    /// Returns the secret as it is in the URL.
    pub(super) fn secret(&self) -> Option<&str> {
        self.parts().map(|(_, secret, _)| secret)
    }

    /// Returns the URL with another secret, which is percent-encoded.
    pub(super) fn with_secret(&self, secret: &str) -> Result<Self, InvalidPush> {
        match self.parts() {
            None => Ok(self.clone()),
            Some((before, _, after)) => BrokerUrl::parse(&format!("{before}{secret}{after}")),
        }
    }

    /// Whether this URL connects to the same hosts as the same user, so that a stored secret may be kept.
    pub(super) fn is_same_account(&self, other: &BrokerUrl) -> bool {
        let account = |url: &BrokerUrl| url.parts().map(|(before, ..)| before.to_owned());
        self.origin() == other.origin() && account(self) == account(other)
    }

    /// Splits the URL around its secret: the password, or the token of NATS.
    fn parts(&self) -> Option<(&str, &str, &str)> {
        let start = self.text.find("://")? + 3;
        let end = self.text[start..].find(['/', '?']).map_or(self.text.len(), |at| start + at);
        let at = start + self.text[start..end].rfind('@')?;
        let secret = match self.text[start..at].find(':') {
            Some(colon) => start + colon + 1,
            None if self.broker == Broker::Nats => start,
            None => return None,
        };
        Some((&self.text[..secret], &self.text[secret..at], &self.text[at..]))
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.masked().fmt(f)
    }
}

fn wrong(reason: impl Into<String>) -> InvalidPush {
    InvalidPush::url(reason)
}

fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), InvalidPush> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) =
                rest.split_once(']').ok_or_else(|| wrong("its host is not an IPv6 address"))?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(wrong("its host is not an IPv6 address"));
            }
            (host, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None => default_port,
        Some(digits) => match digits.parse::<u16>() {
            Ok(port) if port > 0 && digits.bytes().all(|b| b.is_ascii_digit()) => port,
            _ => return Err(wrong("its port is not a number from 1 to 65535")),
        },
    };
    let label = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if host.is_empty() || !host.chars().all(label) {
        return Err(wrong("it contains no valid host"));
    }
    Ok((host.to_ascii_lowercase(), port))
}

/// Fails if a template contains a name in braces that does not exist.
fn check_template(template: &str) -> Result<(), InvalidPush> {
    match fill_template(template, |name| TEMPLATE_NAMES.contains(&name).then(String::new)) {
        Some(_) => Ok(()),
        None => Err(wrong(format!(
            "the template {template:?} may contain {{id}}, {{key}} and {{kind}}"
        ))),
    }
}

/// Replaces the names in braces of a template. Returns `None` if `value` does, or a brace is not closed.
pub fn fill_template(template: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (mut filled, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        filled.push_str(before);
        filled.push_str(&value(name)?);
        rest = after;
    }
    if rest.contains('}') {
        return None;
    }
    filled.push_str(rest);
    Some(filled)
}

/// Decodes percent-encoding.
fn decode(text: &str) -> Result<String, InvalidPush> {
    let decoded = || {
        let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
        while let [first, after @ ..] = rest {
            rest = after;
            if *first != b'%' {
                bytes.push(*first);
                continue;
            }
            let digits = str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        }
        String::from_utf8(bytes).ok()
    };
    decoded().ok_or_else(|| wrong("it contains invalid percent-encoding"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let url =
            BrokerUrl::parse("kafka+tls://u:p%40%2F@A:1,[::1]:2/t?sasl=plain&key={id}").unwrap();
        assert_eq!((url.broker(), url.is_tls()), (Broker::Kafka, true));
        assert_eq!((url.user(), url.password()), (Some("u"), Some("p@/")));
        assert_eq!(url.hosts(), [("a".to_owned(), 1), ("::1".to_owned(), 2)]);
        assert_eq!((url.segments(), url.parameter("key")), (&["t".to_owned()][..], Some("{id}")));
        assert_eq!(url.origin(), "kafka+tls://a:1,[::1]:2");
        assert_eq!(url.check_target(), Ok(()));
        for text in [
            "amqp://h/e",
            "amqps://h/%2F/e",
            "amqp://h/?routing_key=q",
            "nats://h/a.{id}",
            "redis://h/s?db=3&maxlen=10",
        ] {
            assert_eq!(BrokerUrl::parse(text).unwrap().check_target(), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_secret_is_masked_and_kept() {
        let url = BrokerUrl::parse("amqp://u:hunter2%2F%40%3A%C3%BC@h/e").unwrap();
        assert_eq!(url.masked(), "amqp://u:…@h/e");
        assert_eq!(url.password(), Some("hunter2/@:ü"));
        let masked = BrokerUrl::parse(&url.masked()).unwrap();
        assert!(masked.is_masked() && masked.is_same_account(&url) && !url.is_masked());
        assert_eq!(masked.with_secret(url.secret().unwrap()), Ok(url.clone()));
        for other in [
            "amqp://v:…@h/e",
            "amqp://u:…@h2/e",
            "amqp://u:…@h:1/e",
            "amqps://u:…@h/e",
            "amqp://h/e",
        ] {
            assert!(!BrokerUrl::parse(other).unwrap().is_same_account(&url), "{other}");
        }
        let token = BrokerUrl::parse("nats://hunter2@h/a").unwrap();
        assert_eq!(format!("{token:?}"), "\"nats://…@h/a\"");
        assert_eq!(BrokerUrl::parse("redis://h/s").unwrap().secret(), None);
    }

    #[test]
    fn invalid_urls_are_rejected_without_their_password() {
        for (text, expected) in [
            ("mqtt://h/e", "scheme must be"),
            ("amqp://u:hunter2@/e", "no valid host"),
            ("amqp://u:hunter2@h:0/e", "port"),
            ("amqp://u:hunter2@a,b/e", "several hosts"),
            ("amqp://u:hunter2@h/e x", "a space"),
            ("amqp://u:hunter2@h/%zz", "percent-encoding"),
            ("amqp://u:hunter2@h/a/b/c", "must name an exchange"),
            ("amqp://u:hunter2@h", "must name an exchange"),
            ("amqp://u:hunter2@h/e?routing_key={ID}", "may contain {id}"),
            ("amqp://u:hunter2@h/e?mandatory=no", "true or false"),
            ("amqp://u:hunter2@h/e?mandatory=true&mandatory=true", "twice"),
            ("nats://u:hunter2@h/", "must name a subject"),
            ("nats://u:hunter2@h/a?b=c", "there are none"),
            ("kafka://u:hunter2@h/t?sasl=gssapi", "scram-sha-256"),
            ("kafka://u:hunter2@h/t?acks=1", "there are key, sasl"),
            ("redis://u:hunter2@h/s?db=x", "must be a number"),
        ] {
            let error = BrokerUrl::parse(text).and_then(|url| url.check_target()).expect_err(text);
            let shown = error.to_string();
            assert!(shown.contains(expected) && !shown.contains("hunter2"), "{text}: {shown}");
            assert_eq!(error.field(), Some("url"));
        }
    }
}
