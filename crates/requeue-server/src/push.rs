//! The background task that delivers the jobs of kinds with a push setting.
//!
//! It reads the settings of all such kinds every [`INTERVAL`], and after each change by this node, and
//! sets the targets of a [`Pusher`]. What it knows is kept in [`Push`], for claims, people and metrics.

use crate::app::App;
use crate::health::{Health, PUSH_NOT_UPDATED};
use crate::listen::Shutdown;
use requeue_bridge::{BrokerOptions, broker_target};
use requeue_http::wire::{PushErrorJson, PushStateJson};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::{Jobs, Kind, PushSetting, StoreError, WallClock};
use requeue_push::{
    AllowedTargets, BrokerUrl, CircuitState, DEFAULT_MAX_BYTES, DEFAULT_MAX_IN_FLIGHT, LastError,
    PushClient, PushClientError, PushClientOptions, PushConfig, PushStatus, PushTarget,
    PushTargetStatus, PushUrl, Pusher, PusherOptions,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How often the settings are read again, to notice what other nodes have changed.
const INTERVAL: Duration = Duration::from_secs(10);

/// How the jobs of kinds with a push setting are delivered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PushOptions {
    /// The internal targets that deliveries may connect to, and all message brokers. Default: none, only
    /// webhooks on the public internet.
    pub allowed: AllowedTargets,
    /// A file with certificates of authorities that are trusted in addition to those of the system, in PEM.
    pub ca_file: Option<PathBuf>,
    /// A file with the certificate that the server presents to message brokers, in PEM. Requires `client_key`.
    pub client_cert: Option<PathBuf>,
    /// A file with the private key of that certificate, in PEM.
    pub client_key: Option<PathBuf>,
    /// A `.creds` file with the JWT and the key of a NATS user. Used for all NATS servers.
    pub nats_creds_file: Option<PathBuf>,
    /// The largest number of deliveries in flight, over all kinds. Default: 10,000.
    pub max_in_flight: usize,
    /// The largest sum of the bytes of bodies in flight, over all kinds. Default: 64 MiB; at least 2 MiB.
    pub max_bytes: usize,
}

impl Default for PushOptions {
    fn default() -> Self {
        PushOptions {
            allowed: AllowedTargets::none(),
            ca_file: None,
            client_cert: None,
            client_key: None,
            nats_creds_file: None,
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
            max_bytes: DEFAULT_MAX_BYTES,
        }
    }
}

/// What this node knows about kinds with a push setting.
#[derive(Default)]
pub(crate) struct Push {
    known: Mutex<Known>,
    /// Notified when this node has changed settings.
    changed: Notify,
}

/// Why the jobs of a kind are not delivered at present.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The setting cannot be used, for this reason.
    Problem(String),
    /// The target cannot be reached.
    CircuitOpen { target: String, error: Option<String> },
}

#[derive(Default)]
struct Known {
    pushed: BTreeSet<Kind>,
    /// Why the jobs of a kind are not delivered.
    problems: BTreeMap<Kind, String>,
    pusher: Option<Arc<Pusher>>,
    /// How many changes this node has made. What was read before a change is out of date.
    changes: u64,
}

impl Push {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that this node has stored the settings of a kind.
    pub(crate) fn settings_changed(&self, kind: Kind, is_pushed: bool) {
        let mut known = self.lock();
        let was_pushed = known.pushed.contains(&kind);
        if is_pushed {
            known.pushed.insert(kind);
        } else {
            known.pushed.remove(&kind);
        }
        if is_pushed || was_pushed {
            known.changes += 1;
            self.changed.notify_one();
        }
    }

    /// Reads all settings again, because this node may have stored some.
    pub(crate) fn read_again(&self) {
        self.lock().changes += 1;
        self.changed.notify_one();
    }

    /// Fails if the jobs of the kind are delivered by the service. `n` is its position in the claim.
    pub(crate) fn check_claim(&self, n: usize, kind: &Kind) -> Result<(), Problem> {
        if !self.lock().pushed.contains(kind) {
            return Ok(());
        }
        let detail =
            format!("the jobs of kind {kind} are sent to a URL, so they cannot be claimed");
        Err(Problem::new(ProblemType::Pushed, detail).at(format!("kinds[{n}]")))
    }
}

