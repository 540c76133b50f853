//! Where Redis is, as a URL tells it.

use crate::error::ConnectError;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What is allowed, for those who wrote something else.
const FORMS: &str = "redis://[user[:password]@]host[:port][/database], \
    redis+unix:///path[?db=database], redis+cluster://host:port,host:port,… or \
    redis+sentinel://host:port,host:port,…/master[/database]; with rediss for TLS";

/// Where Redis is: one server, a Cluster, or whatever server some sentinels call their master.
///
/// | URL | what it means |
/// |---|---|
/// | `redis://[user[:password]@]host[:port][/database]` | one server |
/// | `redis+unix://[user[:password]@]/path[?db=database]` | one server, by its socket |
/// | `redis+cluster://[user[:password]@]host[:port],…` | a Cluster: some of its nodes |
/// | `redis+sentinel://[user[:password]@]host[:port],…/master[/database]` | a master, by its sentinels |
///
/// All but the second can begin with `rediss` and are then reached by TLS. The port is 6379 if
/// none is given, and a sentinel's 26379. What has a meaning in URLs (`/`, `?`, `%` …) is
/// written `%2F` and so on in users and passwords. The password is not shown by `Debug` and
/// `Display`.
///
/// ```
/// use requeue_redis::Address;
///
/// let address: Address = "redis://worker:secret@queue.internal/3".parse()?;
/// assert_eq!(address.to_string(), "redis://worker@queue.internal:6379/3");
/// # Ok::<(), requeue_redis::ConnectError>(())
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
    Server(Host),
    Socket(PathBuf),
    /// Some nodes, that know the others.
    Cluster(Vec<Host>),
    Sentinels(Vec<Host>, String),
}

/// A server on the network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    /// Without brackets, if it is an IPv6 address.
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// Who one is, to a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
}

/// A password. It is not shown by `Debug`.
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
    type Err = ConnectError;

    /// What is wrong is told without citing it: it could be part of a password.
    fn from_str(url: &str) -> Result<Self, ConnectError> {
        parse(url).map_err(|what| ConnectError::Address { reason: format!("{what}: {FORMS}") })
    }
}

fn parse(url: &str) -> Result<Address, String> {
    let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
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
                return Err("it does not name the master".to_owned());
            }
            (Topology::Sentinels(parse_hosts(hosts, 26379)?, decode(master)?), database)
        }
        "redis+unix" => {
            if !hosts.is_empty() || path.is_empty() {
                return Err("the path of a socket begins with /".to_owned());
            }
            let database = query.unwrap_or("db=0").strip_prefix("db=");
            let path = PathBuf::from(format!("/{}", decode(path)?));
            (Topology::Socket(path), database.ok_or("it asks for something else than db")?)
        }
        _ => return Err("its scheme is not known".to_owned()),
    };
    if query.is_some() && scheme != "redis+unix" {
        return Err("it has a query".to_owned());
    }
    let number = if database.is_empty() { Ok(0) } else { database.parse() };
    let database = number.map_err(|_| "its database is not a number")?;
    if matches!(topology, Topology::Cluster(_)) && database != 0 {
        return Err("a Cluster has no database but 0".to_owned());
    }
    if tls && !cfg!(feature = "tls") {
        return Err("this program was built without the feature tls".to_owned());
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
            let (name, rest) = host.split_once(']').ok_or("a [ of a host has no ]")?;
            if !rest.is_empty() && !rest.starts_with(':') {
                return Err("something other than a port follows a ]".to_owned());
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

/// Text in which `%2F` stands for `/`.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || "a % is not followed by two digits that make up UTF-8".to_owned();
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
    fn every_form_is_understood() {
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
        assert!(wrong("rediss+unix:///run/r").contains("scheme is not known"));
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn what_was_left_out_is_named() {
        assert!(wrong("rediss://h").contains("without the feature tls"));
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
    fn what_is_wrong_is_told_without_citing_it() {
        for (url, what) in [
            ("localhost:6379", "it has no scheme"),
            ("http://h", "its scheme is not known"),
            ("redis://", "a host is missing"),
            ("redis://:hunter2@", "a host is missing"),
            ("redis://h:0", "a port is not a number from 1 to 65535"),
            ("redis://h:70000", "a port is not a number from 1 to 65535"),
            // The / should have been written %2F.
            ("redis://u:hunter2/3@h", "a port is not a number from 1 to 65535"),
            ("redis://h/hunter2", "its database is not a number"),
            ("redis://h/-1", "its database is not a number"),
            ("redis://h?db=3", "it has a query"),
            ("redis://u:hunter2%@h", "a % is not followed by two digits"),
            ("redis://u:hunter2%fF@h", "a % is not followed by two digits that make up UTF-8"),
            ("redis://u:hunter2%ä@h", "a % is not followed by two digits"),
            ("redis://[::1:6379", "a [ of a host has no ]"),
            ("redis://[::1]6379", "something other than a port follows a ]"),
            ("redis+unix://h/path", "the path of a socket begins with /"),
            ("redis+unix:///path?database=3", "it asks for something else than db"),
            ("redis+cluster://a,,b", "a host is missing"),
            ("redis+cluster://a/1", "a Cluster has no database but 0"),
            ("redis+sentinel://a", "it does not name the master"),
        ] {
            let told = wrong(url);
            assert!(told.contains(what), "{url}: {told}");
            assert!(told.contains("redis+sentinel://host:port"), "{url}: {told}");
            assert!(!told.contains("hunter2"), "{url}: {told}");
        }
    }
}
