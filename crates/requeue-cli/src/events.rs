//! `events`: prints what a server does, as it happens.
//!
//! A stream that breaks is opened again. What happens in between is not printed, because a server does not
//! store events; a note on stderr reports the gap.

use crate::error::{CliError, Exit, Result};
use crate::output::{Output, escape, print_json_note, print_note};
use crate::signals::Signals;
use crate::store_args::StoreArgs;
use crate::times;
use requeue_http::HttpStore;
use requeue_http::client::{EventStream, StreamedEvent};
use requeue_http::wire::EventJson;
use requeue_jobs::Kind;
use serde_json::json;
use std::time::Duration;

/// The delay before a broken stream is opened again. It doubles after each failure.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The longest delay before a broken stream is opened again.
const MAX_DELAY: Duration = Duration::from_secs(15);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints one line per event until it is interrupted: the time, what happened, the
job, and details. Events are those of one server, from now on: they are not
stored. If this command is too slow, a line `missed` has the number of events
that are not printed.

If the connection breaks, the command connects again, with a note on stderr.

Examples:
  requeue events
  requeue events mail sms
  requeue events --json | jq -r 'select(.event == \"dead\") | .id'")]
pub(crate) struct Args {
    /// Only print the events of this kind [default: all kinds]
    #[arg(value_name = "KIND")]
    kinds: Vec<String>,
}

pub(crate) async fn events(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    let mut signals = Signals::with_hangup()?;
    let kinds = args.kinds.into_iter().map(Kind::with_reserved).collect::<Result<Vec<_>, _>>()?;
    let server = store_args.connect_server("events")?;
    tokio::select! {
        done = print_all(&server, &kinds, out) => done,
        () = signals.next() => Ok(()),
    }
}

/// Prints events until nobody reads them any more, or until the server rejects the request.
async fn print_all(server: &HttpStore, kinds: &[Kind], out: Output) -> Result<()> {
    let mut stream = server.events(kinds).await?;
    note_connected(server, out, "listening to events of");
    loop {
        let error = match print_stream(&mut stream, out).await? {
            End::NobodyReads => return Ok(()),
            End::Broken(error) => error,
        };
        note_broken(&error, out);
        stream = reopen(server, kinds, out).await?;
        note_connected(server, out, "connected again; events in between are not shown:");
    }
}

enum End {
    NobodyReads,
    Broken(CliError),
}

async fn print_stream(stream: &mut EventStream, out: Output) -> Result<End> {
    loop {
        let is_read = match stream.next().await {
            Ok(Some(StreamedEvent::Event(event))) if out.json => out.print_json_while_read(&event),
            Ok(Some(StreamedEvent::Event(event))) => out.print_while_read(line(&event)),
            Ok(Some(StreamedEvent::Missed { count })) if out.json => {
                out.print_json_while_read(&json!({ "event": "missed", "count": count }))
            }
            Ok(Some(StreamedEvent::Missed { count })) => out.print_while_read(missed_line(count)),
            // A newer version of the client may know more than this one.
            Ok(Some(_)) => Ok(true),
            Ok(None) => {
                let error = CliError::new(Exit::Unavailable, "the server has ended the stream");
                return Ok(End::Broken(error));
            }
            Err(error) => return Ok(End::Broken(error.into())),
        };
        if !is_read? {
            return Ok(End::NobodyReads);
        }
    }
}

/// Opens the stream again, as often as necessary. Fails if the server rejects it, for example because the
/// token is not valid any more.
async fn reopen(server: &HttpStore, kinds: &[Kind], out: Output) -> Result<EventStream> {
    let mut delay = FIRST_DELAY;
    let mut last_error = String::new();
    loop {
        tokio::time::sleep(delay).await;
        match server.events(kinds).await.map_err(CliError::from) {
            Ok(stream) => return Ok(stream),
            Err(error) if !is_temporary(&error) => return Err(error),
            Err(error) => {
                // Once per reason: a server may be away for hours.
                let text = error.text().to_owned();
                if text != last_error {
                    note_broken(&error, out);
                    last_error = text;
                }
            }
        }
        delay = (delay * 2).min(MAX_DELAY);
    }
}

/// Whether the same request may succeed later.
pub(crate) fn is_temporary(error: &CliError) -> bool {
    matches!(error.exit, Exit::Unavailable | Exit::Unknown)
}

