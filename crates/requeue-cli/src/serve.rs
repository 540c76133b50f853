//! `serve`: starts a server that keeps jobs in a directory, in Redis or in Postgres.

use crate::allocator;
use crate::bound_socket::{self, BoundSocket};
use crate::error::{CliError, Exit, Result, chain};
use crate::logs;
use crate::output::Output;
use crate::private_files;
use crate::signals::{Signals, on};
use crate::store_args::{DEFAULT_DATA, IfMissing, StoreArgs, StoreLocation};
use crate::times;
use requeue_disk::DiskStore;
use requeue_jobs::{Store, WallClock};
use requeue_server::auth::{Access, Right, SessionKey, may_listen};
use requeue_server::listen::Tls;
use requeue_server::{App, BackedUp, BackupFn, Limits, PushOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Where jobs are kept:
  The server keeps jobs in the directory --data DIR [default: requeue-data], or
  in Redis or Postgres with --store URL [env: REQUEUE_STORE]. Several servers
  can share one Redis or one database. A directory belongs to one server.
  --server and --token-file do not apply.

Tokens:
  If a token is set, clients must send one. REQUEUE_TOKEN contains a token for
  all requests, REQUEUE_READ_TOKEN a token for GET requests only, and --tokens
  FILE any number of tokens. If there are several, none can use up the streams,
  exports, waiting claims and scans of the server: see docs/http-api.md.

  The dashboard asks for a token once in 12 hours. Its sessions end when the
  server stops, unless --session-key FILE contains a key: at least 32 random
  bytes, for example of openssl rand -hex 32. Servers behind one load balancer
  need the same key.

Signals:
  SIGTERM and SIGINT stop the server after running requests have finished; a
  second signal stops it immediately. SIGHUP reloads tokens and certificates.

Examples:
  requeue serve
  requeue serve --listen 127.0.0.1:8080 --data /var/lib/requeue
  requeue serve --store redis://127.0.0.1:6379/
  requeue serve --store postgres://app@127.0.0.1/shop")]
pub(crate) struct Args {
    /// Address and port to listen on; port 0 selects a free port
    #[arg(
        long,
        value_name = "ADDR",
        env = "REQUEUE_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:7654"
    )]
    #[arg(value_parser = bound_socket::address)]
    listen: SocketAddr,
    /// File of tokens, one per line: `full TOKEN` or `read TOKEN`
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// File with the key of dashboard sessions, at least 32 random bytes [default: a random key, so that
    /// people log in again after a restart]
    #[arg(long, value_name = "FILE")]
    session_key: Option<PathBuf>,
    /// Allow requests without a token, also from other machines
    #[arg(long)]
    allow_anyone: bool,
    /// PEM file of the certificate chain; enables TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the private key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Allow backups, which are created below this directory
    #[arg(long, value_name = "DIR")]
    backups: Option<PathBuf>,
    /// How long running requests may take to finish after SIGTERM
    #[arg(long, value_name = "DURATION", value_parser = times::duration, default_value = "30s")]
    shutdown_limit: Duration,
    /// Maximum number of open connections; further ones wait [default: 20000]
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,
    /// Maximum number of waiting claims; further ones are rejected [default: 10000]
    #[arg(long, value_name = "N")]
    max_waiting: Option<usize>,
    /// Memory for the jobs of responses that are being sent, in MiB; further requests wait
    /// [default: 256]
    #[arg(long, value_name = "MIB")]
    response_memory: Option<u32>,
    /// How many kinds have metrics of their own; all others are summed [default: 200]
    #[arg(long, value_name = "N")]
    metrics_kinds: Option<usize>,
    /// Allow jobs to be sent to this internal target or message broker: HOST, HOST:PORT, IP address or
    /// range such as 10.0.0.0/8; can be repeated [default: only webhooks on the public internet]
    #[arg(long, value_name = "TARGET")]
    push_allow: Vec<String>,
    /// PEM file of certificates to trust in addition to the system's CAs, for targets of jobs
    #[arg(long, value_name = "FILE")]
    push_ca_file: Option<PathBuf>,
    /// PEM file of the certificate that the server presents to message brokers
    #[arg(long, value_name = "FILE", requires = "push_key")]
    push_cert: Option<PathBuf>,
    /// PEM file of the private key of that certificate
    #[arg(long, value_name = "FILE", requires = "push_cert")]
    push_key: Option<PathBuf>,
    /// `.creds` file with which the server connects to NATS, for targets of jobs
    #[arg(long, value_name = "FILE")]
    push_nats_creds: Option<PathBuf>,
    /// Maximum number of jobs that are being sent to URLs [default: 10000]
    #[arg(long, value_name = "N", value_parser = positive)]
    push_in_flight: Option<usize>,
    /// Memory for the bodies of jobs that are being sent to URLs, in MiB [default: 64]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(2..))]
    push_memory: Option<u32>,
    #[command(flatten)]
    logs: logs::LogArgs,
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or("expected a number of at least 1".into())
}