impl Push {
    /// Returns the state of all deliveries, if there were any.
    pub(crate) fn status(&self) -> Option<PushStatus> {
        let pusher = self.lock().pusher.clone();
        pusher.map(|pusher| pusher.status())
    }

    /// Returns why jobs are not delivered at present, of each kind with such a reason.
    pub(crate) fn stopped(&self) -> BTreeMap<Kind, Stopped> {
        let problems = self.lock().problems.clone();
        let mut stopped = BTreeMap::new();
        if let Some(status) = self.status() {
            let is_open = |one: &&PushTargetStatus| {
                matches!(one.circuit, CircuitState::Open | CircuitState::HalfOpen)
            };
            let open: BTreeSet<&str> =
                status.targets.iter().filter(is_open).map(|one| one.target.as_str()).collect();
            for kind in status.kinds.iter().filter(|kind| open.contains(kind.target.as_str())) {
                let error = kind.last_error.as_ref().map(|last| last.error.clone());
                let why = Stopped::CircuitOpen { target: kind.target.clone(), error };
                stopped.insert(kind.kind.clone(), why);
            }
        }
        stopped.extend(problems.into_iter().map(|(kind, why)| (kind, Stopped::Problem(why))));
        stopped
    }

    /// Returns the state of the deliveries of a kind.
    pub(crate) fn state(&self, kind: &Kind) -> PushStateJson {
        let problem = self.lock().problems.get(kind).cloned();
        let mut state = PushStateJson { problem, ..PushStateJson::default() };
        let Some(status) = self.status() else { return state };
        let Some(found) = status.kinds.into_iter().find(|found| found.kind == *kind) else {
            return state;
        };
        state.in_flight = found.in_flight as u64;
        state.last_error = found
            .last_error
            .map(|LastError { at, error, .. }| PushErrorJson { at: at.into(), error });
        if let Some(target) = status.targets.iter().find(|one| one.target == found.target) {
            state.circuit = Some(target.circuit.as_str().to_owned());
            state.until = target.until.map(Into::into);
            state.limit = target.limit;
        }
        state.target = Some(found.target);
        state
    }
}

/// The task that keeps the targets of a [`Pusher`] up to date.
pub(crate) struct PushTask {
    push: Arc<Push>,
    jobs: Jobs,
    health: Arc<Health>,
    wall_clock: WallClock,
    options: PushOptions,
    /// Made for the first webhook.
    client: Option<PushClient>,
    /// Made when the first kind has a push setting.
    pusher: Option<Arc<Pusher>>,
    /// The settings from which the targets were made.
    current: BTreeMap<Kind, PushSetting>,
}

impl PushTask {
    pub(crate) fn new(app: &App, wall_clock: WallClock) -> Self {
        PushTask {
            push: Arc::clone(app.push()),
            jobs: app.jobs().clone(),
            health: Arc::clone(app.health()),
            wall_clock,
            options: app.limits().push.clone(),
            client: None,
            pusher: None,
            current: BTreeMap::new(),
        }
    }

