//! Which IP addresses a delivery may connect to.
//!
//! The URL of a push setting is chosen by users of the API, who must not reach the network of the node
//! through it (server-side request forgery, SSRF): not the services of the node itself, not the machines
//! beside it, and not the metadata service of its cloud. Only addresses of the public internet are
//! allowed, unless the operator [permits](crate::AllowedTargets) more.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

/// The ranges that are not part of the public internet, and their names in messages.
const RANGES: [(&str, &str); 30] = [
    ("0.0.0.0/8", "an address of this network"),
    ("10.0.0.0/8", "a private address"),
    ("100.64.0.0/10", "a shared address (CGNAT)"),
    ("127.0.0.0/8", "a loopback address"),
    // A public address that leads to the platform that runs a virtual machine: Azure's agent, DNS and probes.
    ("168.63.129.16/32", "an address of the cloud platform"),
    ("169.254.0.0/16", "a link-local address"),
    ("172.16.0.0/12", "a private address"),
    ("192.0.0.0/24", "a reserved address"),
    ("192.0.2.0/24", "an address for documentation"),
    ("192.88.99.0/24", "a reserved address"),
    ("192.168.0.0/16", "a private address"),
    ("198.18.0.0/15", "an address for benchmarks"),
    ("198.51.100.0/24", "an address for documentation"),
    ("203.0.113.0/24", "an address for documentation"),
    ("224.0.0.0/4", "a multicast address"),
    // Includes the broadcast address.
    ("240.0.0.0/4", "a reserved address"),
    ("::/128", "the unspecified address"),
    ("::1/128", "a loopback address"),
    ("64:ff9b:1::/48", "an address of a local translator (NAT64)"),
    ("100::/64", "a discard-only address"),
    // Protocol assignments. Teredo (2001::/32) is among them: it embeds an IPv4 address, and nothing public
    // uses it any more.
    ("2001::/23", "an address of a protocol such as Teredo"),
    ("2001:db8::/32", "an address for documentation"),
    ("3fff::/20", "an address for documentation"),
    ("5f00::/16", "an address for segment routing"),
    ("fc00::/7", "a private address (unique local)"),
    ("fe80::/10", "a link-local address"),
    ("fec0::/10", "a site-local address"),
    ("ff00::/8", "a multicast address"),
    // What is not global unicast (2000::/3) and not named above was never assigned.
    ("4000::/2", "an unassigned address"),
    ("8000::/1", "an unassigned address"),
];

static FORBIDDEN: LazyLock<Vec<(IpNet, &str)>> = LazyLock::new(|| {
    let parsed = |(range, name): (&str, _)| (range.parse().expect("a test parses them"), name);
    RANGES.into_iter().map(parsed).collect()
});

/// Returns why an address may not be connected to, or `None` if it is an address of the public internet.
pub(crate) fn forbidden(address: IpAddr) -> Option<&'static str> {
    let address = match address {
        IpAddr::V6(outer) => embedded(outer).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    FORBIDDEN.iter().find(|(range, _)| range.contains(&address)).map(|(_, name)| *name)
}

/// Returns the IPv4 address that packets to an IPv6 address end up at: mapped (`::ffff:a.b.c.d`),
/// compatible (`::a.b.c.d`), translated (`::ffff:0:a.b.c.d`), NAT64 (`64:ff9b::a.b.c.d`) or 6to4 (`2002:…`).
pub(crate) fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let joined = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(joined(high, low)),
        _ => None,
    }
}

/// Returns the IP address that a host of a URL is, also in the odd forms that `inet_aton` and browsers
/// accept: `2130706433`, `0x7f.1`, `0177.0.0.1`. `None` if it is a name.
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(address);
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let numbers = host.split('.').map(number).collect::<Option<Vec<u32>>>()?;
    let (last, first) = numbers.split_last()?;
    if first.len() > 3 || first.iter().any(|number| *number > 255) {
        return None;
    }
    // The last number fills all bytes that the others leave.
    let shift = 8 * (first.len() as u32);
    if u64::from(*last) >= 1 << (32 - shift) {
        return None;
    }
    let front = first.iter().enumerate().map(|(i, number)| number << (24 - 8 * i as u32));
    Some(IpAddr::V4(Ipv4Addr::from_bits(front.sum::<u32>() | last)))
}

/// Reads a decimal, octal (`017`) or hexadecimal (`0xf`) number.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some("") => return Some(0),
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    is_number.then(|| u32::from_str_radix(digits, radix).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_forbidden(address: &str) -> bool {
        forbidden(address.parse().expect(address)).is_some()
    }

    #[test]
    fn addresses_inside_of_networks_are_forbidden() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "169.254.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            // IPv6
            "::",
            "::1",
            "fc00::1",
            "fdff::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "5f00::1",
            "4000::1",
            "8000::1",
            "c000::1",
            "64:ff9b:1::1",
            "64:ff9b:1::8.8.8.8",
            // IPv4 inside of IPv6
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "::10.1.2.3",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2002:a9fe:a9fe::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        ] {
            assert!(is_forbidden(address), "{address}");
        }
    }

    #[test]
    fn addresses_of_the_internet_are_allowed() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "2001:4860:4860::8888",
            "2001:200::1",
            "2003::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(!is_forbidden(address), "{address}");
        }
    }

    #[test]
    fn every_range_is_bounded_where_the_registry_says() {
        for (range, name) in &*FORBIDDEN {
            assert_eq!(range.trunc(), *range, "{name}: bits beyond the prefix");
            assert!(forbidden(range.broadcast()).is_some(), "{name}");
        }
    }

    #[test]
    fn odd_forms_of_addresses_are_recognized() {
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f000001",
            "017700000001",
            "0x7f.1",
            "127.1",
            "127.0.1",
            "0177.0.0.1",
            "0x7f.0x0.0x0.0x1",
            "127.0.0.1.",
            "0x7f.0.1",
        ] {
            assert_eq!(literal(host), Some("127.0.0.1".parse().unwrap()), "{host}");
        }
        assert_eq!(literal("0"), Some("0.0.0.0".parse().unwrap()));
        assert_eq!(literal("0x"), Some("0.0.0.0".parse().unwrap()));
        assert_eq!(literal("::1"), Some("::1".parse().unwrap()));
        for host in [
            "localhost",
            "example.com",
            "1.2.3.4.5",
            "256.1.1.1",
            "4294967296",
            "1.2.3.256",
            "089.1.1.1",
            "1..2",
            "",
            ".",
            "0x7g",
            "deadbeef",
            "1.16777216",
            "-1",
            "+1",
        ] {
            assert_eq!(literal(host), None, "{host}");
        }
    }
}
