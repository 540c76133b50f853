//! `demo`: a server with producers and workers in one process, for a first look.
//!
//! ```text
//!   producers ──▶ HttpStore ──▶ App on a new data directory ──▶ Receiver (webhooks)
//!   workers   ◀──▶    ┘
//! ```
//!
//! Producers and workers use the server over HTTP, as other programs would, so that metrics, events and
//! the list of workers show them. At the end the producers stop first, then the workers, the server and
//! the receiver, and a temporary directory is removed last.

mod browser;
mod directory;
mod producers;
mod random;
mod receiver;
mod scenario;
mod seed;
mod shop;
mod workers;

use crate::bound_socket::{self, BoundSocket};
use crate::error::{CliError, Exit, Result};
use crate::logs::{self, LogArgs};
use crate::output::{Output, print_note};
use crate::signals::Signals;
use crate::store_args::{DEFAULT_SERVER, IfMissing, StoreArgs, open_directory};
use crate::times;
use directory::DemoDirectory;
use random::Random;
use receiver::{Receiver, WebhookTargets};
use requeue_disk::RESERVED_FILES;
use requeue_http::HttpStore;
use requeue_jobs::{Jobs, RunningJobs, WallClock};
use requeue_server::auth::Access;
use requeue_server::{App, Limits};
use scenario::{Scenario, Speed};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// How long running requests may take to finish at the end.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// The largest number of connections: for a dashboard and some commands.
const MAX_CONNECTIONS: usize = 500;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The demo is an online shop, which runs about 25 jobs per second:
  order.remind, order.close     Due later; most orders are paid before
  invoice.send                  Fails often; some jobs are dead in the end
  feed.apply                    Events that wait for an event before them
  sms.send                      Bursts of jobs, limited to 5 per second
  report.daily, cleanup         Schedules
  crm.sync, partner.notify      Webhooks: one target works, one is down
  newsletter.send               Paused

The jobs are in a temporary directory, which is removed at the end, or in
--data DIR, which must be empty or new, and is kept. --server, --store and
--token-file do not apply. The server accepts connections from this machine
only, without a token.

Examples:
  requeue demo
  requeue demo --listen 127.0.0.1:0 --no-open --for 1m
  requeue demo --data demo-data --speed 5 --seed 42")]
pub(crate) struct Args {
    /// Loopback address and port to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7654")]
    #[arg(value_parser = bound_socket::address)]
    listen: SocketAddr,
    /// How many times as fast as usual jobs are put and worked on, 0.1 to 10
    #[arg(long, value_name = "N", default_value = "1", value_parser = Speed::parse)]
    speed: Speed,
    /// Do not open the dashboard in a browser
    #[arg(long)]
    no_open: bool,
    /// Stop after this time, such as 10s [default: on Ctrl-C or SIGTERM]
    #[arg(long = "for", value_name = "DURATION", value_parser = times::duration)]
    run_for: Option<Duration>,
    /// Seed of the random decisions [default: a random one]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(crate) async fn demo(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    check(&args, store_args)?;
    // From here on a signal does not end the process, which would leave the directory behind.
    let mut signals = Signals::with_hangup()?;
    let _logs = logs::start(&LogArgs::errors_only())?;
    let listener =
        BoundSocket::bind(args.listen, Some(MAX_CONNECTIONS), RESERVED_FILES, SHUTDOWN_LIMIT, None)
            .await?;
    let directory = DemoDirectory::new(store_args.data.as_deref())?;
    run(&args, listener, &directory, &mut signals, out).await?;
    let farewell = directory.farewell();
    drop(directory);
    if !out.json {
        print_note(&farewell);
    }
    Ok(())
}

/// Rejects what would make the demo use other jobs than its own, or be seen by other machines.
fn check(args: &Args, store_args: &StoreArgs) -> Result<()> {
    if store_args.server.is_some() || store_args.store.is_some() {
        return Err(CliError::usage(
            "demo does not accept --server and --store: it starts a server of its own; use --data \
             DIR to keep its jobs",
        ));
    }
    if !args.listen.ip().to_canonical().is_loopback() {
        let message = format!(
            "--listen {} is not a loopback address: a demo has no token, and can only be used from \
             this machine",
            args.listen
        );
        return Err(CliError::usage(message).hint("use --listen 127.0.0.1:PORT"));
    }
    Ok(())
}

