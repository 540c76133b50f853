//! The URL of a database, with the parameters about TLS that the driver does not know.

use crate::database::Tls;
use crate::error::PostgresConnectError;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// A URL, split into what the driver knows and what we add.
pub(crate) struct Url {
    /// The URL without the parameters below.
    pub(crate) rest: String,
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    tls: TlsFiles,
    mode: Option<String>,
}

/// The parameters of a URL that are about certificates.
#[derive(Debug, Default)]
pub(crate) struct TlsFiles {
    pub(crate) root: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
    /// Whether the certificate of the server is checked, and its name.
    pub(crate) verifies: bool,
    pub(crate) verifies_name: bool,
}

impl Url {
    /// Takes the TLS parameters out of the URL, which the driver does not know.
    pub(crate) fn parse(url: &str) -> Result<Url, PostgresConnectError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            let reason = "it must begin with postgres:// or postgresql://".to_owned();
            return Err(PostgresConnectError::Url { reason });
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut tls, mut mode, mut rest) = (TlsFiles::default(), None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value).ok_or_else(|| PostgresConnectError::Url {
                reason: format!("the parameter {name} is not valid percent-encoding"),
            })?;
            match name {
                "sslrootcert" => tls.root = Some(value),
                "sslcert" => tls.certificate = Some(value),
                "sslkey" => tls.key = Some(value),
                "sslmode" => mode = Some(value),
                _ => rest.push(pair),
            }
        }
        match mode.as_deref() {
            None | Some("disable" | "prefer" | "require") => {}
            Some("verify-ca") => tls.verifies = true,
            Some("verify-full") => (tls.verifies, tls.verifies_name) = (true, true),
            Some(other) => {
                return Err(PostgresConnectError::Url {
                    reason: format!(
                        "sslmode is {other:?}; it must be disable, prefer, require, verify-ca or verify-full"
                    ),
                });
            }
        }
        // As libpq does: with a root certificate, `require` verifies it.
        tls.verifies |= tls.root.is_some();
        let rest =
            if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        Ok(Url { rest, tls, mode })
    }

    /// Sets the mode, and returns what makes TLS connections.
    pub(crate) fn tls(self, config: &mut Config) -> Result<Tls, PostgresConnectError> {
        match self.mode.as_deref() {
            Some("disable") => config.ssl_mode(SslMode::Disable),
            None | Some("prefer") => config.ssl_mode(SslMode::Prefer),
            Some(_) => config.ssl_mode(SslMode::Require),
        };
        #[cfg(feature = "tls")]
        return crate::tls::connector(&self.tls);
        #[cfg(not(feature = "tls"))]
        {
            if config.get_ssl_mode() == SslMode::Require {
                return Err(PostgresConnectError::Tls {
                    reason: "this build has no TLS: enable the feature `tls`".to_owned(),
                });
            }
            Ok(tokio_postgres::NoTls)
        }
    }
}

/// Decodes percent-encoding.
fn decoded(text: &str) -> Option<String> {
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
}

/// Returns the names of the servers, for error messages.
pub(crate) fn addresses(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(n, host)| {
        let port = ports.get(n).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => path.display().to_string(),
        }
    });
    hosts.collect::<Vec<_>>().join(", ")
}
