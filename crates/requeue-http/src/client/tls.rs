//! Whom to trust.

use super::options::{ConnectError, Options};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Reads the files.
pub(super) fn connector(options: &Options) -> Result<TlsConnector, ConnectError> {
    let mut trusted = RootCertStore::empty();
    // One that cannot be read is not trusted: what depends on it says so later.
    trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = &options.ca_file {
        add(file, &mut trusted)?;
    }
    // A program that uses rustls elsewhere may have no default, or another one.
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_root_certificates(trusted)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn add(file: &Path, trusted: &mut RootCertStore) -> Result<(), ConnectError> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| wrong(file, error))?;
    let mut any = false;
    for certificate in read {
        let certificate = certificate.map_err(|error| wrong(file, error))?;
        trusted.add(certificate).map_err(|error| wrong(file, error))?;
        any = true;
    }
    if any { Ok(()) } else { Err(wrong(file, "there are no certificates in it")) }
}

fn wrong(file: &Path, error: impl Display) -> ConnectError {
    ConnectError::Options { reason: format!("ca_file {}: {error}", file.display()) }
}