/// The options of deliveries by HTTP request.
fn push_options(args: &Args) -> Result<PushOptions> {
    let mut options = PushOptions::default();
    for entry in &args.push_allow {
        let added = options.allowed.add(entry);
        added.map_err(|error| CliError::usage(format!("--push-allow: {error}")))?;
    }
    options.ca_file.clone_from(&args.push_ca_file);
    options.client_cert.clone_from(&args.push_cert);
    options.client_key.clone_from(&args.push_key);
    options.nats_creds_file.clone_from(&args.push_nats_creds);
    options.max_in_flight = args.push_in_flight.unwrap_or(options.max_in_flight);
    if let Some(mebibytes) = args.push_memory {
        options.max_bytes = usize::try_from(u64::from(mebibytes) << 20).unwrap_or(usize::MAX);
    }
    Ok(options)
}

pub(crate) async fn serve(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    allocator::return_large_blocks();
    let store_args = with_defaults(store_args);
    let location = store_args.location()?;
    let _logs = logs::start(&args.logs)?;
    // Cheap checks come before opening the store, which may take long.
    let push = push_options(&args)?;
    let access = access(&args)?;
    warn_about_secrets(&args);
    may_listen(args.listen, access.is_restricted(), args.allow_anyone)
        .map_err(|exposed| CliError::from_error(Exit::Usage, &exposed))?;
    let any_host = access.is_restricted() || args.allow_anyone;
    let access = if any_host { access } else { access.only_local_names() };
    let tls = tls(&args)?;
    let drain = args.shutdown_limit;
    let files = store_args.files_of_store(&location);
    let listener =
        BoundSocket::bind(args.listen, args.max_connections, files, drain, tls.clone()).await?;
    let address = listener.address;
    // From here on, SIGHUP reloads files. Before, it would end the process.
    let hangup = on(SignalKind::hangup())?;
    let (store, backup) = open(&args, &store_args, &location).await?;
    let mut limits = Limits::default();
    limits.push = push;
    limits.waiting = args.max_waiting.unwrap_or(limits.waiting);
    limits.metrics_kinds = args.metrics_kinds.unwrap_or(limits.metrics_kinds);
    if let Some(mebibytes) = args.response_memory {
        limits.response_memory = u64::from(mebibytes) << 20;
    }
    // The others are for clients that do not wait: they put and settle jobs.
    let most = listener.connections * 3 / 4;
    if limits.waiting > most {
        tracing::info!(
            connections = listener.connections,
            "at most {most} claims can wait: three in four connections"
        );
        limits.waiting = most;
    }
    let mut app = App::new(store, WallClock::system(), limits);
    if let Some(backup) = backup {
        app = app.with_backup(backup);
    }
    let mut signals = Signals::new()?;
    let reloading = tokio::spawn(reload(hangup, access.clone(), tls.clone()));
    let scheme = if tls.is_some() { "https" } else { "http" };
    out.print(
        || serde_json::json!({ "listening": format!("{scheme}://{address}") }),
        || format!("listening on {scheme}://{address}, jobs {}", describe(&location)),
    )?;
    let serving = app.serve(listener.socket, &access, args.shutdown_limit);
    let ended = end_of(serving, &app, &mut signals).await;
    reloading.abort();
    ended
}

/// Serves until a signal arrives, and then until running requests have finished. A second signal
/// cuts them off.
async fn end_of(serving: impl Future<Output = ()>, app: &App, signals: &mut Signals) -> Result<()> {
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        () = &mut serving => return Ok(()),
        () = signals.next() => {}
    }
    tracing::info!("stopping: no new requests are accepted, running requests may finish");
    app.shutdown().request();
    tokio::select! {
        () = &mut serving => {
            tracing::info!("stopped");
            Ok(())
        }
        () = signals.next() => {
            tracing::warn!("stopped immediately: running requests are cut off");
            Err(CliError::already_reported(Exit::Failed))
        }
    }
}

/// The store options of the command line. Without any, `REQUEUE_STORE`, or else the default
/// directory.
fn with_defaults(store_args: &StoreArgs) -> StoreArgs {
    let mut store_args = store_args.or_environment();
    if store_args.server.is_none() && store_args.data.is_none() && store_args.store.is_none() {
        store_args.data = Some(DEFAULT_DATA.into());
    }
    store_args
}

