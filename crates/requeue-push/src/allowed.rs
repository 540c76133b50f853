//! The internal targets that an operator permits.

use crate::addresses::{embedded, forbidden, literal};
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The longest list of permitted targets. Each is compared with each address of a lookup.
const MAX_ENTRIES: usize = 1000;

/// The internal targets that deliveries may connect to, beside the public internet.
///
/// Each entry is one of:
///
/// | entry | permits |
/// |---|---|
/// | `hooks.internal` | every address to which this name resolves, on every port |
/// | `hooks.internal:8080` | the same, on this port |
/// | `10.1.2.3`, `fd00::1` | this address, whatever the name in the URL |
/// | `10.1.2.3:8080`, `[fd00::1]:8080` | the same, on this port |
/// | `10.0.0.0/8`, `fd00::/8` | every address in this range |
///
/// ```
/// use requeue_push::AllowedTargets;
///
/// let allowed: AllowedTargets = "hooks.internal:8080, 10.0.0.0/8".parse()?;
/// assert_eq!(allowed.to_string(), "hooks.internal:8080, 10.0.0.0/8");
/// let error = "10.0.0.0/33".parse::<AllowedTargets>().unwrap_err();
/// assert_eq!(error.to_string(), r#"allowed target "10.0.0.0/33": the length of the prefix is 0 to 32"#);
/// # Ok::<(), requeue_push::InvalidAllowedTarget>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedTargets {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    what: Permitted,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Permitted {
    /// A host name in lower case, without a dot at its end.
    Name(String),
    Range(IpNet),
}

/// An entry of [`AllowedTargets`] is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("allowed target {entry:?}: {reason}")]
pub struct InvalidAllowedTarget {
    /// The entry.
    pub entry: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl AllowedTargets {
    /// Returns an empty list: only the public internet is permitted.
    pub fn none() -> Self {
        AllowedTargets::default()
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: &str) -> Result<(), InvalidAllowedTarget> {
        let wrong = |reason| InvalidAllowedTarget { entry: entry.to_owned(), reason };
        if self.entries.len() >= MAX_ENTRIES {
            return Err(wrong("there are more than 1000 entries"));
        }
        self.entries.push(parse(entry).map_err(wrong)?);
        Ok(())
    }

    /// Checks whether a delivery to `host` and `port`, as they are in the URL, may connect to `address`.
    /// Returns why not.
    pub(crate) fn check(&self, host: &str, port: u16, address: IpAddr) -> Result<(), &'static str> {
        let Some(reason) = forbidden(address) else { return Ok(()) };
        let permits = |entry: &Entry| {
            entry.port.is_none_or(|permitted| permitted == port)
                && match &entry.what {
                    Permitted::Name(name) => host.strip_suffix('.').unwrap_or(host) == name,
                    Permitted::Range(range) => contains(range, address),
                }
        };
        if self.entries.iter().any(permits) { Ok(()) } else { Err(reason) }
    }
}

impl AllowedTargets {
    /// Whether an entry names this host and port of a message broker.
    ///
    /// A broker has to be listed even if its address is public: its client looks up names by itself and
    /// follows the addresses that the broker announces, so they cannot be checked one by one.
    pub fn lists(&self, host: &str, port: u16) -> bool {
        let address = literal(host);
        self.entries.iter().any(|entry| {
            entry.port.is_none_or(|permitted| permitted == port)
                && match (&entry.what, address) {
                    (Permitted::Name(name), _) => host.strip_suffix('.').unwrap_or(host) == name,
                    (Permitted::Range(range), Some(address)) => contains(range, address),
                    (Permitted::Range(_), None) => false,
                }
        })
    }
}

fn parse(entry: &str) -> Result<Entry, &'static str> {
    const PORT: &str = "the port is a number from 1 to 65535";
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(PORT),
    };
    if entry.contains("://") {
        return Err("write the host without a scheme");
    }
    if let Some((address, len)) = entry.split_once('/') {
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err("write a range like 10.0.0.0/8 or fd00::/8");
        };
        let reason = match address {
            IpAddr::V4(_) => "the length of the prefix is 0 to 32",
            IpAddr::V6(_) => "the length of the prefix is 0 to 128",
        };
        let range = len.parse().ok().and_then(|len| IpNet::new(address, len).ok()).ok_or(reason)?;
        if range.trunc() != range {
            return Err("bits after the prefix are set; write the first address of the range");
        }
        return Ok(Entry { what: Permitted::Range(range), port: None });
    }
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Ok(Entry { what: Permitted::Range(address.into()), port: None });
    }
    if let Some(rest) = entry.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or("the bracket is not closed")?;
        let Ok(address @ IpAddr::V6(_)) = address.parse() else {
            return Err("what is in brackets is not an IPv6 address");
        };
        let port = match rest.strip_prefix(':') {
            Some(text) => port(text)?,
            None if rest.is_empty() => None,
            None => return Err("write a port like [fd00::1]:8080"),
        };
        return Ok(Entry { what: Permitted::Range(address.into()), port });
    }
    let (host, port) = match entry.split_once(':') {
        Some((host, text)) => (host, port(text)?),
        None => (entry, None),
    };
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Entry { what: Permitted::Range(address.into()), port });
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(allowed) {
        return Err("write a host name, host:port, an IP address or a range like 10.0.0.0/8");
    }
    if literal(&name).is_some() {
        return Err("write an IP address with four decimal numbers");
    }
    Ok(Entry { what: Permitted::Name(name), port })
}