fn note_connected(server: &HttpStore, out: Output, text: &str) {
    if out.json {
        print_json_note(&json!({ "listening": server.url() }));
    } else {
        print_note(&format!("{text} {}", escape(server.url())));
    }
}

fn note_broken(error: &CliError, out: Output) {
    if out.json {
        print_json_note(&json!({ "error": error.text(), "trying_again": true }));
    } else {
        print_note(&format!("error: {}; trying again", escape(error.text())));
    }
}

/// An event on one line. Everything that comes from outside is escaped.
pub(crate) fn line(event: &EventJson) -> String {
    let at = times::exact(&event.at);
    let time = at.and_then(|at| times::in_local_zone(at, "%Y-%m-%d %H:%M:%S%.3f"));
    let time = time.unwrap_or_else(|| escape(&event.at));
    format!("{time}  {}", untimed_line(event))
}

/// Like [`line()`], with the time of day only.
pub(crate) fn short_line(event: &EventJson) -> String {
    let at = times::exact(&event.at);
    let time = at.and_then(|at| times::in_local_zone(at, "%H:%M:%S"));
    format!("{}  {}", time.unwrap_or_default(), untimed_line(event))
}

fn untimed_line(event: &EventJson) -> String {
    let name = escape(&event.event);
    let mut text = format!("{name:<9}  {}", escape(&event.kind));
    if let Some(id) = &event.id {
        text.push('/');
        text += &escape(id);
    }
    for detail in details(event) {
        text += ", ";
        text += &detail;
    }
    text
}

pub(crate) fn missed_line(count: u64) -> String {
    format!("missed {count} events, because they were not read fast enough")
}

fn details(event: &EventJson) -> Vec<String> {
    let mut details = Vec::new();
    details.extend(event.outcome.as_deref().map(escape));
    details.extend(event.worker.as_deref().map(|worker| format!("worker {}", escape(worker))));
    details.extend(event.attempt.map(|attempt| format!("attempt {attempt}")));
    details.extend(event.until.as_deref().map(|until| show_until(event, until)));
    details.extend(event.paused.map(|paused| if paused { "paused" } else { "not paused" }.into()));
    details
}

/// The end of a lease, or when the job of a `retried` event is due again. Without the date if it is that of
/// the event.
fn show_until(event: &EventJson, until: &str) -> String {
    let word = if event.event == "retried" { "due" } else { "until" };
    let local = |time: &str, format: &str| times::in_local_zone(times::exact(time)?, format);
    let date = |time: &str| local(time, "%Y-%m-%d");
    let same_day = date(&event.at).is_some() && date(&event.at) == date(until);
    let format = if same_day { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    format!("{word} {}", local(until, format).unwrap_or_else(|| escape(until)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(json: serde_json::Value) -> EventJson {
        serde_json::from_value(json).expect("an event")
    }

    #[test]
    fn a_line_has_the_job_and_the_details() {
        let claimed = event(json!({
            "event": "claimed", "kind": "mail", "id": "order-42", "generation": 1, "attempt": 2,
            "at": "2026-12-01T08:00:00.000Z", "worker": "laptop",
            "until": "2026-12-01T08:00:30.000Z",
        }));
        let line = untimed_line(&claimed);
        assert!(line.starts_with("claimed    mail/order-42, worker laptop, attempt 2, until "));
        assert!(line.ends_with(":30"), "{line}");
        let until = Some("2027-12-01T08:00:30.000Z".into());
        let line = untimed_line(&EventJson { event: "retried".to_owned(), until, ..claimed });
        assert!(line.contains("attempt 2, due 2027-12-01 "), "{line}");
        let settings = event(json!({
            "event": "settings", "kind": "mail", "at": "2026-12-01T08:00:00.000Z", "paused": true,
        }));
        assert_eq!(untimed_line(&settings), "settings   mail, paused");
    }

    #[test]
    fn control_characters_in_any_field_are_escaped() {
        let evil = "\u{1b}[2J\n\u{202e}";
        let line = line(&event(json!({
            "event": evil, "kind": evil, "id": evil, "at": evil, "worker": evil, "outcome": evil,
            "until": evil,
        })));
        assert!(!crate::output::is_escaped(&line), "{line}");
        assert_eq!(line.matches("[2J").count(), 7, "{line}");
    }
}
