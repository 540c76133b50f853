//! `put`: one job, or a file of them.

use crate::failure::{Exit, Failure, Result};
use crate::out::{Out, plain};
use crate::shown::{self, OfJob};
use crate::store_args::{IfMissing, StoreArgs};
use crate::times;
use clap::ValueEnum;
use requeue_http::wire::{ParseContext, PutDone, PutRequest};
use requeue_jobs::limits::{MAX_BATCH, MAX_BATCH_BYTES, MAX_BODY_LEN};
use requeue_jobs::{
    Body, Condition, Due, Generation, JobId, Kind, Mode, Placed, Put, PutError, Store, Timestamp,
};
use serde_json::value::RawValue;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

/// Bytes of a line of jobs: a body in base64, and what goes with it.
const MAX_LINE: usize = 2 * MAX_BODY_LEN;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  requeue put order.close order-42 '{\"reason\":\"unpaid\"}' --in 30m
  requeue put report weekly @report.json --at 'tomorrow 09:00 Europe/Berlin'
  echo hello | requeue put mail a - --if-absent
  requeue put --file jobs.jsonl

Without --content-type, a JSON object or array is application/json, other text is
text/plain, and the rest is application/octet-stream.

A line of --file: {\"kind\":\"mail\",\"id\":\"a\",\"body\":{…},\"delay\":\"5m\"}; also body_text,
body_base64, content_type, due, mode, max_wait, if_absent, if_generation: as in the HTTP API,
where times without a zone are in UTC.")]
pub(crate) struct Args {
    /// What sort of job it is: A-Z a-z 0-9 . _ -
    #[arg(required_unless_present = "file")]
    kind: Option<String>,
    /// Which of its kind; the same id twice is the same job
    #[arg(required_unless_present = "file")]
    id: Option<String>,
    /// What it carries: a text, - for stdin, or @FILE
    body: Option<String>,
    /// Due after this long: 5m, 1h30m, 2 days
    #[arg(long = "in", value_name = "DELAY", value_parser = times::duration, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Due at this time: 2026-12-01T09:00:00+01:00, tomorrow 09:00 Europe/Berlin
    #[arg(long, value_name = "WHEN", value_parser = times::time)]
    at: Option<Timestamp>,
    /// What the body is
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// What becomes of a job that waits already
    #[arg(long, value_enum, default_value_t = ModeName::Replace)]
    mode: ModeName,
    /// How long a debounced job waits at most, counted from its first put
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    max_wait: Option<Duration>,
    /// Only if there is no such job, not even a leased or a dead one
    #[arg(long, conflicts_with = "if_generation")]
    if_absent: bool,
    /// Only if nothing was put since the put that answered this
    #[arg(long, value_name = "N")]
    if_generation: Option<u64>,
    /// Put the jobs of this file, one JSON object per line; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "id", "body", "delay", "at",
        "content_type", "mode", "max_wait", "if_absent", "if_generation"])]
    file: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// the last write wins
    Replace,
    /// the body is replaced, the sooner time stays
    Earliest,
    /// nothing changes
    Keep,
    /// the body is replaced, and the time too, but never past --max-wait
    Debounce,
}

fn mode(name: ModeName, max_wait: Option<Duration>) -> Result<Mode, &'static str> {
    match (name, max_wait) {
        (ModeName::Debounce, Some(max_wait)) => Ok(Mode::Debounce { max_wait }),
        (ModeName::Debounce, None) => Err("mode debounce needs a max-wait"),
        (_, Some(_)) => Err("max-wait is for mode debounce"),
        (ModeName::Replace, None) => Ok(Mode::Replace),
        (ModeName::Earliest, None) => Ok(Mode::Earliest),
        (ModeName::Keep, None) => Ok(Mode::Keep),
    }
}

pub(crate) async fn put(args: Args, place: &StoreArgs, out: Out) -> Result<()> {
    if let Some(file) = &args.file {
        return put_file(file, place, out).await;
    }
    let put = single(args)?;
    let (kind, id) = (put.kind.clone(), put.id.clone());
    let store = place.open(IfMissing::Make).await?;
    let placed = store.put(vec![put]).await?.pop().expect("one answer per entry")?;
    say(out, &kind, &id, placed)
}

