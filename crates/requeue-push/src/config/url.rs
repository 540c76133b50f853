//! The URL that jobs are sent to.

use super::{BrokerUrl, InvalidPush};
use hyper::Uri;
use std::fmt;
use std::net::Ipv6Addr;

/// The longest URL, in bytes. Browsers and proxies accept as much.
pub(super) const MAX_URL_LEN: usize = 2048;

/// The URL that jobs are sent to: `http` or `https`, with a host, without a user name and fragment.
///
/// ```
/// use requeue_push::WebhookUrl;
///
/// let url = WebhookUrl::parse("https://Example.com/hooks?tenant=7")?;
/// assert_eq!(url.origin(), "https://example.com:443");
/// assert!(WebhookUrl::parse("ftp://example.com/").is_err());
/// # Ok::<(), requeue_push::InvalidPush>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    text: String,
    https: bool,
    /// In lower case. An IPv6 address is without brackets.
    host: String,
    port: u16,
    /// Host and port as in the URL, for the `Host` header.
    authority: String,
    /// Path and query, at least `/`.
    path: String,
}

impl WebhookUrl {
    /// Parses a URL. No error repeats the URL, because it may contain a password.
    pub fn parse(text: &str) -> Result<Self, InvalidPush> {
        let wrong = |reason: &str| Err(InvalidPush::url(reason));
        if text.len() > MAX_URL_LEN {
            let len = text.len();
            let reason = format!("it has {len} bytes; the limit is {MAX_URL_LEN}");
            return Err(InvalidPush::url(reason));
        }
        if !text.is_ascii() {
            return wrong(
                "it contains characters outside ASCII; write the host in Punycode (xn--…) and percent-encode the path",
            );
        }
        if text.contains('#') {
            return wrong("it contains a fragment ('#'), which is never sent");
        }
        let Ok(uri) = text.parse::<Uri>() else {
            return wrong("write it like https://example.com/hooks");
        };
        let (https, default_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            Some(_) => {
                return wrong(
                    "its scheme must be http or https, or that of a message broker: amqp, nats, kafka or redis",
                );
            }
            None => return wrong("it must begin with http:// or https://"),
        };
        let Some(authority) = uri.authority() else { return wrong("it contains no host") };
        if authority.as_str().contains('@') {
            return wrong("it contains a user name; use the header authorization instead");
        }
        let host = authority.host();
        let port = match authority.as_str()[host.len()..].strip_prefix(':') {
            None | Some("") => default_port,
            Some(digits) => match digits.parse::<u16>() {
                Ok(port) if port > 0 && digits.bytes().all(|b| b.is_ascii_digit()) => port,
                _ => return wrong("its port is not a number from 1 to 65535"),
            },
        };
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => match address.parse::<Ipv6Addr>() {
                Ok(address) => address.to_string(),
                Err(_) => return wrong("its host is not an IPv6 address"),
            },
            None => host.to_ascii_lowercase(),
        };
        let label = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        if host.is_empty() || !host.chars().all(label) || host.starts_with('.') {
            return wrong("it contains no valid host");
        }
        let path = match uri.path_and_query().map_or("", |path| path.as_str()) {
            path if path.starts_with('/') => path.to_owned(),
            query => format!("/{query}"),
        };
        let authority = authority.as_str().to_owned();
        Ok(WebhookUrl { text: text.to_owned(), https, host, port, authority, path })
    }

    /// Returns the URL as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns scheme, host and port, such as `https://example.com:443`. URLs with the same origin share
    /// connections, and are slowed down together.
    pub fn origin(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        match self.host.contains(':') {
            true => format!("{scheme}://[{}]:{}", self.host, self.port),
            false => format!("{scheme}://{}:{}", self.host, self.port),
        }
    }

    /// Whether requests are encrypted.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// Returns the host in lower case. An IPv6 address is without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

/// Where the jobs of a kind are sent: an HTTP endpoint, or a place at a message broker.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushUrl {
    /// Each job is an HTTP request.
    Http(WebhookUrl),
    /// Each job is a message.
    Broker(BrokerUrl),
}

impl PushUrl {
    /// Parses a URL. No error repeats the URL, because it may contain a password.
    pub fn parse(text: &str) -> Result<Self, InvalidPush> {
        if BrokerUrl::is_broker(text) {
            let url = BrokerUrl::parse(text)?;
            url.check_target()?;
            return Ok(PushUrl::Broker(url));
        }
        WebhookUrl::parse(text).map(PushUrl::Http)
    }

    /// Returns scheme, host and port. URLs with the same origin are slowed down together.
    pub fn origin(&self) -> String {
        match self {
            PushUrl::Http(url) => url.origin(),
            PushUrl::Broker(url) => url.origin(),
        }
    }

    /// Returns the URL as it was given, with its password.
    pub fn expose(&self) -> &str {
        match self {
            PushUrl::Http(url) => url.as_str(),
            PushUrl::Broker(url) => url.expose(),
        }
    }

    /// Returns the URL with `…` instead of its password.
    pub fn masked(&self) -> String {
        match self {
            PushUrl::Http(url) => url.as_str().to_owned(),
            PushUrl::Broker(url) => url.masked(),
        }
    }

    pub(super) fn as_broker(&self) -> Option<&BrokerUrl> {
        match self {
            PushUrl::Http(_) => None,
            PushUrl::Broker(url) => Some(url),
        }
    }
}

impl fmt::Debug for PushUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.masked().fmt(f)
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
