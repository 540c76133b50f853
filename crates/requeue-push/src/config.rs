//! The push setting of a kind: where its jobs are sent, and how.
//!
//! A store keeps two texts per kind. The *config text* may be shown and exported. The *private text*
//! contains the password of a broker, the signing secrets, and the values of the headers, which usually are
//! credentials.
//! [`PushConfig::split`] and [`PushConfig::join`] convert between them and the setting, and
//! [`PushConfig::view`] is what the API returns.

mod broker;
mod error;
mod headers;
mod secret;
mod stored;
mod url;

pub use broker::{Broker, BrokerUrl, fill_template};
pub use error::InvalidPush;
pub use secret::SigningSecret;
pub use url::{PushUrl, WebhookUrl};

use requeue_http::times::{parse_duration, show_duration};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The default time limit of a delivery.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The shortest time limit of a delivery. A connection over TLS to another continent takes longer.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(100);

/// The longest time limit of a delivery. The lease of the job is longer by a margin, and a node that
/// dies blocks the job for that long.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// The default number of requests of a kind that a node has in flight.
pub const DEFAULT_CONCURRENCY: u32 = 10;

/// The default number of messages of a kind that a node publishes to a broker and that are not confirmed yet.
/// Brokers confirm them together.
pub const DEFAULT_BROKER_CONCURRENCY: u32 = 256;

/// The highest number of requests of a kind that a node has in flight. Each takes a connection.
pub const MAX_CONCURRENCY: u32 = 10_000;

/// The largest number of signing secrets: the current one, and the previous one while it is replaced.
pub const MAX_SECRETS: usize = 2;

/// The largest number of additional headers.
pub const MAX_HEADERS: usize = 32;

/// The longest config text and the longest private text, in bytes. Stores keep both with the kind's
/// settings, in memory.
pub const MAX_TEXT_LEN: usize = 8 << 10;

/// How a job is represented in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum WebhookFormat {
    /// The body of the job is the body of the request, and headers describe the job.
    #[default]
    Plain,
    /// As [`Plain`](WebhookFormat::Plain), with the headers of a CloudEvents 1.0 event in binary mode.
    CloudEvents,
}

/// The push setting of a kind: where its jobs are sent, and how.
///
/// Its JSON form is the one of the API. [`Debug`](fmt::Debug) shows neither secrets nor the values of
/// headers.
///
/// ```
/// use requeue_push::PushConfig;
///
/// let config: PushConfig = serde_json::from_str(
///     r#"{"url": "https://example.com/hooks", "timeout": "30s", "headers": {"authorization": "Bearer x"}}"#,
/// )?;
/// assert_eq!(config.concurrency, 10);
/// assert!(!format!("{config:?}").contains("Bearer"));
/// let texts = config.split()?;
/// assert!(!texts.config.contains("Bearer"));
/// assert_eq!(PushConfig::join(&texts.config, &texts.private)?, config);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "FullJson")]
#[non_exhaustive]
pub struct PushConfig {
    /// Where the jobs are sent.
    pub url: PushUrl,
    /// Additional headers of each request or message: names in lower case, and values.
    pub headers: BTreeMap<String, String>,
    /// How long a delivery may take, from the name lookup to the last byte of the response.
    pub timeout: Duration,
    /// How many requests of the kind one node has in flight.
    pub concurrency: u32,
    /// The secrets with which requests are signed: none, one, or two while one replaces the other.
    pub secrets: Vec<SigningSecret>,
    /// How a job is represented in the request.
    pub format: WebhookFormat,
}

/// A push setting as a store keeps it: see [`PushConfig::split`].
#[derive(Clone, PartialEq, Eq)]
pub struct PushTexts {
    /// JSON without secrets, which may be shown and exported.
    pub config: String,
    /// JSON with the signing secrets and the values of the headers.
    pub private: String,
}