/// The location for people. The URL of a store is left out, because it may contain a password.
fn describe(location: &StoreLocation) -> String {
    match location {
        StoreLocation::Data(directory) => format!("in {}", directory.display()),
        StoreLocation::Postgres(_) => "in Postgres".to_owned(),
        StoreLocation::Redis(_) | StoreLocation::Server(_) => "in Redis".to_owned(),
    }
}

/// The tokens of the environment and of `--tokens`, and the key of `--session-key`.
fn access(args: &Args) -> Result<Access> {
    let named = [(Right::Full, "REQUEUE_TOKEN"), (Right::Read, "REQUEUE_READ_TOKEN")];
    let given = named.into_iter().filter_map(|(right, name)| {
        let token = std::env::var(name).ok().filter(|token| !token.is_empty())?;
        Some((right, token))
    });
    let access = Access::new(given, args.tokens.clone());
    let access = access.map_err(|error| CliError::from_error(Exit::Failed, &error))?;
    let Some(path) = &args.session_key else { return Ok(access) };
    if !access.is_restricted() {
        return Err(CliError::usage(
            "--session-key requires tokens: without any, the dashboard has no login",
        ));
    }
    let key = SessionKey::read(path);
    Ok(access.with_session_key(&key.map_err(|error| CliError::from_error(Exit::Failed, &error))?))
}

/// Logs a warning for each file with a secret that other users have access to.
fn warn_about_secrets(args: &Args) {
    for file in [&args.tokens, &args.session_key, &args.tls_key].into_iter().flatten() {
        if let Some(warning) = private_files::warning(file) {
            tracing::warn!("{warning}");
        }
    }
}

fn tls(args: &Args) -> Result<Option<Tls>> {
    let (Some(chain), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let tls = Tls::load(chain, key);
    tls.map(Some).map_err(|error| CliError::from_error(Exit::Failed, &error))
}

async fn open(
    args: &Args,
    store_args: &StoreArgs,
    location: &StoreLocation,
) -> Result<(Arc<dyn Store>, Option<Arc<BackupFn>>)> {
    match location {
        StoreLocation::Data(directory) => {
            if let Some(warning) = private_files::directory_warning(directory) {
                tracing::warn!("{warning}");
            }
            let store = DiskStore::open(directory)?;
            for repaired in store.repaired() {
                tracing::warn!(%repaired, "damage was repaired from the log");
            }
            let backup = args.backups.clone().map(|under| backup(store.clone(), under));
            Ok((Arc::new(store), backup))
        }
        StoreLocation::Redis(_) if args.backups.is_some() => {
            Err(CliError::usage("--backups does not apply to Redis, which makes its own snapshots"))
        }
        StoreLocation::Redis(url) => Ok((Arc::new(store_args.connect_redis(url).await?), None)),
        StoreLocation::Postgres(_) if args.backups.is_some() => Err(CliError::usage(
            "--backups does not apply to Postgres: use the backups of Postgres",
        )),
        StoreLocation::Postgres(url) => {
            let store = store_args.connect_postgres(url, IfMissing::Create).await?;
            Ok((Arc::new(store), None))
        }
        StoreLocation::Server(_) => {
            Err(CliError::usage("serve does not accept --server: use --data DIR or --store URL"))
        }
    }
}

/// Makes backups, each in a new directory that is named after its start time.
fn backup(store: DiskStore, under: PathBuf) -> Arc<BackupFn> {
    Arc::new(move |progress| {
        let name = times::show_time(times::now()).replace(':', "");
        let to = under.join(format!("requeue-{name}"));
        private_files::create_dir_all(&under)
            .map_err(|error| format!("could not create {}: {error}", under.display()))?;
        let copied = store.backup(&to, |so_far| progress(so_far.bytes, so_far.total));
        let copied = copied.map_err(|error| chain(&error))?;
        let (bytes, files) = (copied.bytes, copied.files as u64);
        Ok(BackedUp { directory: to.display().to_string(), bytes, files })
    })
}

/// Reloads tokens and certificates on each SIGHUP.
async fn reload(mut hangup: Signal, access: Access, tls: Option<Tls>) {
    while hangup.recv().await.is_some() {
        match access.reload() {
            Ok(()) => tracing::info!("tokens reloaded"),
            Err(error) => {
                let error = chain(&error);
                tracing::error!(error, "tokens could not be reloaded: the old ones stay in use");
            }
        }
        match tls.as_ref().map(Tls::reload) {
            None => {}
            Some(Ok(())) => tracing::info!("certificates reloaded"),
            Some(Err(error)) => {
                let error = chain(&error);
                tracing::error!(
                    error,
                    "certificates could not be reloaded: the old ones stay in use"
                );
            }
        }
    }
}
