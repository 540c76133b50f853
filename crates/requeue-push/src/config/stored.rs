//! Changing and showing a setting that a store keeps.

use super::{
    BrokerUrl, ConfigJson, FullJson, InvalidPush, PrivateJson, PushConfig, PushTexts, PushUrl,
    SigningSecret, merge,
};
use requeue_http::wire::PushJson;
use requeue_jobs::PushSetting;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};
use serde_json::Value;
use std::collections::BTreeMap;

/// Reads the names of headers: a list, or the headers as the API shows them.
pub(super) fn header_names<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Headers {
        Names(Vec<String>),
        Shown(BTreeMap<String, IgnoredAny>),
    }
    Ok(match Headers::deserialize(input)? {
        Headers::Names(names) => names,
        Headers::Shown(headers) => headers.into_keys().collect(),
    })
}

/// What a store has of a setting. After an import, that is less than the setting needs.
struct Stored {
    full: FullJson,
    /// The headers without a value.
    missing_headers: Vec<String>,
    /// Whether there are fewer secrets than the setting has.
    secrets_missing: bool,
    /// Whether the URL has a password, and it is not stored.
    password_missing: bool,
}

impl Stored {
    fn read(config: &str, private: &str) -> Result<Self, InvalidPush> {
        let config: ConfigJson = serde_json::from_str(config).map_err(InvalidPush::json)?;
        let private = match private {
            "" => PrivateJson::default(),
            // The error of the parser could repeat a part of the text.
            text => serde_json::from_str::<PrivateJson>(text).map_err(|_| InvalidPush::Json {
                reason: "the stored secrets cannot be read".to_owned(),
            })?,
        };
        let PrivateJson { secrets, headers: mut values, password } = private;
        let (mut headers, mut missing_headers) = (BTreeMap::new(), Vec::new());
        for name in config.headers {
            match values.remove(&name) {
                Some(value) => drop(headers.insert(name, value)),
                None => missing_headers.push(name),
            }
        }
        let secrets_missing = secrets.len() < config.signed.max(config.secrets.len());
        let ConfigJson { mut url, timeout, concurrency, format, .. } = config;
        let masked = BrokerUrl::parse(&url).ok().filter(BrokerUrl::is_masked);
        let password_missing = masked.is_some() && password.is_none();
        if let (Some(masked), Some(password)) = (masked, password) {
            url = masked.with_secret(&password)?.expose().to_owned();
        }
        let full = FullJson { url, headers, timeout, concurrency, secrets, format };
        Ok(Stored { full, missing_headers, secrets_missing, password_missing })
    }

    fn header_names(&self) -> impl Iterator<Item = &String> {
        self.full.headers.keys().chain(&self.missing_headers)
    }
}

fn not_stored(name: &str) -> InvalidPush {
    let reason = "its value is not stored; set the header again".to_owned();
    InvalidPush::Header { name: name.to_owned(), reason }
}

impl PushConfig {
    /// Returns the setting from its two texts. Fails if one cannot be read, or if the private text lacks
    /// secrets or the value of a header.
    ///
    /// An empty private text contains nothing: the kind was imported from an export, which has no secrets.
    /// Its jobs must not be sent without a signature.
    pub fn join(config: &str, private: &str) -> Result<Self, InvalidPush> {
        let stored = Stored::read(config, private)?;
        if let Some(name) = stored.missing_headers.first() {
            return Err(not_stored(name));
        }
        if stored.secrets_missing {
            return Err(InvalidPush::SecretsNotStored);
        }
        if stored.password_missing {
            return Err(InvalidPush::PasswordNotStored);
        }
        stored.full.try_into()
    }

    /// Returns the setting of a kind after a change. `before` is what is stored; without it, `change` is
    /// the whole setting.
    ///
    /// Secrets and header values that the change leaves out are kept, unless the origin of the URL changes:
    /// then they have to be given again, because otherwise a user who does not know them could send them to
    /// another host.
    pub fn changed(
        before: Option<&PushSetting>,
        change: &PushJson,
    ) -> Result<PushSetting, InvalidPush> {
        let change = lower_case(change)?;
        check_not_masked(&change)?;
        // A setting that cannot be read is replaced.
        let stored =
            before.and_then(|before| Stored::read(&before.config, before.secrets.expose()).ok());
        let mut full = match &stored {
            Some(stored) => serde_json::to_value(&stored.full).map_err(InvalidPush::json)?,
            None => Value::Object(serde_json::Map::new()),
        };
        if stored.is_none() && change.url.is_none() {
            return Err(InvalidPush::url("it is missing"));
        }
        let change = keep_password(stored.as_ref(), change)?;
        merge(&mut full, &serde_json::to_value(&change).map_err(InvalidPush::json)?);
        let full = FullJson::read(full)?;
        let config = PushConfig::try_from(full)?;
        if let Some(stored) = &stored {
            check_given(stored, &change, &config)?;
        }
        let PushTexts { config, private } = config.split()?;
        Ok(PushSetting { config, secrets: private.into() })
    }