/// Runs server and scenario until a signal arrives or the time is over. A second signal does not wait
/// for running jobs and requests.
async fn run(
    args: &Args,
    listener: BoundSocket,
    directory: &DemoDirectory,
    signals: &mut Signals,
    out: Output,
) -> Result<()> {
    let seed = args.seed.unwrap_or_else(random::new_seed);
    let mut random = Random::new(seed);
    let receiver = Receiver::bind(&mut random).await?;
    let targets = receiver.targets().clone();
    let app = server(directory, &targets)?;
    let url = format!("http://{}", listener.address);
    let access =
        Access::new([], None).map_err(|error| CliError::from_error(Exit::Failed, &error))?;
    let access = access.only_local_names();
    let shutdown = app.shutdown().clone();
    let serving = tokio::spawn(async move {
        app.serve(listener.socket, &access, SHUTDOWN_LIMIT).await;
    });
    let receiving = tokio::spawn(receiver.run(args.speed, random.split()));

    let (players, outcome) = match start(args, &url, seed, &targets, &mut random).await {
        Ok(players) => (Some(players), announce(args, &url, directory, seed, out)),
        Err(error) => (None, Err(error)),
    };
    if outcome.is_ok() {
        tokio::select! {
            () = signals.next() => {}
            () = time_is_over(args.run_for) => {}
        }
    }
    let stopping = async {
        if let Some(players) = players {
            players.stop().await;
        }
        shutdown.request();
        // A panic of the server was reported when it happened.
        let _ = serving.await;
        receiving.abort();
    };
    tokio::select! {
        () = stopping => outcome,
        () = signals.next() => Err(CliError::already_reported(Exit::Failed)),
    }
}

/// The producers and workers.
struct Players {
    producers: JoinSet<()>,
    workers: Vec<RunningJobs>,
}

impl Players {
    async fn stop(self) {
        drop(self.producers);
        workers::stop(self.workers).await;
    }
}

/// Sets up the kinds of the server at this URL, and starts producers and workers.
async fn start(
    args: &Args,
    url: &str,
    seed: u64,
    targets: &WebhookTargets,
    random: &mut Random,
) -> Result<Players> {
    let http = Arc::new(HttpStore::connect(url)?);
    let jobs = Jobs::new(http.clone());
    let records = Mutex::default();
    let scenario = Arc::new(Scenario { jobs, seed, speed: args.speed, records });
    seed::seed(&http, &scenario, targets, random).await?;
    let workers = workers::start(&scenario)?;
    Ok(Players { producers: producers::start(&scenario, random), workers })
}

/// Opens the store, and returns a server that may deliver to the receiver.
fn server(directory: &DemoDirectory, targets: &WebhookTargets) -> Result<App> {
    let mut limits = Limits::default();
    for target in targets.allowed() {
        let added = limits.push.allowed.add(&target);
        added.map_err(|error| CliError::from_error(Exit::Failed, &error))?;
    }
    let store = open_directory(directory.path(), IfMissing::Create)?;
    Ok(App::new(Arc::new(store), WallClock::system(), limits))
}

async fn time_is_over(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Prints what runs and what to do next, and opens the dashboard.
fn announce(
    args: &Args,
    url: &str,
    directory: &DemoDirectory,
    seed: u64,
    out: Output,
) -> Result<()> {
    out.print(
        || {
            let data = directory.path().display().to_string();
            serde_json::json!({ "listening": url, "data": data, "seed": seed })
        },
        || {
            // Other commands find the server at the default address.
            let server =
                if url == DEFAULT_SERVER { String::new() } else { format!(" --server {url}") };
            format!(
                "listening on {url}, jobs {}, seed {seed}\n\
                 \n\
                 An online shop is running: orders, invoices, messages, webhooks and schedules.\n\
                 Open the dashboard in a browser:\n  \
                 {url}/\n\
                 \n\
                 Or run these commands in another terminal:\n  \
                 requeue top{server}\n  \
                 requeue stats{server}\n  \
                 requeue ls invoice.send --state dead{server}\n\
                 \n\
                 Press Ctrl-C to stop.",
                directory.describe()
            )
        },
    )?;
    if !args.no_open
        && !out.json
        && let Some(opener) = browser::opener()
    {
        let url = format!("{url}/");
        tokio::spawn(async move { browser::open(opener, &url).await });
    }
    Ok(())
}
