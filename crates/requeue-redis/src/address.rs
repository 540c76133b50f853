//! Parsing of Redis URLs.

use crate::error::RedisConnectError;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The supported forms, for error messages.
const FORMS: &str = "redis://[user[:password]@]host[:port][/database], \
    redis+unix:///path[?db=database], redis+cluster://host:port,host:port,… or \
    redis+sentinel://host:port,host:port,…/master[/database]; with rediss for TLS";

/// The address of a Redis deployment, parsed from a URL: a single server, a Cluster, or the master
/// that a group of sentinels reports.
///
/// | URL | meaning |
/// |---|---|
/// | `redis://[user[:password]@]host[:port][/database]` | a single server |
/// | `redis+unix://[user[:password]@]/path[?db=database]` | a single server, over a Unix socket |
/// | `redis+cluster://[user[:password]@]host[:port],…` | a Cluster; one or more of its nodes |
/// | `redis+sentinel://[user[:password]@]host[:port],…/master[/database]` | the master with this name, found through sentinels |
///
/// All forms except `redis+unix` can begin with `rediss` to use TLS. The default port is 6379, or
/// 26379 for sentinels. In user names and passwords, characters that have a meaning in URLs (`/`,
/// `?`, `%` …) must be percent-encoded, for example `%2F` for `/`. `Debug` and `Display` do not show
/// the password.
///
/// ```
/// use requeue_redis::Address;
///
/// let address: Address = "redis://worker:secret@queue.internal/3".parse()?;
/// assert_eq!(address.to_string(), "redis://worker@queue.internal:6379/3");
/// # Ok::<(), requeue_redis::RedisConnectError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) topology: Topology,
    pub(crate) tls: bool,
    pub(crate) login: Login,
    pub(crate) database: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topology {
    /// A single server on the network.
    Server(Host),
    /// A single server behind a Unix socket.
    Socket(PathBuf),
    /// Some nodes of the Cluster. They know the other nodes.
    Cluster(Vec<Host>),
    /// The sentinels, and the name of the master.
    Sentinels(Vec<Host>, String),
}

/// A server on the network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    /// A host name or IP address; an IPv6 address is without brackets.
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// The credentials for a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
}

/// A password. `Debug` does not show it.
///
/// ```
/// use requeue_redis::Secret;
///
/// assert_eq!(format!("{:?}", Secret::from("hunter2")), "Secret(…)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(crate) String);

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Secret(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl FromStr for Address {
    type Err = RedisConnectError;

    /// Fails with [`RedisConnectError::Address`] if the URL is invalid. The error does not quote the URL,
    /// because the invalid part could belong to the password.
    fn from_str(url: &str) -> Result<Self, RedisConnectError> {
        parse(url).map_err(|what| RedisConnectError::Address { reason: format!("{what}: {FORMS}") })
    }
}

fn parse(url: &str) -> Result<Address, String> {
    let (scheme, rest) = url.split_once("://").ok_or("the scheme is missing")?;
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, q)| (rest, Some(q)));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (parse_login(login)?, hosts),
        None => (Login::default(), authority),
    };
    let tls = scheme == "rediss" || scheme.starts_with("rediss+");
    let (topology, database) = match scheme {
        "redis" | "rediss" => (Topology::Server(parse_host(hosts, 6379)?), path),
        "redis+cluster" | "rediss+cluster" => (Topology::Cluster(parse_hosts(hosts, 6379)?), path),
        "redis+sentinel" | "rediss+sentinel" => {
            let (master, database) = path.split_once('/').unwrap_or((path, ""));
            if master.is_empty() {
                return Err("the name of the master is missing".to_owned());
            }
            (Topology::Sentinels(parse_hosts(hosts, 26379)?, decode(master)?), database)
        }
        "redis+unix" => {
            if !hosts.is_empty() || path.is_empty() {
                return Err("a socket URL must contain an absolute path and no host".to_owned());
            }
            let database = query.unwrap_or("db=0").strip_prefix("db=");
            let path = PathBuf::from(format!("/{}", decode(path)?));
            (Topology::Socket(path), database.ok_or("the only supported query parameter is db")?)
        }
        _ => return Err("unknown scheme".to_owned()),
    };
    if query.is_some() && scheme != "redis+unix" {
        return Err("this scheme supports no query parameters".to_owned());
    }
    let number = if database.is_empty() { Ok(0) } else { database.parse() };
    let database = number.map_err(|_| "the database is not a number")?;
    if matches!(topology, Topology::Cluster(_)) && database != 0 {
        return Err("a Cluster has only database 0".to_owned());
    }
    if tls && !cfg!(feature = "tls") {
        return Err("this program was built without the feature `tls`".to_owned());
    }
    Ok(Address { topology, tls, login, database })
}

fn parse_login(login: &str) -> Result<Login, String> {
    let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
    let user = (!user.is_empty()).then(|| decode(user)).transpose()?;
    let password = password.map(decode).transpose()?.map(Secret);
    Ok(Login { user, password })
}

fn parse_hosts(hosts: &str, port: u16) -> Result<Vec<Host>, String> {
    hosts.split(',').map(|host| parse_host(host, port)).collect()
}

fn parse_host(host: &str, default: u16) -> Result<Host, String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(host) => {
            let (name, rest) = host.split_once(']').ok_or("a host begins with [ but has no ]")?;
            if !rest.is_empty() && !rest.starts_with(':') {
                return Err("only a port may follow ]".to_owned());
            }
            (name, rest.strip_prefix(':'))
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        return Err("a host is missing".to_owned());
    }
    let port = port.map_or(Ok(default), str::parse);
    match port {
        Ok(port) if port > 0 => Ok(Host { name: name.to_owned(), port }),
        _ => Err("a port is not a number from 1 to 65535".to_owned()),
    }
}