/// A push setting as the API shows it: secrets and header values are masked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PushView {
    /// Where the requests are sent.
    pub url: String,
    /// The names of the additional headers, each with the value `…`.
    pub headers: BTreeMap<String, &'static str>,
    /// How long a delivery may take, such as `10s`.
    pub timeout: String,
    /// How many requests of the kind one node has in flight.
    pub concurrency: u32,
    /// The end of each secret, such as `whsec_…a3f9`.
    pub secrets: Vec<String>,
    /// How a job is represented in the request.
    pub format: WebhookFormat,
}

/// The whole setting in JSON, with secrets.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FullJson {
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default = "default_timeout")]
    timeout: String,
    #[serde(default)]
    concurrency: Option<u32>,
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    format: WebhookFormat,
}

impl FullJson {
    /// Fails with the field if the format is unknown. The parser would not name it.
    fn read(full: Value) -> Result<Self, InvalidPush> {
        if let Some(format) = full.get("format") {
            let unknown =
                |error: serde_json::Error| InvalidPush::Format { reason: error.to_string() };
            WebhookFormat::deserialize(format).map_err(unknown)?;
        }
        serde_json::from_value(full).map_err(InvalidPush::json)
    }
}

#[derive(Serialize, Deserialize)]
struct ConfigJson {
    url: String,
    #[serde(default, deserialize_with = "stored::header_names")]
    headers: Vec<String>,
    #[serde(default = "default_timeout")]
    timeout: String,
    #[serde(default)]
    concurrency: Option<u32>,
    #[serde(default)]
    format: WebhookFormat,
    /// The masked secrets, if this is what the API shows: an export through the API contains that.
    #[serde(default, skip_serializing)]
    secrets: Vec<serde::de::IgnoredAny>,
    /// How many secrets there are, so that it is known if they are missing after an import.
    #[serde(default)]
    signed: usize,
}

#[derive(Default, Serialize, Deserialize)]
struct PrivateJson {
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The secret in the URL of a broker, as it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password: Option<String>,
}

fn default_timeout() -> String {
    show_duration(DEFAULT_TIMEOUT)
}

fn default_concurrency(url: &PushUrl) -> u32 {
    match url.as_broker() {
        Some(_) => DEFAULT_BROKER_CONCURRENCY,
        None => DEFAULT_CONCURRENCY,
    }
}

impl PushConfig {
    /// Returns a setting with this URL and otherwise default values. Fails if the URL is invalid.
    pub fn new(url: &str) -> Result<Self, InvalidPush> {
        let url = PushUrl::parse(url)?;
        Ok(PushConfig {
            headers: BTreeMap::new(),
            timeout: DEFAULT_TIMEOUT,
            concurrency: default_concurrency(&url),
            url,
            secrets: Vec::new(),
            format: WebhookFormat::default(),
        })
    }

    /// Checks every field. The fields are public, so this is called before a setting is used or stored.
    pub fn check(&self) -> Result<(), InvalidPush> {
        headers::check(&self.headers)?;
        let (value, min, max) = (self.timeout, MIN_TIMEOUT, MAX_TIMEOUT);
        if value < min || value > max {
            return Err(InvalidPush::Timeout { value, min, max });
        }
        if !(1..=MAX_CONCURRENCY).contains(&self.concurrency) {
            let value = self.concurrency;
            return Err(InvalidPush::Concurrency { value, min: 1, max: MAX_CONCURRENCY });
        }
        if self.secrets.len() > MAX_SECRETS {
            let count = self.secrets.len();
            return Err(InvalidPush::TooManySecrets { count, limit: MAX_SECRETS });
        }
        if self.url.as_broker().is_some() {
            if !self.secrets.is_empty() {
                return Err(InvalidPush::HttpOnly { field: "secrets" });
            }
            if self.format != WebhookFormat::Plain {
                return Err(InvalidPush::HttpOnly { field: "format" });
            }
        }
        Ok(())
    }

