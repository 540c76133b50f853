//! Certificates, and their renewal.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// What a server shows to prove who it is: a chain of certificates and its key, from two PEM files.
///
/// TLS 1.2 and 1.3. Clones share what they show, so that one is kept to [`reload`](Self::reload).
#[derive(Clone, Debug)]
pub struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    chain: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
}

/// What is wrong with the files. What was read before stays in use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file has no part of the kind that is looked for.
    #[error("{} has no {missing} in it (PEM, -----BEGIN …-----)", path.display())]
    Missing {
        /// Which.
        path: PathBuf,
        /// A certificate, or a private key.
        missing: &'static str,
    },
    /// A file is not PEM.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Where.
        source: pem::Error,
    },
    /// The key is not that of the first certificate.
    #[error(
        "the key in {} does not belong to the first certificate in {}",
        key.display(),
        chain.display()
    )]
    Mismatch {
        /// Where the certificates are.
        chain: PathBuf,
        /// Where the key is.
        key: PathBuf,
    },
    /// They are what they should be, and cannot be used.
    #[error("could not use the certificates in {} with the key in {}", chain.display(), key.display())]
    Unusable {
        /// Where the certificates are.
        chain: PathBuf,
        /// Where the key is.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

impl Tls {
    /// Reads the chain (the server's own certificate first) and its key.
    pub fn load(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let (chain, key) = (chain.into(), key.into());
        let current = RwLock::new(read(&chain, &key)?);
        Ok(Self(Arc::new(Shared { chain, key, current })))
    }

    /// Reads the files again, for the connections to come. If that fails, nothing changes.
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
        .map_err(|source| TlsError::Damaged { path: chain.into(), source })?;
    if certificates.is_empty() {
        return Err(TlsError::Missing { path: chain.into(), missing: "certificate" });
    }
    let private = PrivateKeyDer::from_pem_slice(&bytes(key)?).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsError::Missing { path: key.into(), missing: "private key" },
        source => TlsError::Damaged { path: key.into(), source },
    })?;
    // Named, because a process may have another default, or none.
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has suites for both versions")
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .map_err(|source| match source {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::Mismatch { chain: chain.into(), key: key.into() }
            }
            source => TlsError::Unusable { chain: chain.into(), key: key.into(), source },
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.into(), source })
}