fn single(args: Args) -> Result<Put> {
    let kind = Kind::new(args.kind.expect("clap asks for it"))?;
    let id = JobId::new(args.id.expect("clap asks for it"))?;
    let bytes = args.body.as_deref().map_or_else(|| Ok(Vec::new()), body_bytes)?;
    let content_type = args.content_type.unwrap_or_else(|| guessed_type(&bytes).to_owned());
    let mut put = Put::new(kind, id, Body::new(bytes, content_type)?);
    put.due = args.delay.map(Due::After).or(args.at.map(Due::At)).unwrap_or_default();
    put.mode = mode(args.mode, args.max_wait).map_err(Failure::usage)?;
    put.condition = match args.if_generation {
        Some(generation) => Some(Condition::IfGeneration(Generation(generation))),
        None => args.if_absent.then_some(Condition::IfAbsent),
    };
    Ok(put)
}

/// What a body is, where nobody says.
fn guessed_type(bytes: &[u8]) -> &'static str {
    let Ok(text) = str::from_utf8(bytes) else { return "application/octet-stream" };
    match text.trim_start().chars().next() {
        None => "application/octet-stream",
        Some('{' | '[') if serde_json::from_str::<&RawValue>(text).is_ok() => "application/json",
        Some(_) => "text/plain; charset=utf-8",
    }
}

fn body_bytes(body: &str) -> Result<Vec<u8>> {
    // One more than may be, so that too large a file is told and not read to its end.
    let limit = MAX_BODY_LEN as u64 + 1;
    let mut bytes = Vec::new();
    let (name, read) = if body == "-" {
        ("stdin", std::io::stdin().lock().take(limit).read_to_end(&mut bytes))
    } else if let Some(name) = body.strip_prefix('@') {
        let file = std::fs::File::open(Path::new(name));
        (name, file.and_then(|file| file.take(limit).read_to_end(&mut bytes)))
    } else {
        return Ok(body.as_bytes().to_vec());
    };
    read.map_err(|error| Failure::file("read", name, &error))?;
    Ok(bytes)
}

fn say(out: Out, kind: &Kind, id: &JobId, placed: Placed) -> Result<()> {
    let done = PutDone::from(placed);
    out.say(
        || OfJob { kind: kind.as_str(), id: id.as_str(), done },
        || {
            let (outcome, id) = (shown::word(done.outcome), plain(id.as_str()));
            format!("{outcome} {kind}/{id} as generation {}", done.generation)
        },
    )
}

/// A job of a file.
fn read(line: &[u8]) -> Result<Put, String> {
    let request: PutRequest = serde_json::from_slice(line).map_err(|error| {
        // It counts lines of its own.
        let (told, at) = (error.to_string(), format!(" at line {} column", error.line()));
        let told = told.split(&at).next().unwrap_or_default();
        format!("{told}, at column {}", error.column())
    })?;
    let reading = ParseContext { now: times::now() };
    request.read("", None, None, &reading).map_err(|problem| problem.detail)
}

