//! TLS: the certificates that a client trusts.

use super::options::{HttpConnectError, Options};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Creates a TLS connector that trusts the certificates of the system and of `ca_file`.
pub(super) fn connector(options: &Options) -> Result<TlsConnector, HttpConnectError> {
    let mut trusted = RootCertStore::empty();
    // A certificate that cannot be read is skipped. A connection that depends on it fails later.
    trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = &options.ca_file {
        add(file, &mut trusted)?;
    }
    // Not the process-wide default provider: the program may have set none, or another one.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions");
    let mut config = builder.with_root_certificates(trusted).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Adds the certificates of a file.
fn add(file: &Path, trusted: &mut RootCertStore) -> Result<(), HttpConnectError> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| wrong(file, error))?;
    let before = trusted.len();
    for certificate in read {
        let certificate = certificate.map_err(|error| wrong(file, error))?;
        trusted.add(certificate).map_err(|error| wrong(file, error))?;
    }
    if trusted.len() == before {
        Err(wrong(file, "the file contains no certificates"))
    } else {
        Ok(())
    }
}

fn wrong(file: &Path, error: impl Display) -> HttpConnectError {
    HttpConnectError::Options { reason: format!("ca_file {}: {error}", file.display()) }
}
