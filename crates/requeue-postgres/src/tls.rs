//! TLS for connections, with the meaning that `sslmode` has for libpq.

use crate::error::PostgresConnectError;
use crate::url::TlsFiles;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

fn failed(reason: String) -> PostgresConnectError {
    PostgresConnectError::Tls { reason }
}

/// Returns what makes TLS connections.
pub(crate) fn connector(files: &TlsFiles) -> Result<MakeRustlsConnect, PostgresConnectError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Verifier {
        webpki: files.verifies.then(|| roots(files)).transpose()?,
        verifies_name: files.verifies_name,
        provider: provider.clone(),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match (&files.certificate, &files.key) {
        (None, None) => config.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| failed(format!("{key}: {error}")))?;
            config
                .with_client_auth_cert(chain, private)
                .map_err(|error| failed(format!("{certificate} and {key}: {error}")))?
        }
        _ => return Err(failed("sslcert and sslkey must be set together".to_owned())),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, PostgresConnectError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| failed(format!("{file}: {error}")))?;
    if found.is_empty() {
        return Err(failed(format!("{file} contains no certificate")));
    }
    Ok(found)
}

fn roots(files: &TlsFiles) -> Result<Arc<WebPkiServerVerifier>, PostgresConnectError> {
    let mut roots = RootCertStore::empty();
    match &files.root {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| failed(format!("{file}: {error}")))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err(failed("no root certificates: set sslrootcert in the URL".to_owned()));
    }
    let provider = Arc::new(ring::default_provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| failed(error.to_string()))
}

/// Verifies as `sslmode` demands: nothing (`require`), the certificate (`verify-ca`), or also the name
/// (`verify-full`).
#[derive(Debug)]
struct Verifier {
    webpki: Option<Arc<WebPkiServerVerifier>>,
    verifies_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(webpki) = &self.webpki else { return Ok(ServerCertVerified::assertion()) };
        match webpki.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.verifies_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