    /// Runs until `stop` is requested, and then waits until the deliveries have ended, at most `limit`.
    pub(crate) async fn run(mut self, stop: Shutdown, limit: Duration) {
        let work = async {
            loop {
                match self.update().await {
                    Ok(()) => self.health.end(PUSH_NOT_UPDATED),
                    Err(error) => {
                        let detail = format!("changes of push settings are not noticed: {error}");
                        self.health.begin(PUSH_NOT_UPDATED, detail);
                    }
                }
                tokio::select! {
                    () = self.push.changed.notified() => {}
                    () = self.wall_clock.clock().sleep(INTERVAL) => {}
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = work => {}
        }
        if let Some(pusher) = &self.pusher {
            let left = pusher.shut_down(limit).await;
            if left > 0 {
                tracing::warn!(deliveries = left, "shutdown time limit reached during deliveries");
            }
        }
    }

    /// Reads all push settings, and sets the targets that have changed.
    async fn update(&mut self) -> Result<(), StoreError> {
        let changes = self.push.lock().changes;
        let mut settings = BTreeMap::new();
        for view in self.jobs.store().kinds().await?.into_iter().filter(|view| view.push) {
            if let Some(push) = self.jobs.store().settings(view.kind.clone()).await?.push {
                settings.insert(view.kind, push);
            }
        }
        let mut problems = self.push.lock().problems.clone();
        problems.retain(|kind, _| settings.contains_key(kind));
        if let Some(pusher) = &self.pusher {
            let gone = self.current.keys().filter(|kind| !settings.contains_key(*kind));
            gone.for_each(|kind| pusher.set(kind.clone(), None));
        }
        // A target that has not changed keeps its counts.
        for (kind, setting) in &settings {
            if self.current.get(kind) == Some(setting) && !problems.contains_key(kind) {
                continue;
            }
            match self.set(kind, setting) {
                Ok(()) => drop(problems.remove(kind)),
                Err(problem) => {
                    if problems.get(kind) != Some(&problem) {
                        tracing::warn!(%kind, problem, "jobs are not delivered");
                    }
                    problems.insert(kind.clone(), problem);
                }
            }
        }
        let mut known = self.push.lock();
        known.problems = problems;
        known.pusher.clone_from(&self.pusher);
        if known.changes == changes {
            known.pushed = settings.keys().cloned().collect();
        }
        self.current = settings;
        Ok(())
    }

    /// Sets the target of a kind, or stops its deliveries and returns why.
    fn set(&mut self, kind: &Kind, setting: &PushSetting) -> Result<(), String> {
        let made = self.target(setting);
        let (target, result) = match made {
            Ok(target) => (Some(target), Ok(())),
            Err(problem) => (None, Err(problem)),
        };
        if let Some(pusher) = &self.pusher {
            pusher.set(kind.clone(), target);
        }
        result
    }

    fn target(&mut self, setting: &PushSetting) -> Result<PushTarget, String> {
        let config = PushConfig::join(&setting.config, setting.secrets.expose())
            .map_err(|error| error.to_string())?;
        if self.pusher.is_none() {
            let pusher = self.start().map_err(|error| error.to_string())?;
            self.pusher = Some(Arc::new(pusher));
        }
        match &config.url {
            PushUrl::Broker(url) => {
                check_allowed(url, &self.options.allowed)?;
                let mut options = BrokerOptions::default();
                options.ca_file.clone_from(&self.options.ca_file);
                options.client_cert.clone_from(&self.options.client_cert);
                options.client_key.clone_from(&self.options.client_key);
                options.nats_creds_file.clone_from(&self.options.nats_creds_file);
                broker_target(config, &options).map_err(|error| error.to_string())
            }
            _ => {
                let client = self.client().map_err(|error| error.to_string())?;
                PushTarget::webhook(config, &client).map_err(|error| error.to_string())
            }
        }
    }

    /// Returns the HTTP client of all webhooks.
    fn client(&mut self) -> Result<PushClient, PushClientError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let mut options = PushClientOptions::default();
        options.allowed = self.options.allowed.clone();
        options.ca_file.clone_from(&self.options.ca_file);
        options.clock = self.wall_clock.clone();
        let client = PushClient::new(options)?;
        self.client = Some(client.clone());
        Ok(client)
    }

    fn start(&self) -> Result<Pusher, requeue_jobs::Invalid> {
        let mut options = PusherOptions::default();
        options.clock = self.wall_clock.clone();
        options.max_in_flight = self.options.max_in_flight;
        options.max_bytes = self.options.max_bytes;
        options.on_store_error = Some(Arc::new(|kind, error| {
            tracing::debug!(%kind, %error, "a delivery waits for the store");
        }));
        Pusher::start(&self.jobs, &format!("push@{}", crate::schedules::node_name()), options)
    }
}

/// Fails if the operator has not permitted a host of the broker.
fn check_allowed(url: &BrokerUrl, allowed: &AllowedTargets) -> Result<(), String> {
    match url.hosts().iter().find(|(host, port)| !allowed.lists(host, *port)) {
        None => Ok(()),
        Some((host, port)) => Err(format!(
            "the broker {host}:{port} is not permitted; start the server with --push-allow {host}:{port}"
        )),
    }
}
