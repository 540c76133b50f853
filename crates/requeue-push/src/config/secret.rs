//! Signing secrets, in the form of Standard Webhooks.

use super::InvalidPush;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;

/// What a secret begins with.
const PREFIX: &str = "whsec_";

/// The lengths of a secret in bytes that Standard Webhooks allows: 192 to 512 bits.
const MIN_LEN: usize = 24;
const MAX_LEN: usize = 64;

/// How many characters of a secret a hint shows. The rest has at least 28 characters.
const HINT_LEN: usize = 4;

/// A signing secret: `whsec_` and the base64 form of 24 to 64 bytes. [`Debug`](fmt::Debug) does not show
/// it.
///
/// ```
/// use requeue_push::SigningSecret;
///
/// let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// assert_eq!(secret.hint(), "whsec_…LaSw");
/// assert!(SigningSecret::parse("hunter2").is_err());
/// # Ok::<(), requeue_push::InvalidPush>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret {
    text: String,
    bytes: Vec<u8>,
}

impl SigningSecret {
    /// Parses a secret. Fails if it is not `whsec_` with the base64 form of 24 to 64 bytes.
    pub fn parse(text: &str) -> Result<Self, InvalidPush> {
        let wrong = |reason: String| Err(InvalidPush::Secret { reason });
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            return wrong(format!("it must begin with {PREFIX}"));
        };
        let Ok(bytes) = STANDARD.decode(encoded) else {
            return wrong(format!("it must be {PREFIX} and base64, with padding"));
        };
        match bytes.len() {
            MIN_LEN..=MAX_LEN => Ok(SigningSecret { text: text.to_owned(), bytes }),
            len => wrong(format!("it has {len} bytes; the range is {MIN_LEN} to {MAX_LEN}")),
        }
    }

    /// Returns the end of the secret, by which people tell secrets apart.
    pub fn hint(&self) -> String {
        // Base64 is ASCII, so every position is between two characters.
        let end = self.text.trim_end_matches('=');
        format!("{PREFIX}…{}", &end[end.len() - HINT_LEN..])
    }

    /// Returns the key of the signatures.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the secret as it was given.
    pub(crate) fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningSecret({})", self.hint())
    }
}
