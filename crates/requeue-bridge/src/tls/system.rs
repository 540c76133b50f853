//! The authorities that the system trusts, for client libraries that replace them by those of a file.

use super::own_authorities;
use crate::error::BridgeError;
use crate::target::BrokerOptions;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;

/// How many characters of base64 a line of PEM has.
const PEM_LINE: usize = 64;

/// Returns the certificates of the system and those of the file in the options, in PEM. Client libraries
/// replace the former by the latter otherwise. Fails if the file cannot be read.
pub(crate) fn trusted_authorities(options: &BrokerOptions) -> Result<String, BridgeError> {
    // A certificate of the system that cannot be read is not trusted, which is safe.
    let system = rustls_native_certs::load_native_certs().certs;
    let mut pem: String = system.iter().map(|certificate| encode(certificate)).collect();
    pem.push_str(&own_authorities(options)?.unwrap_or_default());
    Ok(pem)
}

fn encode(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(PEM_LINE) {
        let line = str::from_utf8(line).expect("base64 is ASCII");
        writeln!(pem, "{line}").expect("a string can be written to");
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_encoded_in_lines() {
        let pem = encode(&[7; 60]);
        let lines: Vec<_> = pem.lines().collect();
        assert_eq!(lines.iter().map(|line| line.len()).collect::<Vec<_>>(), [27, 64, 16, 25]);
        assert_eq!(STANDARD.decode(lines[1..3].concat()).unwrap(), [7; 60]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let ca_file = Some("/does/not/exist.pem".into());
        let options = BrokerOptions { ca_file, ..BrokerOptions::default() };
        let error = trusted_authorities(&options).unwrap_err().to_string();
        assert!(error.contains("/does/not/exist.pem"), "{error}");
    }
}
