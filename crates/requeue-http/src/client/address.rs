//! The address of a server, parsed from its URL.

use super::options::HttpConnectError;
use hyper::Uri;
use hyper::header::HeaderValue;

/// The allowed forms, for error messages.
const FORMS: &str = "http://host[:port][/path] or https://host[:port][/path]";

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) tls: bool,
    /// Host name or IP address. An IPv6 address is without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Host and port as in the URL, for the `Host` header.
    pub(super) authority: HeaderValue,
    /// The prefix of all paths, without a slash at its end.
    pub(super) prefix: String,
    /// The whole URL, for messages.
    pub(super) url: String,
}

impl ServerAddress {
    pub(super) fn parse(url: &str) -> Result<ServerAddress, HttpConnectError> {
        // The URL may contain a secret, so an error repeats only its scheme.
        let wrong =
            |what: &str| Err(HttpConnectError::Address { reason: format!("{what}: {FORMS}") });
        if url.contains('#') {
            return wrong("it contains a '#'");
        }
        let Ok(uri) = url.parse::<Uri>() else { return wrong("it is not a URL") };
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            Some(other) => return wrong(&format!("it starts with {other:?}")),
            None => return wrong("it does not start with http or https"),
        };
        let Some(authority) = uri.authority() else { return wrong("it contains no host") };
        if authority.as_str().contains('@') {
            return wrong("it contains a user name; use a token instead");
        }
        if uri.query().is_some() {
            return wrong("it contains a '?'");
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return wrong("it contains no host");
        }
        let port = match authority.as_str()[authority.host().len()..].strip_prefix(':') {
            None | Some("") => port,
            Some(text) => match text.parse() {
                Ok(port) if port != 0 => port,
                _ => return wrong("its port is invalid"),
            },
        };
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let scheme = if tls { "https" } else { "http" };
        let url = format!("{scheme}://{authority}{prefix}");
        let authority = HeaderValue::from_str(authority.as_str())
            .expect("the characters of a URL are allowed in a header");
        Ok(ServerAddress { tls, host, port, authority, prefix, url })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        for (url, tls, host, port, prefix, shown) in [
            ("http://queue", false, "queue", 80, "", "http://queue"),
            ("https://queue/", true, "queue", 443, "", "https://queue"),
            ("http://10.0.0.1:8080/", false, "10.0.0.1", 8080, "", "http://10.0.0.1:8080"),
            ("http://queue:", false, "queue", 80, "", "http://queue:"),
            ("http://[::1]:80", false, "::1", 80, "", "http://[::1]:80"),
            ("https://a.example/b/c//", true, "a.example", 443, "/b/c", "https://a.example/b/c"),
        ] {
            let address = ServerAddress::parse(url).expect(url);
            let found = (address.tls, &*address.host, address.port, &*address.prefix);
            assert_eq!((found, &*address.url), ((tls, host, port, prefix), shown));
        }
    }

    #[test]
    fn invalid_urls_are_rejected_and_no_secret_is_repeated() {
        for (url, what) in [
            ("", "not a URL"),
            ("queue", "does not start with http"),
            ("queue:8080", "does not start with http"),
            ("/queue", "does not start with http"),
            ("redis://queue", "starts with \"redis\""),
            ("http://", "not a URL"),
            ("http:///path", "not a URL"),
            ("http://:80/", "contains no host"),
            ("http://user:hunter2@queue/", "contains a user name"),
            ("http://queue?token=hunter2", "contains a '?'"),
            ("http://queue#hunter2", "contains a '#'"),
            ("http://queue:0", "its port is invalid"),
            ("http://queue:65536", "its port is invalid"),
            ("http://queue:hunter2", "its port is invalid"),
        ] {
            let shown = ServerAddress::parse(url).expect_err(url).to_string();
            assert!(shown.contains(what), "{url}: {shown}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