/// Puts the jobs of a file, in batches. The first line that is wrong ends it; what is before it
/// was put, and putting it again does no harm.
async fn put_file(name: &str, place: &StoreArgs, out: Out) -> Result<()> {
    let (name, input): (_, Box<dyn Read>) = if name == "-" {
        ("stdin", Box::new(std::io::stdin().lock()))
    } else {
        let file = std::fs::File::open(name);
        (name, Box::new(file.map_err(|error| Failure::file("open", name, &error))?))
    };
    let mut input = BufReader::new(input);
    let store = place.open(IfMissing::Make).await?;
    let mut batch =
        Batch { store: &*store, out, puts: Vec::new(), bytes: 0, first: 0, worst: None };
    let (mut line, mut number) = (Vec::new(), 0u64);
    let wrong = loop {
        line.clear();
        number += 1;
        match (&mut input).take(MAX_LINE as u64).read_until(b'\n', &mut line) {
            Ok(0) => break None,
            Ok(_) => {}
            Err(error) => break Some(Failure::file("read", name, &error)),
        }
        if line.len() == MAX_LINE {
            let told = format!("line {number} of {name} has more than {MAX_LINE} bytes");
            break Some(Failure::usage(told));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match read(line.trim_ascii_end()) {
            Ok(put) => batch.add(put, number).await?,
            Err(told) => break Some(Failure::usage(format!("line {number} of {name}: {told}"))),
        }
    };
    batch.send().await?;
    match (wrong, batch.worst) {
        (Some(wrong), _) if number == 1 => Err(wrong),
        (Some(wrong), None) => Err(wrong.hint("the lines before it were put")),
        (Some(wrong), Some(exit)) => {
            let hint = "the lines before it were put, but for those that were refused";
            Err(wrong.at_least(exit).hint(hint))
        }
        (None, Some(exit)) => Err(Failure::told_already(exit)),
        (None, None) => Ok(()),
    }
}

/// Puts that go together.
struct Batch<'a> {
    store: &'a dyn Store,
    out: Out,
    puts: Vec<Put>,
    bytes: usize,
    /// The line of the first of them.
    first: u64,
    worst: Option<Exit>,
}

impl Batch<'_> {
    async fn add(&mut self, put: Put, line: u64) -> Result<()> {
        if self.puts.len() == MAX_BATCH || self.bytes + put.body.len() > MAX_BATCH_BYTES {
            self.send().await?;
        }
        if self.puts.is_empty() {
            self.first = line;
        }
        self.bytes += put.body.len();
        self.puts.push(put);
        Ok(())
    }

    async fn send(&mut self) -> Result<()> {
        if self.puts.is_empty() {
            return Ok(());
        }
        let puts = std::mem::take(&mut self.puts);
        self.bytes = 0;
        let names: Vec<_> = puts.iter().map(|put| (put.kind.clone(), put.id.clone())).collect();
        let answers = self.store.put(puts).await.map_err(|error| {
            let failure = Failure::from(error);
            match self.first {
                0 | 1 => failure,
                first => failure.hint(format!("the lines before line {first} were put")),
            }
        })?;
        for ((kind, id), answer) in names.into_iter().zip(answers) {
            match answer {
                Ok(placed) => say(self.out, &kind, &id, placed)?,
                Err(error) => self.fail(error),
            }
        }
        Ok(())
    }

    fn fail(&mut self, error: PutError) {
        let exit = self.out.fail(error);
        self.worst = Some(self.worst.map_or(exit, |worst| worst.worse(exit)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_guessed_to_be_what_it_looks_like() {
        for (bytes, guessed) in [
            (&b"{\"a\":1}"[..], "application/json"),
            (b" [1]\n", "application/json"),
            (b"{a:1}", "text/plain; charset=utf-8"),
            (b"42", "text/plain; charset=utf-8"),
            (b"", "application/octet-stream"),
            (b"\xff", "application/octet-stream"),
        ] {
            assert_eq!(guessed_type(bytes), guessed, "{bytes:?}");
        }
    }

    #[test]
    fn a_line_says_what_is_wrong_with_it() {
        let read = |line: &str| read(line.as_bytes());
        let put = read(r#"{"kind":"mail","id":"a","body":{"x":1.50},"delay":"5m"}"#).unwrap();
        assert_eq!(put.body.bytes(), br#"{"x":1.50}"#);
        assert_eq!(put.due, Due::After(Duration::from_secs(300)));
        for (line, told) in [
            (r#"{"kind":"mail"}"#, "id: this field is missing"),
            (r#"{"kind":"mail","id":"a","dely":"5m"}"#, "unknown field `dely`"),
            (r#"{"kind":"ma il","id":"a"}"#, "allowed are"),
            (r#"{"kind":"mail","id":"a","body":1,"body_text":"x"}"#, "only one of"),
            (r#"{"kind":"mail","id":"a","delay":"5 parsecs"}"#, "delay: "),
            (r#"{"kind":"mail","id":"a","mode":"debounce"}"#, "requires max_wait"),
            (r#"{"kind":"mail","id":"a","body_base64":"?"}"#, "body_base64: "),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(told), "{line}: {error}");
        }
    }
}
