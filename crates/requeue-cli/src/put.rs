//! `put`: puts one job, or all jobs of a file.

use crate::args::word;
use crate::body::BodyType;
use crate::error::{CliError, Exit, Result};
use crate::format::JobResult;
use crate::job_name;
use crate::output::{Output, count, escape, print_labelled};
use crate::progress::Bar;
use crate::store_args::{IfMissing, StoreArgs};
use crate::times;
use requeue_http::wire::{DurationText, PutDone, PutMode, PutRequest, TimeText, Word};
use requeue_jobs::limits::{MAX_BATCH, MAX_BATCH_BYTES, MAX_BODY_LEN, MAX_PRIORITY};
use requeue_jobs::{JobId, Kind, Placed, Put, PutError, PutOutcome, Store, Timestamp};
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

/// Maximum length of a line of `--file`, in bytes: a body in base64, and the other fields.
const MAX_LINE: usize = 2 * MAX_BODY_LEN;

#[derive(Debug, clap::Args)]
#[command(override_usage = "\
requeue put [OPTIONS] <KIND> <ID> [BODY]
       requeue put [OPTIONS] <KIND>/<ID> [BODY]
       requeue put [OPTIONS] --file <FILE>")]
#[command(after_help = "\
Examples:
  requeue put mail order-42 '{\"to\":\"ann@example.org\"}' --in 30m
  requeue put report weekly @report.json --at 'tomorrow 09:00 Europe/Berlin'
  echo hello | requeue put mail greeting - --if-absent
  requeue put mail order-43 --priority 9 --if-new
  requeue put --file jobs.jsonl

Durations: 250ms, 90s, 5m, 1h30m, 2 days. Times: 2026-12-01T09:00:00+01:00,
'2026-12-01 09:00 Europe/Berlin', 'monday 08:30'; without a time zone, they are
in the zone of this machine.

Each line of --file is a JSON object with the fields of the HTTP API: kind, id,
body or body_text or body_base64, content_type, delay or due, priority, mode,
max_wait, if_absent, if_new, if_generation. There, times need a time zone:
  {\"kind\":\"mail\",\"id\":\"order-42\",\"body\":{\"n\":1},\"delay\":\"5m\"}")]
pub(crate) struct Args {
    /// Kind of the job; letters, digits and . _ -
    #[arg(required_unless_present = "file")]
    kind: Option<String>,
    /// Id of the job; a put with the id of an existing job replaces that job
    id: Option<String>,
    /// Body of the job: text, - to read stdin, or @FILE to read a file [default: empty]
    body: Option<String>,
    /// Time until the job is due, such as 5m or 1h30m [default: due now]
    #[arg(long = "in", visible_alias = "delay", value_name = "DURATION")]
    #[arg(value_parser = times::duration, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Time at which the job is due, such as 'tomorrow 09:00 Europe/Berlin'
    #[arg(long, visible_alias = "due", value_name = "TIME", value_parser = times::time)]
    at: Option<Timestamp>,
    /// Priority, 0 to 9; of the ready jobs of a kind, higher ones are claimed first [default: 0]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_PRIORITY)))]
    priority: Option<u8>,
    #[command(flatten)]
    body_type: BodyType,
    /// How to update a job that is already pending
    #[arg(long, value_parser = word::<PutMode>(), default_value = "replace")]
    mode: PutMode,
    /// With --mode debounce, the maximum time from the first put to the due time
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    max_wait: Option<Duration>,
    /// Fail if the job exists, in any state but done
    #[arg(long, conflicts_with_all = ["if_new", "if_generation"])]
    if_absent: bool,
    /// Fail if the job exists, also if it is done
    ///
    /// A kind keeps done jobs if that is set with `requeue kind KIND --keep-done DURATION`. Then a
    /// put with --if-new can be repeated, and the job still runs once.
    #[arg(long, conflicts_with = "if_generation")]
    if_new: bool,
    /// Fail unless the latest put of the job returned generation N
    #[arg(long, value_name = "N")]
    if_generation: Option<u64>,
    /// Put all jobs of a file, one JSON object per line; - to read stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "id", "body", "delay", "at",
        "priority", "content_type", "text", "mode", "max_wait", "if_absent", "if_new", "if_generation"])]
    file: Option<String>,
}

pub(crate) async fn put(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    if let Some(file) = &args.file {
        return put_file(file, store_args, out).await;
    }
    let (put, has_body) = single(args)?;
    let (kind, id) = (put.kind.clone(), put.id.clone());
    let store = store_args.open(IfMissing::Create).await?;
    let placed =
        store.put(vec![put]).await?.pop().expect("a store returns one result per entry")?;
    print(out, &kind, &id, placed)?;
    let replaced = !matches!(placed.outcome, PutOutcome::Created | PutOutcome::Kept);
    if replaced && !has_body && !out.json {
        print_labelled(
            "note",
            "a put without a body makes the body of an existing job empty; to change only the due \
             time: requeue reschedule",
        );
    }
    Ok(())
}

