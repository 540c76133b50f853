//! TLS certificates, and reloading them.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// The TLS certificate chain and private key of a server, read from two PEM files.
///
/// TLS 1.2 and 1.3 are supported. Clones share the certificates: keep a clone to
/// [`reload`](Self::reload) them.
#[derive(Clone, Debug)]
pub struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    chain: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
}

/// The certificate files cannot be used. On a reload, the current certificates stay in use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file contains no certificate, or no private key.
    #[error("{} contains no {missing} in PEM format (-----BEGIN …-----)", path.display())]
    Missing {
        /// The path of the file.
        path: PathBuf,
        /// `certificate` or `private key`.
        missing: &'static str,
    },
    /// A file is not valid PEM.
    #[error("{} is not valid PEM", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The key does not belong to the first certificate.
    #[error(
        "the key in {} does not belong to the first certificate in {}",
        key.display(),
        chain.display()
    )]
    Mismatch {
        /// The path of the certificate chain.
        chain: PathBuf,
        /// The path of the private key.
        key: PathBuf,
    },
    /// The files are valid, but TLS cannot use them.
    #[error("could not use the certificates in {} with the key in {}", chain.display(), key.display())]
    Unusable {
        /// The path of the certificate chain.
        chain: PathBuf,
        /// The path of the private key.
        key: PathBuf,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl Tls {
    /// Reads the certificate chain (the server's own certificate first) and the private key.
    pub fn load(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let (chain, key) = (chain.into(), key.into());
        let current = RwLock::new(read(&chain, &key)?);
        Ok(Self(Arc::new(Shared { chain, key, current })))
    }

    /// Reads the files again; new connections use the new certificates. If it fails, the current
    /// ones stay in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let new = read(&self.0.chain, &self.0.key)?;
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(current.clone())
    }
}

fn read(chain: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(&bytes(chain)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| TlsError::Damaged { path: chain.into(), source: source.into() })?;
    if certificates.is_empty() {
        return Err(TlsError::Missing { path: chain.into(), missing: "certificate" });
    }
    let private = PrivateKeyDer::from_pem_slice(&bytes(key)?).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsError::Missing { path: key.into(), missing: "private key" },
        source => TlsError::Damaged { path: key.into(), source: source.into() },
    })?;
    // Named explicitly, because the process may have another default provider, or none.
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports both versions")
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .map_err(|source| match source {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::Mismatch { chain: chain.into(), key: key.into() }
            }
            source => {
                TlsError::Unusable { chain: chain.into(), key: key.into(), source: source.into() }
            }
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.into(), source })
}