    /// Returns a stored setting as the API shows it: secrets and header values are masked. `None` if it
    /// cannot be read.
    pub fn masked(setting: &PushSetting) -> Option<PushJson> {
        let stored = Stored::read(&setting.config, setting.secrets.expose()).ok()?;
        let headers =
            stored.header_names().map(|name| (name.clone(), Some(PushJson::MASK.to_string())));
        let headers = headers.collect();
        let FullJson { url, timeout, concurrency, secrets, format, .. } = stored.full;
        let secrets = secrets.iter().flat_map(|text| SigningSecret::parse(text));
        let format = serde_json::to_value(format).ok()?;
        let url = BrokerUrl::parse(&url).map_or(url, |url| url.masked());
        let json = PushJson {
            url: Some(url),
            headers: Some(Some(headers)),
            timeout: Some(Some(timeout.into())),
            concurrency: Some(concurrency),
            secrets: Some(Some(secrets.map(|secret| secret.hint()).collect())),
            format: Some(format.as_str().map(str::to_owned)),
        };
        Some(json)
    }
}

/// Returns the change with the names of headers in lower case, as they are stored.
fn lower_case(change: &PushJson) -> Result<PushJson, InvalidPush> {
    let mut change = change.clone();
    if let Some(Some(headers)) = &mut change.headers {
        let mut lower = BTreeMap::new();
        for (name, value) in std::mem::take(headers) {
            if lower.insert(name.to_ascii_lowercase(), value).is_some() {
                let reason = "it is given twice, in upper and in lower case".to_owned();
                return Err(InvalidPush::Header { name, reason });
            }
        }
        *headers = lower;
    }
    Ok(change)
}

/// Returns the change with the stored password, if its URL has the masked one and connects to the same broker
/// as the same user.
fn keep_password(stored: Option<&Stored>, mut change: PushJson) -> Result<PushJson, InvalidPush> {
    let masked = |text: &str| BrokerUrl::parse(text).ok().filter(BrokerUrl::is_masked);
    let Some(url) = change.url.as_deref().and_then(masked) else { return Ok(change) };
    let before = stored.and_then(|stored| BrokerUrl::parse(&stored.full.url).ok());
    match before.filter(|before| url.is_same_account(before)) {
        Some(before) if before.is_masked() => return Err(InvalidPush::PasswordNotStored),
        Some(before) => {
            let kept = url.with_secret(before.secret().unwrap_or_default())?;
            change.url = Some(kept.expose().to_owned());
        }
        None => return Err(InvalidPush::Masked { field: "url" }),
    }
    Ok(change)
}

/// Fails if a value is what the API shows instead of a secret.
fn check_not_masked(change: &PushJson) -> Result<(), InvalidPush> {
    if change.has_masked_header() {
        return Err(InvalidPush::Masked { field: "headers" });
    }
    if change.has_masked_secret() {
        return Err(InvalidPush::Masked { field: "secrets" });
    }
    Ok(())
}

/// Fails if the change needs values that it does not give: those that are not stored, and all of them if
/// the requests go to another origin.
fn check_given(stored: &Stored, change: &PushJson, after: &PushConfig) -> Result<(), InvalidPush> {
    let header_given = |name: &String| match &change.headers {
        None => false,
        Some(None) => true,
        Some(Some(headers)) => headers.contains_key(name),
    };
    let before = PushUrl::parse(&stored.full.url).map(|url| url.origin()).ok();
    if before.as_deref() != Some(after.url.origin().as_str()) {
        let field = match () {
            () if !stored.header_names().all(header_given) => Some("headers"),
            () if change.secrets.is_none()
                && (stored.secrets_missing || !stored.full.secrets.is_empty()) =>
            {
                Some("secrets")
            }
            () => None,
        };
        if let Some(field) = field {
            return Err(InvalidPush::OtherOrigin { field });
        }
    }
    if let Some(name) = stored.missing_headers.iter().find(|name| !header_given(name)) {
        return Err(not_stored(name));
    }
    if stored.secrets_missing && change.secrets.is_none() {
        return Err(InvalidPush::SecretsNotStored);
    }
    if stored.password_missing && change.url.is_none() {
        return Err(InvalidPush::PasswordNotStored);
    }
    Ok(())
}