/// The put of the arguments, and whether they contain a body.
fn single(args: Args) -> Result<(Put, bool)> {
    let first = args.kind.expect("clap requires it");
    let (kind, id, body) = job_name::split(first, [args.id, args.body])?;
    let (kind, id) = (Kind::new(kind)?, JobId::new(id)?);
    let payload = args.body_type.read(body.as_deref().unwrap_or_default(), MAX_BODY_LEN)?;
    let request = PutRequest {
        due: args.at.map(TimeText::from),
        delay: args.delay.map(DurationText::from),
        priority: args.priority,
        mode: Some(args.mode),
        max_wait: args.max_wait.map(DurationText::from),
        if_absent: args.if_absent,
        if_new: args.if_new,
        if_generation: args.if_generation,
        ..Put::new(kind, id, payload).into()
    };
    let put = request.read(None, None, &times::context()).map_err(CliError::of_request)?;
    Ok((put, body.is_some()))
}

/// Prints the result of a put or a reschedule.
pub(crate) fn print(out: Output, kind: &Kind, id: &JobId, placed: Placed) -> Result<()> {
    let done = PutDone::from(placed);
    out.print(
        || JobResult { kind: kind.as_str(), id: id.as_str(), done },
        || {
            let (outcome, id) = (done.outcome.name(), escape(id.as_str()));
            format!("{outcome} {kind}/{id} as generation {}", done.generation)
        },
    )
}

/// Parses a line of `--file`.
fn read(line: &[u8]) -> Result<Put, String> {
    let request: PutRequest = serde_json::from_slice(line).map_err(|error| {
        // serde_json reports the line number within this line, which is always 1.
        let (message, at) = (error.to_string(), format!(" at line {} column", error.line()));
        let message = message.split(&at).next().unwrap_or_default();
        format!("{message}, at column {}", error.column())
    })?;
    request.read(None, None, &times::context()).map_err(|problem| problem.detail)
}

/// Puts the jobs of a file, in batches. Stops at the first invalid line. The lines before it are
/// put; putting them again is harmless.
async fn put_file(name: &str, store_args: &StoreArgs, out: Output) -> Result<()> {
    let (name, len, input): (_, u64, Box<dyn Read>) = if name == "-" {
        ("stdin", 0, Box::new(std::io::stdin().lock()))
    } else {
        let file = std::fs::File::open(name);
        let file = file.map_err(|error| CliError::io("open", name, &error))?;
        (name, file.metadata().map_or(0, |data| data.len()), Box::new(file))
    };
    let mut lines = Lines { name, input: BufReader::new(input), read: 0 };
    let store = store_args.open(IfMissing::Create).await?;
    let mut batch = Batch::new(&*store, out);
    let bar = (!out.json && len > 0).then(Bar::bytes);
    let done = put_lines(&mut lines, &mut batch, |read| {
        if let Some(bar) = &bar {
            bar.at(read, len);
        }
    });
    let done = done.await;
    if let Some(bar) = bar {
        bar.end();
    }
    // Also after an error, which reports what is missing.
    if !out.json && (done.is_ok() || batch.is_any_sent()) {
        out.print_line(batch.summary())?;
    }
    done
}

/// The lines of a file.
struct Lines<'a> {
    name: &'a str,
    input: BufReader<Box<dyn Read>>,
    /// How many bytes were read.
    read: u64,
}

impl Lines<'_> {
    /// Reads the next line. Returns `false` at the end.
    fn next(&mut self, line: &mut Vec<u8>, number: u64) -> Result<bool> {
        line.clear();
        let name = self.name;
        let read = (&mut self.input).take(MAX_LINE as u64).read_until(b'\n', line);
        self.read += read.map_err(|error| CliError::io("read", name, &error))? as u64;
        if line.len() == MAX_LINE {
            let message = format!("line {number} of {name} is longer than {MAX_LINE} bytes");
            return Err(CliError::usage(message));
        }
        Ok(!line.is_empty())
    }
}

