//! Where a server is, as a URL tells it.

use super::options::ConnectError;
use hyper::Uri;
use hyper::header::HeaderValue;

/// What is allowed, for those who wrote something else.
const FORMS: &str = "http://host[:port][/path] or https://host[:port][/path]";

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) tls: bool,
    /// Without brackets, if it is an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// As the URL has it, for the header.
    pub(super) authority: HeaderValue,
    /// What all paths begin with: without a slash at its end.
    pub(super) prefix: String,
    /// The whole, for people.
    pub(super) url: String,
}

impl Address {
    pub(super) fn of(url: &str) -> Result<Address, ConnectError> {
        // It may have a secret in it: only what is known to be none is repeated.
        let wrong = |what: &str| Err(ConnectError::Address { reason: format!("{what}: {FORMS}") });
        if url.contains('#') {
            return wrong("there is a '#' in it");
        }
        let Ok(uri) = url.parse::<Uri>() else { return wrong("it cannot be read") };
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            Some(other) => return wrong(&format!("it begins with {other:?}")),
            None => return wrong("it does not begin with http or https"),
        };
        let Some(authority) = uri.authority() else { return wrong("there is no host in it") };
        if authority.as_str().contains('@') {
            return wrong("there is a user in it, and a server wants a token instead");
        }
        if uri.query().is_some() {
            return wrong("there is a '?' in it");
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return wrong("there is no host in it");
        }
        let port = match authority.as_str()[authority.host().len()..].strip_prefix(':') {
            None | Some("") => port,
            Some(text) => match text.parse() {
                Ok(port) if port != 0 => port,
                _ => return wrong("its port is none"),
            },
        };
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let scheme = if tls { "https" } else { "http" };
        let url = format!("{scheme}://{authority}{prefix}");
        let authority =
            HeaderValue::from_str(authority.as_str()).expect("what is in a URL can be in a header");
        Ok(Address { tls, host, port, authority, prefix, url })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_a_server_is() {
        for (url, tls, host, port, prefix, told) in [
            ("http://queue", false, "queue", 80, "", "http://queue"),
            ("https://queue/", true, "queue", 443, "", "https://queue"),
            ("http://10.0.0.1:8080/", false, "10.0.0.1", 8080, "", "http://10.0.0.1:8080"),
            ("http://queue:", false, "queue", 80, "", "http://queue:"),
            ("http://[::1]:80", false, "::1", 80, "", "http://[::1]:80"),
            ("https://a.example/b/c//", true, "a.example", 443, "/b/c", "https://a.example/b/c"),
        ] {
            let address = Address::of(url).expect(url);
            let found = (address.tls, &*address.host, address.port, &*address.prefix);
            assert_eq!((found, &*address.url), ((tls, host, port, prefix), told));
        }
    }

    #[test]
    fn what_is_no_url_of_a_server_is_refused_and_no_secret_repeated() {
        for (url, what) in [
            ("", "cannot be read"),
            ("queue", "does not begin with http"),
            ("queue:8080", "does not begin with http"),
            ("/queue", "does not begin with http"),
            ("redis://queue", "begins with \"redis\""),
            ("http://", "cannot be read"),
            ("http:///path", "cannot be read"),
            ("http://:80/", "no host"),
            ("http://user:hunter2@queue/", "there is a user"),
            ("http://queue?token=hunter2", "there is a '?'"),
            ("http://queue#hunter2", "there is a '#'"),
            ("http://queue:0", "its port is none"),
            ("http://queue:65536", "its port is none"),
            ("http://queue:hunter2", "its port is none"),
        ] {
            let told = Address::of(url).expect_err(url).to_string();
            assert!(told.contains(what), "{url}: {told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
}
