//! Servers that accept TLS.

use super::{PostgresServer, PostgresVersion};
use crate::servers::certificates;
use crate::servers::unprivileged::{give, private_folder};
use std::fs;

/// Which connections a server with TLS accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresTls {
    /// Connections with TLS, and without.
    Allowed,
    /// Connections with TLS only.
    Required,
    /// Connections with TLS and a certificate of the client only.
    ClientCertificate,
}

impl PostgresTls {
    /// Returns the contents of `pg_hba.conf`.
    fn rules(self) -> &'static str {
        match self {
            PostgresTls::Allowed => {
                "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
            }
            PostgresTls::Required => {
                "hostssl all all 127.0.0.1/32 trust\nhostssl replication all 127.0.0.1/32 trust\n"
            }
            PostgresTls::ClientCertificate => {
                "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n\
                 hostssl replication all 127.0.0.1/32 trust\n"
            }
        }
    }
}

impl PostgresServer {
    /// Starts a server that accepts TLS. Its folder contains the certificates: `ca.crt`, and
    /// `client.crt` with `client.key`.
    pub fn with_tls(version: &PostgresVersion, tls: PostgresTls, arguments: &[&str]) -> Self {
        let dir = private_folder("postgres");
        version.create_data(&dir);
        certificates::make(&dir);
        let data = dir.join("data");
        for name in ["ca.crt", "server.crt", "server.key"] {
            fs::copy(dir.join(name), data.join(name)).expect("files can be copied");
            give(&data.join(name));
        }
        fs::write(data.join("pg_hba.conf"), tls.rules()).expect("files can be written");
        let arguments = [&["-c", "ssl=on", "-c", "ssl_ca_file=ca.crt"], arguments].concat();
        Self::in_folder(version, dir, &arguments, Some(tls))
    }

    /// Returns the variables with which `psql` connects with TLS, if the server accepts it.
    pub(super) fn tls_environment(&self) -> Vec<(&'static str, String)> {
        let file = |name: &str| self.dir.join(name).display().to_string();
        let variables = [
            ("PGSSLMODE", "verify-full".to_owned()),
            ("PGSSLROOTCERT", file("ca.crt")),
            ("PGSSLCERT", file("client.crt")),
            ("PGSSLKEY", file("client.key")),
        ];
        self.tls.map(|_| variables.into()).unwrap_or_default()
    }
}