async fn put_lines(
    lines: &mut Lines<'_>,
    batch: &mut Batch<'_>,
    progress: impl Fn(u64),
) -> Result<()> {
    let (mut line, mut number) = (Vec::new(), 0u64);
    let invalid = loop {
        number += 1;
        match lines.next(&mut line, number) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some(error),
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match read(line.trim_ascii_end()) {
            Ok(put) => batch.add(put, number).await?,
            Err(message) => {
                let name = lines.name;
                break Some(CliError::usage(format!("line {number} of {name}: {message}")));
            }
        }
        progress(lines.read);
    };
    batch.send().await?;
    match (invalid, batch.worst) {
        (Some(error), _) if number == 1 => Err(error),
        (Some(error), None) => Err(error.hint("the lines before it were put")),
        (Some(error), Some(exit)) => {
            let hint = "the lines before it were put, except those with an error above";
            Err(error.at_least(exit).hint(hint))
        }
        (None, Some(exit)) => Err(CliError::already_reported(exit)),
        (None, None) => Ok(()),
    }
}

/// Puts that are sent together.
struct Batch<'a> {
    store: &'a dyn Store,
    out: Output,
    puts: Vec<Put>,
    bytes: usize,
    /// The line number of the first of them.
    first: u64,
    worst: Option<Exit>,
    /// How many puts had each outcome.
    outcomes: Vec<(&'static str, u64)>,
    failed: u64,
}

impl<'a> Batch<'a> {
    fn new(store: &'a dyn Store, out: Output) -> Self {
        Batch {
            store,
            out,
            puts: Vec::new(),
            bytes: 0,
            first: 0,
            worst: None,
            outcomes: Vec::new(),
            failed: 0,
        }
    }

    fn is_any_sent(&self) -> bool {
        self.failed > 0 || !self.outcomes.is_empty()
    }

    /// The result of all puts, such as `put 3 jobs: 2 created, 1 updated`.
    fn summary(&self) -> String {
        let done: u64 = self.outcomes.iter().map(|(_, jobs)| jobs).sum();
        let outcomes = self.outcomes.iter().map(|(outcome, jobs)| format!("{jobs} {outcome}"));
        let outcomes = outcomes.collect::<Vec<_>>().join(", ");
        let of = if self.failed > 0 { format!("{done} of ") } else { String::new() };
        let jobs = count(done + self.failed, "job");
        let colon = if outcomes.is_empty() { "" } else { ": " };
        format!("put {of}{jobs}{colon}{outcomes}")
    }

    async fn add(&mut self, put: Put, line: u64) -> Result<()> {
        if self.puts.len() == MAX_BATCH || self.bytes + put.content.len() > MAX_BATCH_BYTES {
            self.send().await?;
        }
        if self.puts.is_empty() {
            self.first = line;
        }
        self.bytes += put.content.len();
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
        let results = self.store.put(puts).await.map_err(|error| {
            let failure = CliError::from(error);
            match self.first {
                0 | 1 => failure,
                first => failure.hint(format!("the lines before line {first} were put")),
            }
        })?;
        for ((kind, id), result) in names.into_iter().zip(results) {
            match result {
                Ok(placed) => self.placed(&kind, &id, placed)?,
                Err(error) => self.fail(error),
            }
        }
        Ok(())
    }

    /// Prints the result of a put as JSON; as text, there is only a summary.
    fn placed(&mut self, kind: &Kind, id: &JobId, placed: Placed) -> Result<()> {
        let outcome = PutDone::from(placed).outcome.name();
        match self.outcomes.iter_mut().find(|(name, _)| *name == outcome) {
            Some((_, jobs)) => *jobs += 1,
            None => self.outcomes.push((outcome, 1)),
        }
        if self.out.json { print(self.out, kind, id, placed) } else { Ok(()) }
    }

    fn fail(&mut self, error: PutError) {
        self.failed += 1;
        let exit = self.out.print_error(error);
        self.worst = Some(self.worst.map_or(exit, |worst| worst.worse(exit)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::Due;

    #[test]
    fn the_error_of_an_invalid_line_names_the_problem() {
        let read = |line: &str| read(line.as_bytes());
        let put = read(r#"{"kind":"mail","id":"a","body":{"x":1.50},"delay":"5m"}"#).unwrap();
        assert_eq!(put.content.body.bytes(), br#"{"x":1.50}"#);
        assert_eq!(put.due, Due::After(Duration::from_secs(300)));
        for (line, message) in [
            (r#"{"kind":"mail"}"#, "id: this field is missing"),
            (r#"{"kind":"mail","id":"a","dely":"5m"}"#, "unknown field `dely`"),
            (r#"{"kind":"ma il","id":"a"}"#, "allowed are"),
            (r#"{"kind":"mail","id":"a","body":1,"body_text":"x"}"#, "only one of"),
            (r#"{"kind":"mail","id":"a","delay":"5 parsecs"}"#, "delay: "),
            (r#"{"kind":"mail","id":"a","mode":"debounce"}"#, "requires max_wait"),
            (r#"{"kind":"mail","id":"a","body_base64":"?"}"#, "body_base64: "),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(message), "{line}: {error}");
        }
    }
}
