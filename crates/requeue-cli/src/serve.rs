//! `serve`: a server on a directory, or on Redis.

use crate::failure::{Exit, Failure, Result, chain};
use crate::files;
use crate::logs;
use crate::out::Out;
use crate::signals::{Signals, on};
use crate::store_args::{DEFAULT_DATA, IfMissing, StoreArgs, Where, open_directory};
use crate::times;
use requeue_disk::DiskStore;
use requeue_jobs::{Store, WallClock};
use requeue_server::auth::{Access, Right, may_listen};
use requeue_server::listen::{Listener, Options, Tls};
use requeue_server::{App, BackedUp, Backup, Limits};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind};

/// Files that are open beside connections: tables, the log, and what the runtime needs.
const OWN_FILES: u64 = 1024;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Jobs are kept in ./requeue-data, or where --data or --store (or REQUEUE_STORE) says.

REQUEUE_TOKEN and REQUEUE_READ_TOKEN, where they are set, are what clients have to show: for
everything, and for reading. More of them: --tokens.

SIGTERM and SIGINT let requests that are under way end; a second one does not. SIGHUP reads
tokens and certificates again.")]
pub(crate) struct Args {
    /// Where to listen; port 0 for any
    #[arg(long, value_name = "ADDR", env = "REQUEUE_LISTEN", default_value = "127.0.0.1:7654")]
    #[arg(value_parser = address)]
    listen: SocketAddr,
    /// A file of tokens, one per line: `full TOKEN` or `read TOKEN`
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Listen beyond this machine, and ask nobody for a token
    #[arg(long)]
    allow_anyone: bool,
    /// A file with the certificate chain (PEM): speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// A file with its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Allow copies to be made, under this directory
    #[arg(long, value_name = "DIR")]
    backups: Option<PathBuf>,
    /// How long requests may go on when the server is told to stop
    #[arg(long, value_name = "DURATION", value_parser = times::duration, default_value = "30s")]
    shutdown_limit: Duration,
    /// Connections at once; further ones wait
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_connections: Option<usize>,
    /// Claims that wait at once; further ones are refused
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_waiting: Option<usize>,
    #[command(flatten)]
    logs: logs::LogArgs,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address and a port: 127.0.0.1:7654, [::1]:7654, or 0.0.0.0:7654 for all".to_owned()
    })
}

pub(crate) async fn serve(args: Args, place: &StoreArgs, out: Out) -> Result<()> {
    let place = chosen(place);
    let chosen = place.chosen()?;
    let _logs = logs::start(&args.logs)?;
    // What may be refused is looked at before what takes time.
    let access = access(&args)?;
    may_listen(args.listen, access.is_restricted(), args.allow_anyone)
        .map_err(|exposed| Failure::of(Exit::Usage, &exposed))?;
    let is_open = access.is_restricted() || args.allow_anyone;
    let access = if is_open { access } else { access.only_local_names() };
    let tls = tls(&args)?;
    let listener = listener(&args, tls.clone()).await?;
    let address = listener.address;
    // What is told to read again while it starts does so then, and does not end.
    let hangup = on(SignalKind::hangup())?;
    let (store, backup) = open(&args, &place, &chosen).await?;
    let mut limits = Limits::default();
    limits.waiting = args.max_waiting.unwrap_or(limits.waiting);
    let mut app = App::new(store, WallClock::system(), limits);
    if let Some(backup) = backup {
        app = app.with_backup(backup);
    }
    let mut signals = Signals::new()?;
    let reloading = tokio::spawn(reload(hangup, access.clone(), tls.clone()));
    let scheme = if tls.is_some() { "https" } else { "http" };
    out.say(
        || serde_json::json!({ "listening": format!("{scheme}://{address}") }),
        || format!("listening on {scheme}://{address}, jobs {}", kept(&chosen)),
    )?;
    let serving = app.serve(listener.socket, &access, args.shutdown_limit);
    let ended = end_of(serving, &app, &mut signals).await;
    reloading.abort();
    ended
}

/// Serves until a signal says otherwise; a second one does not wait for what is under way.
async fn end_of(serving: impl Future<Output = ()>, app: &App, signals: &mut Signals) -> Result<()> {
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        () = &mut serving => return Ok(()),
        () = signals.next() => {}
    }
    tracing::info!("stopping: no more requests are taken, those under way may end");
    app.shutdown().order();
    tokio::select! {
        () = &mut serving => {
            tracing::info!("stopped");
            Ok(())
        }
        () = signals.next() => {
            tracing::warn!("stopped at once: what was under way is cut");
            Err(Failure::told_already(Exit::Refused))
        }
    }
}

/// Where the jobs are kept, by the command line, or else the environment.
fn chosen(place: &StoreArgs) -> StoreArgs {
    let mut place = place.clone();
    if place.server.is_none() && place.data.is_none() && place.store.is_none() {
        place.store = std::env::var("REQUEUE_STORE").ok().filter(|url| !url.is_empty());
        if place.store.is_none() {
            place.data = Some(DEFAULT_DATA.into());
        }
    }
    place
}

