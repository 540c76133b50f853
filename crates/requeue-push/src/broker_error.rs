//! Errors of message brokers, as whoever may set the URL of a broker reads them.
//!
//! The client libraries report what brokers send, and the addresses behind their names. So an error is cut, and
//! internal addresses in it are hidden, as those of webhooks are.

use crate::BrokerUrl;
use crate::addresses::{forbidden, literal};
use crate::encode::excerpt;
use std::net::IpAddr;

/// The longest error, in bytes.
const MAX_ERROR_LEN: usize = 1000;

/// What stands in place of an internal address.
const HIDDEN: &str = "(internal address)";

impl BrokerUrl {
    /// Returns an error of a client of this broker for people: at most 1000 visible ASCII characters, in which
    /// internal addresses are hidden, unless the URL contains them.
    ///
    /// ```
    /// use requeue_push::BrokerUrl;
    ///
    /// let url = BrokerUrl::parse("kafka://kafka.internal:9092/orders")?;
    /// let error = url.error_text("Connect to ipv4#10.1.2.3:9092 failed: Connection refused");
    /// assert_eq!(error, "Connect to ipv4#(internal address):9092 failed: Connection refused");
    /// # Ok::<(), requeue_push::InvalidPush>(())
    /// ```
    pub fn error_text(&self, error: &str) -> String {
        let known: Vec<IpAddr> =
            self.hosts().iter().filter_map(|(host, _)| literal(host)).collect();
        let is_hidden = |address| forbidden(address).is_some() && !known.contains(&address);
        excerpt(without_addresses(error, is_hidden).as_bytes(), MAX_ERROR_LEN)
    }
}

/// Returns a text without the IP addresses for which `is_hidden` holds.
fn without_addresses(text: &str, is_hidden: impl Fn(IpAddr) -> bool) -> String {
    let shown = |text: &str| -> Option<String> {
        // What ends a sentence or begins a list is not a part of the address.
        let end = text.trim_end_matches(['.', ':']);
        let address =
            [text, end].into_iter().find_map(|text| Some((text, text.parse::<IpAddr>().ok()?)));
        let (address, ip) = address?;
        Some(format!("{}{}", if is_hidden(ip) { HIDDEN } else { address }, &text[address.len()..]))
    };
    let of_address = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':');
    let (mut result, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let is_address = of_address(first);
        let end = rest.find(|c| of_address(c) != is_address).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        match shown(piece) {
            Some(shown) => result.push_str(&shown),
            // Perhaps an IPv4 address with a port, or after a name and a colon.
            None => {
                let parts =
                    piece.split(':').map(|part| shown(part).unwrap_or_else(|| part.to_owned()));
                result.push_str(&parts.collect::<Vec<_>>().join(":"));
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str, error: &str) -> String {
        BrokerUrl::parse(url).unwrap().error_text(error)
    }

    #[test]
    fn internal_addresses_are_hidden_unless_the_url_contains_them() {
        let reason = "ssl://10.0.0.7:9092/1: Connect to ipv4#10.0.0.7:9092 failed: refused";
        assert_eq!(
            shown("kafka://kafka.internal:9092/orders", reason),
            "ssl://(internal address):9092/1: Connect to ipv4#(internal address):9092 failed: refused"
        );
        assert_eq!(shown("kafka://10.0.0.7:9092/orders", reason), reason);
        assert_ne!(shown("kafka://10.0.0.70:9092/orders", reason), reason);
        for (error, expected) in [
            ("MOVED 7 192.168.1.2:7001", "MOVED 7 (internal address):7001"),
            ("node:192.168.1.2: refused", "node:(internal address): refused"),
            ("at [fd00::1]:9092.", "at [(internal address)]:9092."),
            ("fe80::1%eth0, ::ffff:10.0.0.1.", "(internal address)%eth0, (internal address)."),
            ("8.8.8.8:53 and 2606:4700::1111", "8.8.8.8:53 and 2606:4700::1111"),
            ("a dead::: cafe 10.0 1.2.3: b:1/2", "a dead::: cafe 10.0 1.2.3: b:1/2"),
        ] {
            assert_eq!(shown("kafka://kafka.internal:9092/orders", error), expected);
        }
    }

    #[test]
    fn an_error_is_cut_to_visible_characters() {
        let error = shown("nats://a/x", &format!("\u{1b}[31m\n{}", "x".repeat(100_000)));
        assert!(error.starts_with("\\u{1b}[31m\\nxxx") && error.len() == MAX_ERROR_LEN, "{error}");
    }
}
