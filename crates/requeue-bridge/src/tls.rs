//! The certificates of authorities that connections to brokers trust, and those that they present.

#[cfg(any(feature = "kafka", feature = "nats", feature = "redis"))]
mod system;

#[cfg(any(feature = "kafka", feature = "nats", feature = "redis"))]
pub(crate) use system::trusted_authorities;

use crate::error::BridgeError;
use crate::target::BrokerOptions;
use std::fs;
use std::path::Path;

/// Returns the certificates of the file in the options, in PEM. Fails if the file cannot be read.
pub(crate) fn own_authorities(options: &BrokerOptions) -> Result<Option<String>, BridgeError> {
    options.ca_file.as_deref().map(|file| read("certificates", file)).transpose()
}

/// A certificate that a client presents, and its private key, in PEM.
pub(crate) struct ClientCertificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Returns the certificate in the options. Fails if a file is missing or cannot be read.
pub(crate) fn client_certificate(
    options: &BrokerOptions,
) -> Result<Option<ClientCertificate>, BridgeError> {
    match (&options.client_cert, &options.client_key) {
        (Some(certificate), Some(key)) => Ok(Some(ClientCertificate {
            certificate: read("client certificate", certificate)?,
            key: read("key of the client certificate", key)?,
        })),
        (None, None) => Ok(None),
        _ => {
            let reason =
                "a client certificate needs a file with its key, and a key its certificate";
            Err(BridgeError::Setting { reason: reason.to_owned() })
        }
    }
}

fn read(what: &str, file: &Path) -> Result<String, BridgeError> {
    let text = fs::read_to_string(file);
    text.map_err(|error| BridgeError::Setting {
        reason: format!("{what} in {}: {error}", file.display()),
    })
}
