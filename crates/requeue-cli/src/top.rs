//! `top`: a live overview of a server or store on a terminal.
//!
//! ```text
//!   keys (thread) ─────┐
//!   snapshots (task) ──┼──▶ State ──▶ draw ──▶ terminal
//!   events (task) ─────┘      │
//!        ▲                    └──▶ Action: quit, refresh, pause
//!        └── Wanted: only what is shown is fetched
//! ```

mod columns;
mod data;
mod draw;
mod horizon;
mod live;
mod state;
mod terminal;

use crate::error::{CliError, Result};
use crate::events::is_temporary;
use crate::output::Output;
use crate::signals::Signals;
use crate::store_args::StoreArgs;
use crate::times;
use data::{Snapshot, Source, Wanted};
use live::LiveEvents;
use ratatui::crossterm::event::{Event, KeyEventKind};
use requeue_jobs::Kind;
use state::{Action, State};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;
use terminal::{Screen, terminal_events};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::MissedTickBehavior;

/// The shortest time between two redraws for events, of which there may be thousands per second.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// How often the ages on the screen are redrawn if nothing else happens.
const AGE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Shows all kinds with their counts and rates, and what becomes due next. Keys
also show the workers and the events of a server. Press ? for the keys.

Rates, lateness, workers and events come from a server. With --data or --store,
only the counts and what becomes due are known.

`p` pauses or resumes the selected kind, which needs a token with full access.

Examples:
  requeue top
  requeue top --interval 5s --server https://queue.example.com
  requeue top --data requeue-data")]
pub(crate) struct Args {
    /// Time between two looks at the store
    #[arg(long, value_name = "DURATION", value_parser = times::interval, default_value = "1s")]
    interval: Duration,
}

pub(crate) async fn top(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    if out.json {
        return Err(CliError::usage("`requeue top` has no JSON output")
            .hint("use `requeue stats --watch --json`"));
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CliError::usage("`requeue top` needs a terminal")
            .hint("in a pipe or a file, use `requeue stats --watch`"));
    }
    let source = Source::open(store_args).await?;
    let signals = Signals::with_hangup()?;
    let colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let state = State::new(source.name.clone(), source.server.is_some(), colors);
    let mut top = Top::start(source, state, args.interval);
    let screen = Screen::enter()?;
    top.run(screen, signals).await
}

/// The running program.
struct Top {
    state: State,
    source: Source,
    wanted: watch::Sender<Wanted>,
    refresh: Arc<Notify>,
    snapshots: mpsc::Receiver<Result<Snapshot>>,
    events: (mpsc::Sender<String>, mpsc::Receiver<String>),
    live: Option<LiveEvents>,
    /// Results of actions.
    messages: (mpsc::Sender<String>, mpsc::Receiver<String>),
}

impl Top {
    fn start(source: Source, state: State, interval: Duration) -> Self {
        let (wanted, wants) = watch::channel(state.wanted());
        let (to, snapshots) = mpsc::channel(1);
        let refresh = Arc::new(Notify::new());
        tokio::spawn(fetch_all(source.clone(), wants, Arc::clone(&refresh), interval, to));
        let (events, messages) = (mpsc::channel(256), mpsc::channel(16));
        Top { state, source, wanted, refresh, snapshots, events, live: None, messages }
    }

    /// Draws and reacts until the user quits or a signal arrives.
    async fn run(&mut self, mut screen: Screen, mut signals: Signals) -> Result<()> {
        let mut terminal = terminal_events();
        let mut ages = tokio::time::interval(AGE_INTERVAL);
        ages.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.follow_events();
            screen.draw(&mut self.state)?;
            self.wanted.send_replace(self.state.wanted());
            tokio::select! {
                () = signals.next() => return Ok(()),
                event = terminal.recv() => match event {
                    // The terminal is gone.
                    None => return Ok(()),
                    Some(event) => if self.react(&event) { return Ok(()) },
                },
                snapshot = self.snapshots.recv() => self.take(snapshot)?,
                Some(line) = self.events.1.recv() => self.take_events(line).await,
                Some(message) = self.messages.1.recv() => {
                    self.state.message = Some(message);
                    self.refresh.notify_one();
                }
                _ = ages.tick() => {}
            }
        }
    }

    /// Opens or closes the stream of events, as the panel is shown or not.
    fn follow_events(&mut self) {
        match (&self.source.server, self.state.panels.events) {
            (Some(server), true) => {
                let to = &self.events.0;
                self.live.get_or_insert_with(|| LiveEvents::start(server.clone(), to.clone()));
            }
            _ => self.live = None,
        }
    }

    /// Reacts to a key. Returns `true` to quit.
    fn react(&mut self, event: &Event) -> bool {
        // After a resize there is nothing to do but to draw.
        let Event::Key(key) = event else { return false };
        if key.kind == KeyEventKind::Release {
            return false;
        }
        match self.state.key(*key) {
            Some(Action::Quit) => return true,
            Some(Action::Refresh) => {
                self.wanted.send_replace(self.state.wanted());
                self.refresh.notify_one();
            }
            Some(Action::Pause { kind, paused }) => self.pause(kind, paused),
            None => {}
        }
        false
    }

    /// Shows a snapshot or an error. Fails if the first request was rejected, for example because of the token:
    /// trying again would not help.
    fn take(&mut self, snapshot: Option<Result<Snapshot>>) -> Result<()> {
        match snapshot {
            Some(Ok(snapshot)) => self.state.show(snapshot),
            Some(Err(error)) if self.state.snapshot.is_none() && !is_temporary(&error) => {
                return Err(error);
            }
            Some(Err(error)) => self.state.show_trouble(error.text().to_owned(), times::now()),
            None => {
                let text = "the task that reads the store has ended";
                return Err(CliError::new(crate::error::Exit::Failed, text));
            }
        }
        Ok(())
    }

    /// Takes this event and those that arrive within [`REDRAW_INTERVAL`], to draw them together.
    async fn take_events(&mut self, line: String) {
        self.state.add_event(line);
        let end = tokio::time::Instant::now() + REDRAW_INTERVAL;
        while let Ok(Some(line)) = tokio::time::timeout_at(end, self.events.1.recv()).await {
            self.state.add_event(line);
        }
    }

    /// Pauses or resumes a kind in the background. The result is a message.
    fn pause(&mut self, kind: Kind, paused: bool) {
        let (source, to) = (self.source.clone(), self.messages.0.clone());
        tokio::spawn(async move {
            let (done, verb) = if paused { ("paused", "pause") } else { ("resumed", "resume") };
            let message = match source.pause(&kind, paused).await {
                Ok(()) => format!("{done} {kind}"),
                Err(error) => format!("could not {verb} {kind}: {}", error.text()),
            };
            // Nobody receives it if the program is about to end.
            let _ = to.send(message).await;
        });
    }
}

/// Fetches a snapshot every interval, and when notified, until nobody receives them.
async fn fetch_all(
    mut source: Source,
    wanted: watch::Receiver<Wanted>,
    refresh: Arc<Notify>,
    interval: Duration,
    to: mpsc::Sender<Result<Snapshot>>,
) {
    loop {
        let wanted = wanted.borrow().clone();
        let snapshot = source.fetch(&wanted).await;
        if to.send(snapshot).await.is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = refresh.notified() => {}
        }
    }
}