/// Whether a range contains an address. An IPv4 range contains the IPv6 forms of its addresses.
fn contains(range: &IpNet, address: IpAddr) -> bool {
    let inner = match address {
        IpAddr::V6(address) => embedded(address).map(IpAddr::V4),
        IpAddr::V4(_) => None,
    };
    range.contains(&address) || inner.is_some_and(|inner| range.contains(&inner))
}

impl FromStr for AllowedTargets {
    type Err = InvalidAllowedTarget;

    /// Parses entries that are separated by commas.
    fn from_str(text: &str) -> Result<Self, InvalidAllowedTarget> {
        let mut allowed = AllowedTargets::none();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            allowed.add(entry)?;
        }
        Ok(allowed)
    }
}

impl fmt::Display for AllowedTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Entry { what, port }) in self.entries.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match what {
                Permitted::Name(name) => f.write_str(name)?,
                Permitted::Range(range) if range.prefix_len() < range.max_prefix_len() => {
                    write!(f, "{range}")?;
                }
                Permitted::Range(IpNet::V6(one)) if port.is_some() => {
                    write!(f, "[{}]", one.addr())?
                }
                Permitted::Range(one) => write!(f, "{}", one.addr())?,
            }
            if let Some(port) = port {
                write!(f, ":{port}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(allowed: &str, host: &str, port: u16, address: &str) -> bool {
        let allowed: AllowedTargets = allowed.parse().expect(allowed);
        assert_eq!(allowed.to_string().parse(), Ok(allowed.clone()));
        allowed.check(host, port, address.parse().expect(address)).is_ok()
    }

    #[test]
    fn an_entry_permits_what_it_names_and_no_more() {
        assert!(permits("", "example.com", 443, "8.8.8.8"));
        assert!(!permits("", "example.com", 443, "10.0.0.1"));
        assert!(permits("hooks.internal", "hooks.internal", 80, "10.0.0.1"));
        assert!(permits("Hooks.Internal.", "hooks.internal.", 80, "10.0.0.1"));
        assert!(!permits("hooks.internal", "a.hooks.internal", 80, "10.0.0.1"));
        assert!(permits("hooks.internal:8080", "hooks.internal", 8080, "10.0.0.1"));
        assert!(!permits("hooks.internal:8080", "hooks.internal", 80, "10.0.0.1"));
        assert!(permits("10.0.0.1", "any.example", 80, "10.0.0.1"));
        assert!(!permits("10.0.0.1", "any.example", 80, "10.0.0.2"));
        assert!(permits("10.0.0.1:80", "any.example", 80, "10.0.0.1"));
        assert!(!permits("10.0.0.1:80", "any.example", 81, "10.0.0.1"));
        assert!(permits("[fd00::1]:80", "any.example", 80, "fd00::1"));
        assert!(!permits("[fd00::1]:80", "any.example", 81, "fd00::1"));
        assert!(permits("fd00::1, 127.0.0.1", "localhost", 81, "127.0.0.1"));
        assert!(permits("10.0.0.0/8", "any.example", 80, "10.255.0.1"));
        assert!(!permits("10.0.0.0/8", "any.example", 80, "127.0.0.1"));
        assert!(permits("10.0.0.0/8", "any.example", 80, "::ffff:10.2.3.4"));
        assert!(!permits("10.0.0.0/8", "any.example", 80, "::ffff:127.0.0.1"));
        assert!(permits("0.0.0.0/0", "any.example", 80, "169.254.169.254"));
        assert!(permits("fd00::/8", "any.example", 80, "fdff::1"));
        assert!(!permits("fd00::/8", "any.example", 80, "fe80::1"));
        assert!(permits("::/0", "any.example", 80, "::1"));
        assert!(!permits("::/0", "any.example", 80, "127.0.0.1"));
    }

    #[test]
    fn a_broker_has_to_be_listed() {
        let allowed: AllowedTargets = "rabbit:5672, nats, 10.0.0.0/8, 127.0.0.1:1".parse().unwrap();
        for (host, port, listed) in [
            ("rabbit", 5672, true),
            ("rabbit", 5671, false),
            ("nats", 1, true),
            ("10.1.2.3", 1, true),
            ("127.0.0.1", 1, true),
            ("127.0.0.1", 2, false),
            ("8.8.8.8", 5672, false),
            ("example.com", 5672, false),
        ] {
            assert_eq!(allowed.lists(host, port), listed, "{host}:{port}");
        }
    }

    #[test]
    fn invalid_entries_are_rejected() {
        for (entry, expected) in [
            ("10.0.0.0/x", "0 to 32"),
            ("fd00::/129", "0 to 128"),
            ("10.0.0.1/8", "bits after the prefix"),
            ("host/8", "write a range like"),
            ("host:0", "the port"),
            ("host:http", "the port"),
            ("[::1", "bracket"),
            ("[10.0.0.1]:80", "not an IPv6 address"),
            ("[::1]80", "write a port like"),
            ("http://host", "without a scheme"),
            ("a b", "write a host name"),
            ("*", "write a host name"),
            ("127.1", "four decimal numbers"),
            ("0x7f000001:80", "four decimal numbers"),
        ] {
            let error = entry.parse::<AllowedTargets>().expect_err(entry).to_string();
            assert!(error.contains(expected) && error.contains(&format!("{entry:?}")), "{error}");
        }
    }
}
