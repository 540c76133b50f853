//! One server: connected whenever it can be.
//!
//! ```text
//!              checked                        broken, or left
//!   connecting --------> connected ---------------------------> connecting
//!       | ^
//!       +-+ after a while
//! ```

use super::check::check;
use super::live::{Live, unavailable};
use super::sentinels;
use super::stream::Endpoint;
use super::{Settings, Trouble};
use crate::error::ConnectError;
use crate::script::Script;
use redis::{Cmd, Value};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Which server.
#[derive(Clone)]
pub(super) enum Which {
    This(Endpoint),
    /// Whichever the sentinels call their master.
    Master,
}

/// A server that is connected, or will be.
pub(super) struct Server {
    settings: Arc<Settings>,
    state: Arc<watch::Sender<State>>,
    keeper: AbortHandle,
}

enum State {
    Connected(Live),
    /// Why it is not.
    Lost(String),
}

impl Server {
    /// Waits for the first connection, and answers why there is none.
    pub(super) async fn open(
        settings: &Arc<Settings>,
        which: Which,
    ) -> Result<Server, ConnectError> {
        let live = connect(settings, &which).await?;
        Ok(Server::keep(settings, which, State::Connected(live)))
    }

    /// Does not wait.
    pub(super) fn start(settings: &Arc<Settings>, endpoint: Endpoint) -> Server {
        let state = State::Lost(format!("{endpoint}: not yet connected"));
        Server::keep(settings, Which::This(endpoint), state)
    }

    fn keep(settings: &Arc<Settings>, which: Which, state: State) -> Server {
        let state = Arc::new(watch::Sender::new(state));
        let keeper = tokio::spawn(keep(settings.clone(), which, state.clone())).abort_handle();
        Server { settings: settings.clone(), state, keeper }
    }

    /// Sends a command, when there is a connection.
    pub(super) async fn call(
        &self,
        cmd: &Cmd,
        script: Option<&'static Script>,
    ) -> Result<Value, Trouble> {
        let mut live = self.live_until(self.patience()).await.map_err(Trouble::NotDone)?;
        live.run(cmd, false, script).await.map_err(|failure| {
            if failure.leaves() {
                self.leave(&live, &failure.reason());
            }
            failure.trouble(&live.endpoint)
        })
    }

    /// How long a call waits for a connection.
    pub(super) fn patience(&self) -> Instant {
        Instant::now() + self.settings.options.connect_timeout
    }

    /// The connection, if there is one.
    pub(super) fn live(&self) -> Option<Live> {
        match &*self.state.borrow() {
            State::Connected(live) if !live.has_ended() => Some(live.clone()),
            _ => None,
        }
    }

    /// Waits for a connection; answers why there is none.
    pub(super) async fn live_until(&self, end: Instant) -> Result<Live, String> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let mut state = self.state.subscribe();
        loop {
            if let Some(live) = self.live() {
                return Ok(live);
            }
            let is_there = |state: &State| matches!(state, State::Connected(l) if !l.has_ended());
            if timeout_at(end, state.wait_for(is_there)).await.is_err() {
                return Err(self.why_not());
            }
        }
    }

    /// Why there is no connection.
    pub(super) fn why_not(&self) -> String {
        match &*self.state.borrow() {
            State::Connected(live) => format!("{}: the connection was closed", live.endpoint),
            State::Lost(reason) => reason.clone(),
        }
    }

    /// Leaves a connection that is of no use any more.
    pub(super) fn leave(&self, left: &Live, reason: &str) {
        left.close();
        lose(&self.state, left, reason);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.keeper.abort();
        if let State::Connected(live) = &*self.state.borrow() {
            live.close();
        }
    }
}

/// Notes that a connection is over, unless there is another one already.
fn lose(state: &watch::Sender<State>, lost: &Live, reason: &str) {
    state.send_if_modified(|state| {
        let is_it = matches!(state, State::Connected(live) if live.is(lost));
        if is_it {
            *state = State::Lost(format!("{}: {reason}", lost.endpoint));
        }
        is_it
    });
}

/// Connects whenever there is no connection.
async fn keep(settings: Arc<Settings>, which: Which, state: Arc<watch::Sender<State>>) {
    let mut backoff = Backoff::new(&settings);
    loop {
        let live = match &*state.borrow() {
            State::Connected(live) => Some(live.clone()),
            State::Lost(_) => None,
        };
        if let Some(live) = live {
            let since = Instant::now();
            let reason = watch_over(&settings, live.clone()).await;
            live.close();
            lose(&state, &live, &reason);
            // One that breaks at once each time must not be tried at once each time.
            if since.elapsed() > settings.options.longest_backoff {
                backoff = Backoff::new(&settings);
            } else {
                sleep(backoff.next()).await;
            }
        }
        match connect(&settings, &which).await {
            Ok(live) => drop(state.send_replace(State::Connected(live))),
            Err(error) => {
                state.send_replace(State::Lost(error.to_string()));
                sleep(backoff.next()).await;
            }
        }
    }
}

/// Waits for the end of a connection, and answers why. It ends, too, when the server does not
/// fit any more.
async fn watch_over(settings: &Settings, mut live: Live) -> String {
    while timeout(settings.probe(), live.ended()).await.is_err() {
        if let Err(error) = check(&mut live, settings).await {
            return error.to_string();
        }
    }
    "the connection was closed".to_owned()
}

/// Finds a server, connects and checks it.
async fn connect(settings: &Arc<Settings>, which: &Which) -> Result<Live, ConnectError> {
    let connecting = async {
        let endpoint = match which {
            Which::This(endpoint) => endpoint.clone(),
            Which::Master => sentinels::find_master(settings).await?,
        };
        let (login, database) = (&settings.address.login, settings.address.database);
        let mut live = Live::dial(settings, &endpoint, login, database).await?;
        check(&mut live, settings).await?;
        Ok(live)
    };
    let limit = settings.options.connect_timeout;
    timeout(limit, connecting).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {limit:?}");
        match which {
            Which::This(endpoint) => Err(unavailable(endpoint, reason)),
            Which::Master => Err(unavailable(&settings.address, reason)),
        }
    })
}

/// How long to wait before the next attempt.
pub(super) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) fn new(settings: &Settings) -> Backoff {
        let options = &settings.options;
        Backoff { next: options.first_backoff, longest: options.longest_backoff }
    }

    pub(super) fn next(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.longest);
        // Hashers are seeded at random, which is random enough here.
        let random = RandomState::new().hash_one(()) as u32;
        full - full / 2 * (random >> 16) / (1 << 16)
    }
}