/// For people. An address may have a password in it.
fn kept(place: &Where) -> String {
    match place {
        Where::Data(directory) => format!("in {}", directory.display()),
        Where::Redis(_) | Where::Server(_) => "on Redis".to_owned(),
    }
}

/// Who may come: tokens of the environment and of the file.
fn access(args: &Args) -> Result<Access> {
    let named = [(Right::Full, "REQUEUE_TOKEN"), (Right::Read, "REQUEUE_READ_TOKEN")];
    let given = named.into_iter().filter_map(|(right, name)| {
        let token = std::env::var(name).ok().filter(|token| !token.is_empty())?;
        Some((right, token))
    });
    let access = Access::new(given, args.tokens.clone());
    access.map_err(|error| Failure::of(Exit::Refused, &error))
}

fn tls(args: &Args) -> Result<Option<Tls>> {
    let (Some(chain), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let tls = Tls::load(chain, key);
    tls.map(Some).map_err(|error| Failure::of(Exit::Refused, &error))
}

/// A socket, and where it listens.
struct Bound {
    socket: Listener,
    address: SocketAddr,
}

async fn listener(args: &Args, tls: Option<Tls>) -> Result<Bound> {
    let failed = |error: std::io::Error| {
        let told = format!("could not listen on {}: {error}", args.listen);
        let hint = match error.kind() {
            ErrorKind::AddrInUse => {
                "another server may be there; any free port: --listen 127.0.0.1:0"
            }
            ErrorKind::PermissionDenied => "ports under 1024 are for root: choose a higher one",
            _ => "choose an address of this machine: --listen 127.0.0.1:7654",
        };
        Failure::new(Exit::Unavailable, told).hint(hint)
    };
    let tcp = TcpListener::bind(args.listen).await.map_err(failed)?;
    let address = tcp.local_addr().map_err(failed)?;
    let mut options = Options { drain: args.shutdown_limit, ..Options::default() };
    options.max_connections = args.max_connections.unwrap_or(options.max_connections);
    // Each connection is an open file, beside those of the store.
    let connections = options.max_connections as u64;
    let allowed = files::allow(connections + OWN_FILES);
    if allowed < connections {
        tracing::warn!(allowed, connections, "the system allows fewer open files than connections");
    }
    let socket = Listener::new(tcp, options);
    let socket = match tls {
        Some(tls) => socket.with_tls(tls),
        None => socket,
    };
    Ok(Bound { socket, address })
}

async fn open(
    args: &Args,
    place: &StoreArgs,
    chosen: &Where,
) -> Result<(Arc<dyn Store>, Option<Arc<Backup>>)> {
    match chosen {
        Where::Data(directory) => {
            let store = open_directory(directory, IfMissing::Make)?;
            for repaired in store.repaired() {
                tracing::warn!(%repaired, "damage was repaired from the log");
            }
            let backup = args.backups.clone().map(|under| backup(store.clone(), under));
            Ok((Arc::new(store), backup))
        }
        Where::Redis(_) if args.backups.is_some() => {
            Err(Failure::usage("--backups is for a directory: Redis makes its own copies"))
        }
        Where::Redis(url) => Ok((Arc::new(place.connect_redis(url).await?), None)),
        Where::Server(_) => {
            Err(Failure::usage("a server keeps jobs itself: --data DIR or --store URL"))
        }
    }
}

/// Copies of a store, each in a directory of its own, named by when it was begun.
fn backup(store: DiskStore, under: PathBuf) -> Arc<Backup> {
    Arc::new(move |progress| {
        let name = times::show_time(times::now()).replace(':', "");
        let to = under.join(format!("requeue-{name}"));
        let copied = store.backup(&to, |so_far| progress(so_far.bytes, so_far.total));
        let copied = copied.map_err(|error| chain(&error))?;
        let (bytes, files) = (copied.bytes, copied.files as u64);
        Ok(BackedUp { directory: to.display().to_string(), bytes, files })
    })
}

/// Reads tokens and certificates again, whenever it is told to.
async fn reload(mut hangup: Signal, access: Access, tls: Option<Tls>) {
    while hangup.recv().await.is_some() {
        match access.reload() {
            Ok(()) => tracing::info!("tokens were read again"),
            Err(error) => {
                let error = chain(&error);
                tracing::error!(error, "tokens were not read again: the old ones stay");
            }
        }
        match tls.as_ref().map(Tls::reload) {
            None => {}
            Some(Ok(())) => tracing::info!("certificates were read again"),
            Some(Err(error)) => {
                let error = chain(&error);
                tracing::error!(error, "certificates were not read again: the old ones stay");
            }
        }
    }
}
