//! Signatures of requests: Standard Webhooks, version 1.
//!
//! `v1,<base64 of the HMAC-SHA256 of "id.timestamp.body">`, one for each secret. The receiver accepts a
//! request if one of them is valid, so that secrets can be replaced.

use crate::config::SigningSecret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// Returns the value of the header `webhook-signature`, or `None` if there is no secret.
pub(crate) fn sign(
    secrets: &[SigningSecret],
    id: &str,
    timestamp: u64,
    body: &[u8],
) -> Option<String> {
    // An id with a full stop could be moved into the timestamp or the body.
    debug_assert!(!id.contains('.'));
    let signature = |secret: &SigningSecret| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.bytes());
        let mut context = hmac::Context::with_key(&key);
        context.update(format!("{id}.{timestamp}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    };
    let signatures: Vec<_> = secrets.iter().map(signature).collect();
    (!signatures.is_empty()).then(|| signatures.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_published_example() {
        let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signature =
            sign(std::slice::from_ref(&secret), id, 1_614_265_330, br#"{"test": 2432232314}"#);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signature.as_deref(), Some(expected));
        let both = sign(&[secret.clone(), secret], id, 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(both, Some(format!("{expected} {expected}")));
        assert_eq!(sign(&[], id, 0, b""), None);
    }
}
