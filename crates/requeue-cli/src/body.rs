//! Bodies and results on the command line: text, stdin, or a file.

use crate::error::{CliError, Result};
use requeue_jobs::Body;
use serde_json::value::RawValue;
use std::io::Read;
use std::path::Path;

/// The media type of a body.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct BodyType {
    /// Media type [default: guessed from the content]
    ///
    /// By default, what begins with { or [ is application/json, and rejected if it is not valid
    /// JSON; other text is text/plain, and anything else is application/octet-stream.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// It is plain text, also if it begins with { or [
    #[arg(long, conflicts_with = "content_type")]
    text: bool,
}

const TEXT: &str = "text/plain; charset=utf-8";

impl BodyType {
    /// Whether no option is given.
    pub(crate) fn is_default(&self) -> bool {
        self.content_type.is_none() && !self.text
    }

    /// Reads a body: text, `-` for stdin, or `@FILE`. Fails if it should be JSON and is not. Of a file that
    /// is longer than `limit`, returns one byte more than that.
    pub(crate) fn read(&self, body: &str, limit: usize) -> Result<Body> {
        let bytes = bytes(body, limit)?;
        if bytes.len() > limit {
            // Its length is what is wrong, and not that it ends too early.
            return Ok(Body::new(bytes, TEXT)?);
        }
        self.of(bytes)
    }

    /// A body of these bytes.
    fn of(&self, bytes: Vec<u8>) -> Result<Body> {
        let content_type = match &self.content_type {
            Some(content_type) if is_json(content_type) => {
                check_json(&bytes).map_err(|error| {
                    let message =
                        format!("the content type is {content_type}, but the body {error}");
                    CliError::usage(message)
                })?;
                content_type
            }
            Some(content_type) => content_type,
            None if self.text => TEXT,
            None => guessed_type(&bytes)?,
        };
        Ok(Body::new(bytes, content_type)?)
    }
}

/// The default media type of a body. A text that begins like a JSON object or array, and is none, is
/// probably cut off or badly quoted: it is rejected.
fn guessed_type(bytes: &[u8]) -> Result<&'static str> {
    let Ok(text) = str::from_utf8(bytes) else { return Ok("application/octet-stream") };
    match text.trim_start().chars().next() {
        None => Ok("application/octet-stream"),
        Some(first @ ('{' | '[')) => match check_json(bytes) {
            Ok(()) => Ok("application/json"),
            Err(error) => {
                Err(CliError::usage(format!("the body begins with {first}, but {error}"))
                    .hint("correct the JSON; or, if the body is plain text: --text"))
            }
        },
        Some(_) => Ok(TEXT),
    }
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

fn check_json(bytes: &[u8]) -> Result<(), String> {
    let checked = serde_json::from_slice::<&RawValue>(bytes);
    checked.map(drop).map_err(|error| format!("is not valid JSON: {error}"))
}

/// The bytes of a body. Of a file that is longer than `limit`, it returns one byte more than that.
fn bytes(body: &str, limit: usize) -> Result<Vec<u8>> {
    // One byte more than allowed, so that a larger file is rejected without reading all of it.
    let limit = limit as u64 + 1;
    let mut bytes = Vec::new();
    let (name, read) = if body == "-" {
        ("stdin", std::io::stdin().lock().take(limit).read_to_end(&mut bytes))
    } else if let Some(name) = body.strip_prefix('@') {
        let file = std::fs::File::open(Path::new(name));
        (name, file.and_then(|file| file.take(limit).read_to_end(&mut bytes)))
    } else {
        return Ok(body.as_bytes().to_vec());
    };
    read.map_err(|error| CliError::io("read", name, &error))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_guessed_to_be_what_it_looks_like() {
        for (bytes, guessed) in [
            (&b"{\"a\":1}"[..], "application/json"),
            (b" [1]\n", "application/json"),
            (b"42", "text/plain; charset=utf-8"),
            (b"", "application/octet-stream"),
            (b"\xff", "application/octet-stream"),
        ] {
            assert_eq!(guessed_type(bytes).unwrap(), guessed, "{bytes:?}");
        }
        for broken in [&b"{\"a\":"[..], b"{a:1}", b" [info] started", b"{} {}"] {
            let error = guessed_type(broken).unwrap_err();
            assert!(error.mentions("is not valid JSON"), "{error:?}");
        }
    }

    #[test]
    fn a_type_that_is_given_is_checked_only_if_it_is_json() {
        let of = |content_type: &str, body: &str| {
            let of = BodyType { content_type: Some(content_type.to_owned()), text: false };
            of.of(body.as_bytes().to_vec())
        };
        for json in ["application/json", "Application/JSON; charset=utf-8", "application/a+json"] {
            assert!(of(json, "{}").is_ok(), "{json}");
            assert!(of(json, "{").is_err() && of(json, "").is_err(), "{json}");
        }
        for other in ["text/plain", "application/x-ndjson"] {
            assert_eq!(of(other, "{").unwrap().content_type(), other);
        }
    }
}