/// Decodes percent-encoded text.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || {
        "invalid percent-encoding: % must be followed by two hexadecimal digits, and the result must be UTF-8".to_owned()
    };
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.login.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let tls = if self.tls { "s" } else { "" };
        let list = |hosts: &[Host]| hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(",");
        match &self.topology {
            Topology::Server(host) => write!(f, "redis{tls}://{user}{host}/{}", self.database),
            Topology::Socket(path) => {
                write!(f, "redis+unix://{user}{}?db={}", path.display(), self.database)
            }
            Topology::Cluster(hosts) => write!(f, "redis{tls}+cluster://{user}{}", list(hosts)),
            Topology::Sentinels(hosts, master) => {
                let hosts = list(hosts);
                write!(f, "redis{tls}+sentinel://{user}{hosts}/{master}/{}", self.database)
            }
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        url.parse::<Address>().unwrap_or_else(|error| panic!("{url}: {error}")).to_string()
    }

    fn wrong(url: &str) -> String {
        url.parse::<Address>().expect_err(url).to_string()
    }

    #[test]
    fn every_form_is_parsed() {
        assert_eq!(shown("redis://localhost"), "redis://localhost:6379/0");
        assert_eq!(shown("redis://h:1/2"), "redis://h:1/2");
        assert_eq!(shown("redis://[::1]:7000/"), "redis://[::1]:7000/0");
        assert_eq!(shown("redis://[::1]"), "redis://[::1]:6379/0");
        assert_eq!(shown("redis+unix:///run/redis.sock"), "redis+unix:///run/redis.sock?db=0");
        assert_eq!(shown("redis+unix://u:p@/run/r?db=4"), "redis+unix://u@/run/r?db=4");
        assert_eq!(shown("redis+cluster://a:1,b"), "redis+cluster://a:1,b:6379");
        assert_eq!(shown("redis+sentinel://a,b:2/m"), "redis+sentinel://a:26379,b:2/m/0");
        assert_eq!(shown("redis+sentinel://a/m/5"), "redis+sentinel://a:26379/m/5");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn every_form_on_the_network_can_have_tls() {
        assert_eq!(shown("rediss://h"), "rediss://h:6379/0");
        assert_eq!(shown("rediss+cluster://h"), "rediss+cluster://h:6379");
        assert_eq!(shown("rediss+sentinel://h/m"), "rediss+sentinel://h:26379/m/0");
        assert!(wrong("rediss+unix:///run/r").contains("unknown scheme"));
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn a_missing_feature_is_named() {
        assert!(wrong("rediss://h").contains("without the feature `tls`"));
    }

    #[test]
    fn users_and_passwords_are_read_and_not_shown() {
        let login = |url: &str| url.parse::<Address>().map(|address| address.login).unwrap();
        let is = |user: Option<&str>, password: Option<&str>| Login {
            user: user.map(str::to_owned),
            password: password.map(Secret::from),
        };
        assert_eq!(login("redis://h"), is(None, None));
        assert_eq!(login("redis://u@h"), is(Some("u"), None));
        assert_eq!(login("redis://:p@h"), is(None, Some("p")));
        assert_eq!(login("redis://u:p:q@r@h"), is(Some("u"), Some("p:q@r")));
        assert_eq!(login("redis://u:%2f%C3%A4%25@h"), is(Some("u"), Some("/ä%")));
        let address: Address = "redis+sentinel://u:hunter2@h/m".parse().unwrap();
        assert!(!format!("{address} {address:?} {:?}", address.login).contains("hunter2"));
    }

    #[test]
    fn errors_do_not_quote_the_url() {
        for (url, what) in [
            ("localhost:6379", "the scheme is missing"),
            ("http://h", "unknown scheme"),
            ("redis://", "a host is missing"),
            ("redis://:hunter2@", "a host is missing"),
            ("redis://h:0", "a port is not a number from 1 to 65535"),
            ("redis://h:70000", "a port is not a number from 1 to 65535"),
            // The / should have been written %2F.
            ("redis://u:hunter2/3@h", "a port is not a number from 1 to 65535"),
            ("redis://h/hunter2", "the database is not a number"),
            ("redis://h/-1", "the database is not a number"),
            ("redis://h?db=3", "this scheme supports no query parameters"),
            ("redis://u:hunter2%@h", "invalid percent-encoding"),
            (
                "redis://u:hunter2%fF@h",
                "invalid percent-encoding: % must be followed by two hexadecimal digits, and the result must be UTF-8",
            ),
            ("redis://u:hunter2%ä@h", "invalid percent-encoding"),
            ("redis://[::1:6379", "a host begins with [ but has no ]"),
            ("redis://[::1]6379", "only a port may follow ]"),
            ("redis+unix://h/path", "a socket URL must contain an absolute path and no host"),
            ("redis+unix:///path?database=3", "the only supported query parameter is db"),
            ("redis+cluster://a,,b", "a host is missing"),
            ("redis+cluster://a/1", "a Cluster has only database 0"),
            ("redis+sentinel://a", "the name of the master is missing"),
        ] {
            let error = wrong(url);
            assert!(error.contains(what), "{url}: {error}");
            assert!(error.contains("redis+sentinel://host:port"), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
    }
}
