//! Streams to a server: TCP, TLS or a Unix socket.

use crate::address::Host;
use redis::aio::AsyncStream;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use tokio::net::TcpStream;

pub(super) use tls::Tls;

pub(super) type Stream = Pin<Box<dyn AsyncStream + Send>>;

/// The address of one server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Endpoint {
    Host(Host),
    Socket(PathBuf),
}

impl Endpoint {
    pub(super) async fn open(&self, tls: Option<&Tls>) -> io::Result<Stream> {
        let host = match self {
            Endpoint::Host(host) => host,
            Endpoint::Socket(path) => return open_socket(path).await,
        };
        let stream = TcpStream::connect((&*host.name, host.port)).await?;
        // A call is one small write, and its caller waits for the reply.
        stream.set_nodelay(true)?;
        match tls {
            Some(tls) => tls.begin(&host.name, stream).await,
            None => Ok(Box::pin(stream)),
        }
    }
}

#[cfg(unix)]
async fn open_socket(path: &PathBuf) -> io::Result<Stream> {
    Ok(Box::pin(tokio::net::UnixStream::connect(path).await?))
}

#[cfg(not(unix))]
async fn open_socket(_: &PathBuf) -> io::Result<Stream> {
    Err(io::Error::other("Unix sockets are not supported on this system"))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Host(host) => host.fmt(f),
            Endpoint::Socket(path) => path.display().fmt(f),
        }
    }
}

#[cfg(feature = "tls")]
mod tls {
    use super::Stream;
    use crate::error::RedisConnectError;
    use crate::options::Options;
    use std::io;
    use std::path::Path;
    use std::sync::Arc;
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::{Error, PemObject};
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    /// The trusted certificates, and the certificate of the client.
    #[derive(Clone)]
    pub(in crate::connections) struct Tls(TlsConnector);

    impl Tls {
        /// Reads the certificates and the key. Fails if a file of the options is invalid.
        pub(in crate::connections) fn new(options: &Options) -> Result<Tls, RedisConnectError> {
            let mut trusted = RootCertStore::empty();
            // A system certificate that cannot be parsed is skipped. A connection that needs it
            // fails later, with a reason.
            trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            for certificate in certificates(options.ca_file.as_deref())? {
                let added = trusted.add(certificate);
                added
                    .map_err(|error| invalid_file("ca_file", options.ca_file.as_deref(), error))?;
            }
            // The provider is explicit: the program may have installed another one, or none.
            let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("the provider supports the default versions")
                .with_root_certificates(trusted);
            let config = match &options.key_file {
                None => config.with_no_client_auth(),
                Some(file) => {
                    let own = certificates(options.certificate_file.as_deref())?;
                    let key = PrivateKeyDer::from_pem_file(file)
                        .map_err(|error| invalid_file("key_file", Some(file), error))?;
                    config
                        .with_client_auth_cert(own, key)
                        .map_err(|error| invalid_file("key_file", Some(file), error))?
                }
            };
            Ok(Tls(TlsConnector::from(Arc::new(config))))
        }

        pub(super) async fn begin(&self, host: &str, stream: TcpStream) -> io::Result<Stream> {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let connected = self.0.connect(name, stream).await;
            let connected = connected.map_err(|error| match error.to_string() {
                // webpki's name for it, which rustls passes on as it is.
                reason if reason.contains("CaUsedAsEndEntity") => io::Error::other(format!(
                    "the certificate of {host} is that of a CA: sign a certificate for the server \
                     with it, or create it with basicConstraints=CA:FALSE"
                )),
                _ => error,
            });
            Ok(Box::pin(connected?))
        }
    }

    fn certificates(
        file: Option<&Path>,
    ) -> Result<Vec<CertificateDer<'static>>, RedisConnectError> {
        let Some(path) = file else { return Ok(Vec::new()) };
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let read: Vec<_> =
            read.map_err(|error: Error| invalid_file("certificates", file, error))?;
        match read.is_empty() {
            true => Err(invalid_file("certificates", file, "the file contains no certificate")),
            false => Ok(read),
        }
    }

    fn invalid_file(what: &str, file: Option<&Path>, error: impl ToString) -> RedisConnectError {
        let file = file.unwrap_or(Path::new("")).display();
        RedisConnectError::Options { reason: format!("{what} {file}: {}", error.to_string()) }
    }
}

#[cfg(not(feature = "tls"))]
mod tls {
    use super::Stream;
    use crate::error::RedisConnectError;
    use crate::options::Options;
    use std::io;
    use tokio::net::TcpStream;

    /// No value exists: an address with TLS is rejected.
    #[derive(Clone)]
    pub(in crate::connections) enum Tls {}

    impl Tls {
        pub(in crate::connections) fn new(_: &Options) -> Result<Tls, RedisConnectError> {
            let reason =
                "TLS is not supported: this program was built without the feature `tls`".to_owned();
            Err(RedisConnectError::Address { reason })
        }

        pub(super) async fn begin(&self, _: &str, _: TcpStream) -> io::Result<Stream> {
            match *self {}
        }
    }
}
