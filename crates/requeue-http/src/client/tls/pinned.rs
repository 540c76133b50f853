//! Accepts the self-signed certificate of a server that is itself in `ca_file`.
//!
//! `openssl req -x509` makes such certificates by default. They are marked as certificates of a CA, which
//! webpki rejects for a server, though the user trusts exactly this certificate. OpenSSL, curl and Go
//! accept it. Everything else is checked as for any certificate: the name of the server, the period of
//! validity, and that the server has the private key.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// Verifies certificates as webpki does, and also accepts the certificates in `pinned`.
#[derive(Debug)]
pub(super) struct PinnedVerifier {
    pub(super) webpki: Arc<WebPkiServerVerifier>,
    /// The certificates of `ca_file`.
    pub(super) pinned: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.webpki.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The same bytes, so no other certificate of the same key or with the same name.
            Err(error) if is_ca_as_server(&error) && self.pinned.contains(certificate) => {
                check_time(certificate, now)?;
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Whether webpki rejected the certificate because it is that of a CA. rustls has no variant for this.
fn is_ca_as_server(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(_)))
        && error.to_string().contains("CaUsedAsEndEntity")
}

fn check_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let wrong = |error| Err(Error::InvalidCertificate(error));
    match validity(certificate) {
        None => wrong(CertificateError::BadEncoding),
        Some(valid) if valid.contains(&now.as_secs()) => Ok(()),
        Some(valid) if now.as_secs() < *valid.start() => wrong(CertificateError::NotValidYet),
        Some(_) => wrong(CertificateError::Expired),
    }
}

/// The tags of DER that a certificate has before its period of validity.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the period of validity of a certificate (RFC 5280, 4.1.2.5), in seconds since 1970.
fn validity(certificate: &[u8]) -> Option<RangeInclusive<u64>> {
    let mut certificate = certificate;
    let mut certificate = value(&mut certificate, SEQUENCE)?;
    let mut fields = value(&mut certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        element(&mut fields)?;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        element(&mut fields)?;
    }
    let mut times = value(&mut fields, SEQUENCE)?;
    let (from, until) = (time(&mut times)?, time(&mut times)?);
    times.is_empty().then_some(from..=until)
}

/// Reads a tag, a length and a value. Returns tag and value.
fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The length follows in this many bytes.
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    Some((tag, value))
}

/// Reads an element with this tag, and returns its value.
fn value<'a>(bytes: &mut &'a [u8], expected: u8) -> Option<&'a [u8]> {
    element(bytes).filter(|(tag, _)| *tag == expected).map(|(_, value)| value)
}

/// Reads a time: `YYMMDDHHMMSSZ` until 2049, `YYYYMMDDHHMMSSZ` after that.
fn time(bytes: &mut &[u8]) -> Option<u64> {
    let (tag, text) = element(bytes)?;
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = text.split_at(2);
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        (GENERALIZED_TIME, 14) => {
            let (year, rest) = text.split_at(4);
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |n: usize| rest.get(2 * n..2 * n + 2)?.parse::<i8>().ok();
    let at = DateTime::new(year, part(0)?, part(1)?, part(2)?, part(3)?, part(4)?, 0).ok()?;
    let at = TimeZone::UTC.to_timestamp(at).ok()?.as_second();
    // A certificate that was valid before 1970 is valid from then on.
    Some(u64::try_from(at).unwrap_or(0))
}

#[cfg(test)]
mod tests;
