//! Where the service delivers the jobs of a kind that no worker claims.

use crate::error::Invalid;
use crate::limits::MAX_PUSH_LEN;
use std::fmt;

/// Where the service delivers the jobs of a kind, instead of letting workers claim them: a part of
/// [`Settings`](crate::Settings). Stores keep it and do not parse it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushSetting {
    /// The address and the limits of the target, as JSON. It is shown and exported.
    pub config: String,
    /// The credentials of the target, as JSON. They are stored, and never shown or exported.
    pub secrets: SecretText,
}

impl PushSetting {
    /// Fails if a text is longer than [`MAX_PUSH_LEN`]. For stores.
    pub fn check(&self) -> Result<(), Invalid> {
        let limit = MAX_PUSH_LEN;
        for (field, text) in [
            ("the push setting", self.config.as_str()),
            ("the push secrets", self.secrets.expose()),
        ] {
            if text.len() > limit {
                return Err(Invalid::TooLong { field, len: text.len(), limit });
            }
        }
        Ok(())
    }
}

/// A text whose `Debug` output does not contain it, so that it gets into no log.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretText(String);

impl SecretText {
    /// Returns the text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        SecretText(text)
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "(hidden)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_in_no_debug_output() {
        let (config, secrets) = ("{}".to_owned(), SecretText::from("whsec_1".to_owned()));
        let target = PushSetting { config, secrets };
        assert!(!format!("{target:?}").contains("whsec"));
        assert_eq!(target.secrets.expose(), "whsec_1");
    }

    #[test]
    fn a_target_that_is_too_long_is_rejected() {
        let (config, secrets) = (String::new(), "x".repeat(MAX_PUSH_LEN + 1).into());
        let error = PushSetting { config, secrets }.check().unwrap_err();
        assert!(matches!(error, Invalid::TooLong { field: "the push secrets", .. }));
    }
}
