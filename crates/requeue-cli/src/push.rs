//! The options of `kind` with which the server sends jobs to a URL.

use crate::error::{CliError, Result};
use crate::output::print_labelled;
use crate::{private_files, times};
use requeue_http::wire::PushJson;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A signing secret has at most 92 characters, and the value of a header rarely more than a few
/// thousand. A longer file is another file.
const MAX_SECRET_FILE: u64 = 8 << 10;

#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Webhooks")]
pub(crate) struct PushArgs {
    /// Send the jobs to this URL instead of letting workers claim them
    #[arg(long, value_name = "URL")]
    push: Option<String>,
    /// File with a secret that signs the requests; twice to replace a secret, the new one first
    #[arg(long, value_name = "FILE")]
    push_secret: Vec<PathBuf>,
    /// Header of the requests, or NAME=@FILE with its value in a file; an empty value removes it
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    push_header: Vec<Header>,
    /// How long a delivery may take
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    push_timeout: Option<Duration>,
    /// Maximum number of requests in flight per server
    #[arg(long, value_name = "N")]
    push_concurrency: Option<u32>,
    /// Headers of the requests: `plain`, or `cloudevents` for those of CloudEvents, too
    #[arg(long, value_name = "FORMAT")]
    push_format: Option<String>,
    /// Let workers claim the jobs again
    #[arg(long, conflicts_with_all = [
        "push", "push_secret", "push_header", "push_timeout", "push_concurrency", "push_format"
    ])]
    no_push: bool,
}

impl PushArgs {
    /// The change of `push`, if there is one.
    pub(crate) fn patch(&self) -> Result<Option<Option<PushJson>>> {
        if self.no_push {
            return Ok(Some(None));
        }
        let secrets =
            self.push_secret.iter().map(|file| read_secret(file)).collect::<Result<Vec<_>>>()?;
        let headers =
            self.push_header.iter().map(Header::read).collect::<Result<BTreeMap<_, _>>>()?;
        let patch = PushJson {
            url: self.push.clone(),
            headers: (!headers.is_empty()).then_some(Some(headers)),
            timeout: self.push_timeout.map(|timeout| Some(timeout.into())),
            concurrency: self.push_concurrency.map(Some),
            secrets: (!secrets.is_empty()).then_some(Some(secrets)),
            format: self.push_format.clone().map(Some),
        };
        Ok((patch != PushJson::default()).then_some(Some(patch)))
    }
}

/// A value of `--push-header`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Header {
    name: String,
    value: HeaderValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HeaderValue {
    /// The header is removed.
    Removed,
    Text(String),
    File(PathBuf),
}

fn header(text: &str) -> Result<Header, String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE or NAME=@FILE")?;
    let value = match value.strip_prefix('@') {
        Some(file) => HeaderValue::File(file.into()),
        None if value.is_empty() => HeaderValue::Removed,
        None => HeaderValue::Text(value.to_owned()),
    };
    Ok(Header { name: name.to_owned(), value })
}

impl Header {
    /// Returns the name and the value, as the API expects them: `None` removes the header.
    fn read(&self) -> Result<(String, Option<String>)> {
        let value = match &self.value {
            HeaderValue::Removed => None,
            HeaderValue::Text(text) => Some(text.clone()),
            HeaderValue::File(file) => Some(read_secret(file)?),
        };
        // The API removes a header only by the name that it shows, in lower case.
        Ok((self.name.to_ascii_lowercase(), value))
    }
}

/// Reads a secret. It is in a file because everyone can see the options of a process.
fn read_secret(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    if let Some(warning) = private_files::warning(path) {
        print_labelled("warning", &warning);
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| CliError::io("open", &name, &error))?;
    file.take(MAX_SECRET_FILE)
        .read_to_string(&mut text)
        .map_err(|error| CliError::io("read", &name, &error))?;
    Ok(text.trim().to_owned())
}

/// Describes the setting for people.
pub(crate) fn show(push: Option<&PushJson>) -> String {
    let Some(push) = push else { return "no".to_owned() };
    let url = push.url.as_deref().unwrap_or("(unknown)");
    match push.secrets.iter().flatten().map(Vec::len).sum() {
        0 => format!("to {url}, unsigned"),
        1 => format!("to {url}, signed"),
        count => format!("to {url}, signed with {count} secrets"),
    }
}