    /// Returns the setting changed by a JSON merge patch (RFC 7396): fields that the patch lacks stay as
    /// they are, and `null` resets a field to its default. Secrets and header values that were stored can
    /// thus be kept without being known.
    ///
    /// ```
    /// use requeue_push::PushConfig;
    ///
    /// let config = PushConfig::new("https://example.com/")?;
    /// let patch = serde_json::json!({"concurrency": 20, "headers": {"x-team": "a"}});
    /// let config = config.merged(&patch)?;
    /// assert_eq!((config.concurrency, config.headers.len()), (20, 1));
    /// let error = config.merged(&serde_json::json!({"timeout": "2h"})).unwrap_err();
    /// assert_eq!(error.to_string(), "the timeout is 2h; the range is 100ms to 1h");
    /// # Ok::<(), requeue_push::InvalidPush>(())
    /// ```
    pub fn merged(&self, patch: &Value) -> Result<Self, InvalidPush> {
        let mut full = serde_json::to_value(self.full()).map_err(InvalidPush::json)?;
        merge(&mut full, patch);
        FullJson::read(full)?.try_into()
    }

    /// Returns the two texts in which a store keeps the setting. Fails if the setting is invalid or a text
    /// is longer than [`MAX_TEXT_LEN`].
    pub fn split(&self) -> Result<PushTexts, InvalidPush> {
        self.check()?;
        let FullJson { headers, timeout, concurrency, secrets, format, .. } = self.full();
        let url = self.url.masked();
        let password = self.url.as_broker().and_then(BrokerUrl::secret).map(str::to_owned);
        let names = headers.keys().cloned().collect();
        let signed = secrets.len();
        let masked = Vec::new();
        let config = ConfigJson {
            url,
            headers: names,
            timeout,
            concurrency,
            format,
            secrets: masked,
            signed,
        };
        let text = |what, json: Result<String, _>| {
            let json = json.map_err(InvalidPush::json)?;
            match json.len() {
                len if len > MAX_TEXT_LEN => {
                    Err(InvalidPush::TooLong { what, len, limit: MAX_TEXT_LEN })
                }
                _ => Ok(json),
            }
        };
        let private = serde_json::to_string(&PrivateJson { secrets, headers, password });
        Ok(PushTexts {
            config: text("the push setting", serde_json::to_string(&config))?,
            private: text("the headers and secrets", private)?,
        })
    }

    /// Returns the setting as the API shows it.
    pub fn view(&self) -> PushView {
        PushView {
            url: self.url.masked(),
            headers: self.headers.keys().map(|name| (name.clone(), "…")).collect(),
            timeout: show_duration(self.timeout),
            concurrency: self.concurrency,
            secrets: self.secrets.iter().map(SigningSecret::hint).collect(),
            format: self.format,
        }
    }

    fn full(&self) -> FullJson {
        FullJson {
            url: self.url.expose().to_owned(),
            headers: self.headers.clone(),
            timeout: show_duration(self.timeout),
            concurrency: Some(self.concurrency),
            secrets: self.secrets.iter().map(|secret| secret.expose().to_owned()).collect(),
            format: self.format,
        }
    }
}

impl TryFrom<FullJson> for PushConfig {
    type Error = InvalidPush;

    fn try_from(json: FullJson) -> Result<Self, InvalidPush> {
        let timeout = parse_duration(&json.timeout)
            .map_err(|error| InvalidPush::Duration { reason: error.to_string() })?;
        if json.secrets.len() > MAX_SECRETS {
            let count = json.secrets.len();
            return Err(InvalidPush::TooManySecrets { count, limit: MAX_SECRETS });
        }
        let secrets = json.secrets.iter().map(|text| SigningSecret::parse(text));
        let url = PushUrl::parse(&json.url)?;
        let config = PushConfig {
            headers: headers::lower_case(json.headers)?,
            timeout,
            concurrency: json.concurrency.unwrap_or_else(|| default_concurrency(&url)),
            url,
            secrets: secrets.collect::<Result<_, _>>()?,
            format: json.format,
        };
        config.check()?;
        Ok(config)
    }
}

impl fmt::Debug for PushConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl fmt::Debug for PushTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushTexts").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Applies a JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests;
