//! The options that select a store: a server, a data directory, Redis, or Postgres.

use crate::error::{CliError, Exit, Result};
use crate::output::print_labelled;
use crate::private_files;
use crate::times;
use clap::Args;
use requeue_disk::{DiskStore, RESERVED_FILES};
use requeue_http::HttpStore;
use requeue_http::client::Secret;
use requeue_jobs::Store;
use requeue_postgres::{Migrated, PostgresStore};
use requeue_redis::RedisStore;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

/// The server that commands connect to by default.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:7654";

/// The range of `--postgres-poll`.
const POLL_RANGE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3600));

/// The open files of a store on Postgres beside its connections: that for LISTEN, its runtime, a name
/// that is being looked up, and connections that are being closed.
const OTHER_POSTGRES_FILES: usize = 16;

/// How long a statement may take that reads or rewrites all jobs in Postgres.
const LONG_STATEMENT: Duration = Duration::from_secs(3600);

/// The directory that `serve` keeps jobs in by default.
pub(crate) const DEFAULT_DATA: &str = "requeue-data";

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Store options")]
pub(crate) struct StoreArgs {
    /// Connect to this server [env: REQUEUE_SERVER] [default: http://127.0.0.1:7654]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Open this data directory; no other process may have it open
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Connect to Redis (redis://, rediss://, redis+sentinel:// or redis+cluster://) or to Postgres
    /// (postgres:// or postgresql://); `requeue --help` lists all options for them
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// File that contains the server's token [env: REQUEUE_TOKEN_FILE, or REQUEUE_TOKEN for the token
    /// itself]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file of certificates to trust in addition to the system's CAs [env: REQUEUE_CA_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Prefix of all keys in Redis [default: requeue]
    #[arg(long, global = true, value_name = "PREFIX")]
    pub(crate) redis_prefix: Option<String>,
    /// PEM file of the client certificate for Redis
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "redis_key",
        hide_short_help = true,
        long_help = "PEM file of the client certificate for Redis"
    )]
    pub(crate) redis_cert: Option<PathBuf>,
    /// PEM file of the private key of that certificate
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "redis_cert",
        hide_short_help = true,
        long_help = "PEM file of the private key of that certificate"
    )]
    pub(crate) redis_key: Option<PathBuf>,
    /// Schema in Postgres that contains the tables [default: requeue]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) postgres_schema: Option<String>,
    /// Maximum number of connections to Postgres [default: 10]
    #[arg(
        long,
        global = true,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        hide_short_help = true,
        long_help = "Maximum number of connections to Postgres; one more is used for LISTEN [default: 10]"
    )]
    pub(crate) postgres_connections: Option<u16>,
    /// How often to look for jobs of other processes [default: 100ms]
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        value_parser = poll_interval,
        hide_short_help = true,
        long_help = "How often to look for jobs of other processes in Postgres, while a claim waits [default: 100ms]"
    )]
    pub(crate) postgres_poll: Option<Duration>,
    /// Do not use LISTEN and NOTIFY
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        long_help = "Do not use LISTEN and NOTIFY: jobs of other processes are found by polling"
    )]
    pub(crate) postgres_no_listen: bool,
    /// Do not create the tables in Postgres
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        long_help = "Do not create the tables in Postgres: fail if they are missing"
    )]
    pub(crate) postgres_no_migrate: bool,
}

/// Parses the value of `--postgres-poll`.
fn poll_interval(text: &str) -> Result<Duration, String> {
    let interval = times::duration(text).map_err(|error| error.to_string())?;
    let (min, max) = POLL_RANGE;
    if !(min..=max).contains(&interval) {
        let [min, max] = [min, max].map(times::show_duration);
        return Err(format!("the interval must be {min} to {max}"));
    }
    Ok(interval)
}

/// The store that the command line or the environment selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreLocation {
    Server(String),
    Data(PathBuf),
    Redis(String),
    Postgres(String),
}

impl StoreLocation {
    /// The store of a URL, by its scheme. The error does not contain the URL, because it may contain a
    /// password.
    fn of_url(url: &str) -> Result<Self> {
        match url {
            url if url.starts_with("redis") => Ok(StoreLocation::Redis(url.to_owned())),
            url if url.starts_with("postgres") => Ok(StoreLocation::Postgres(url.to_owned())),
            _ => Err(CliError::usage(
                "invalid URL in --store or REQUEUE_STORE: it must begin with redis://, rediss://, \
                 redis+sentinel://, redis+cluster://, postgres:// or postgresql://",
            )),
        }
    }
}

/// What a store reports if its disk is full.
const FULL: [&str; 3] = ["MiB free", "no space for new jobs", "No space left on device"];

/// What to do if a data directory does not exist, or a database has no tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Create,
    Fail,
}

impl StoreArgs {
    /// The store that the options select, or else `REQUEUE_SERVER`, or else the default server.
    pub(crate) fn location(&self) -> Result<StoreLocation> {
        let server = self.server.clone().map(StoreLocation::Server);
        let data = self.data.clone().map(StoreLocation::Data);
        let store = self.store.as_deref().map(StoreLocation::of_url).transpose()?;
        let mut given = [server, data, store].into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => {
                let server = std::env::var("REQUEUE_SERVER").ok().filter(|url| !url.is_empty());
                Ok(StoreLocation::Server(server.unwrap_or_else(|| DEFAULT_SERVER.to_owned())))
            }
            (Some(_), Some(_)) => Err(CliError::usage(
                "--server, --data and --store cannot be combined: use only one of them",
            )),
        }
    }

    /// These options, with the URL in `REQUEUE_STORE` if they select no store. For commands that work on
    /// a store itself and not on a server.
    pub(crate) fn or_environment(&self) -> Self {
        let mut args = self.clone();
        if args.server.is_none() && args.data.is_none() && args.store.is_none() {
            args.store = std::env::var("REQUEUE_STORE").ok().filter(|url| !url.is_empty());
        }
        args
    }

    /// Opens the data directory, or connects to the server, Redis or Postgres.
    pub(crate) async fn open(&self, missing: IfMissing) -> Result<Arc<dyn Store>> {
        match self.location()? {
            StoreLocation::Server(url) => Ok(Arc::new(self.connect(&url)?)),
            StoreLocation::Data(directory) => Ok(Arc::new(open_directory(&directory, missing)?)),
            StoreLocation::Redis(url) => Ok(Arc::new(self.connect_redis(&url).await?)),
            StoreLocation::Postgres(url) => {
                Ok(Arc::new(self.connect_postgres(&url, missing).await?))
            }
        }
    }

    /// Prepares a connection to the server, for a command that works with a server only.
    pub(crate) fn connect_server(&self, command: &str) -> Result<HttpStore> {
        match self.location()? {
            StoreLocation::Server(url) => self.connect(&url),
            StoreLocation::Data(_) | StoreLocation::Redis(_) | StoreLocation::Postgres(_) => {
                let message = format!(
                    "`requeue {command}` shows what a server knows: --data and --store have no server"
                );
                Err(CliError::usage(message).hint("use --server URL"))
            }
        }
    }

    /// Prepares a connection to a server. The first call connects, and fails if there is none.
    pub(crate) fn connect(&self, url: &str) -> Result<HttpStore> {
        let mut options = requeue_http::client::Options::default();
        options.token = self.token()?.map(Secret::from);
        options.ca_file = self.ca_file();
        Ok(HttpStore::connect_with(url, options)?)
    }

    pub(crate) async fn connect_redis(&self, url: &str) -> Result<RedisStore> {
        Ok(RedisStore::connect_with(url, self.redis_options()).await?)
    }

    pub(crate) fn redis_options(&self) -> requeue_redis::Options {
        let mut options = requeue_redis::Options::default();
        if let Some(prefix) = &self.redis_prefix {
            options.prefix.clone_from(prefix);
        }
        options.ca_file = self.ca_file();
        options.certificate_file.clone_from(&self.redis_cert);
        options.key_file.clone_from(&self.redis_key);
        if let Some(key) = &self.redis_key {
            warn_about(key);
        }
        options
    }

    /// Connects to Postgres. With [`IfMissing::Fail`], a mistyped name creates no tables, and a command
    /// that only looks at a store does not update its tables.
    pub(crate) async fn connect_postgres(
        &self,
        url: &str,
        missing: IfMissing,
    ) -> Result<PostgresStore> {
        let mut options = self.postgres_options()?;
        options.migrate = missing == IfMissing::Create && !self.postgres_no_migrate;
        Ok(PostgresStore::connect_with(url, options).await?)
    }

    /// Connects to Postgres for a statement that reads all jobs, without changing the tables.
    pub(crate) async fn connect_postgres_to_check(&self, url: &str) -> Result<PostgresStore> {
        let mut options = self.postgres_options()?;
        (options.migrate, options.response_timeout) = (false, LONG_STATEMENT);
        Ok(PostgresStore::connect_with(url, options).await?)
    }

    /// Creates the tables in Postgres.
    pub(crate) async fn migrate_postgres(&self, url: &str) -> Result<Migrated> {
        let mut options = self.postgres_options()?;
        options.response_timeout = LONG_STATEMENT;
        Ok(PostgresStore::migrate(url, options).await?)
    }

    pub(crate) fn postgres_options(&self) -> Result<requeue_postgres::Options> {
        if self.ca_file.is_some() {
            return Err(CliError::usage(
                "--ca-file does not apply to Postgres: the URL contains its certificates",
            )
            .hint("add to the URL: ?sslmode=verify-full&sslrootcert=FILE"));
        }
        let mut options = requeue_postgres::Options::default();
        if let Some(schema) = &self.postgres_schema {
            options.schema.clone_from(schema);
        }
        if let Some(connections) = self.postgres_connections {
            options.max_connections = usize::from(connections);
        }
        options.poll_interval = self.postgres_poll.unwrap_or(options.poll_interval);
        options.listen = !self.postgres_no_listen;
        Ok(options)
    }

    /// How many files a server leaves to its store: each connection to Postgres is an open file.
    pub(crate) fn files_of_store(&self, location: &StoreLocation) -> usize {
        match location {
            StoreLocation::Postgres(_) => {
                let default = requeue_postgres::Options::default().max_connections;
                let connections = self.postgres_connections.map_or(default, usize::from);
                RESERVED_FILES.max(connections + OTHER_POSTGRES_FILES)
            }
            _ => RESERVED_FILES,
        }
    }

    /// The certificates to trust. In Postgres, only the option is an error, and the variable does not apply:
    /// it may be there for a server.
    pub(crate) fn ca_file(&self) -> Option<PathBuf> {
        self.ca_file.clone().or_else(|| variable("REQUEUE_CA_FILE").map(PathBuf::from))
    }

    /// The token to send to a server. There is no option that takes the token itself, because all
    /// users of a machine can read the command lines of its processes.
    fn token(&self) -> Result<Option<String>> {
        let file = match (&self.token_file, variable("REQUEUE_TOKEN_FILE")) {
            (Some(file), _) => file.clone(),
            (None, file) => match (file, variable("REQUEUE_TOKEN")) {
                (Some(_), Some(_)) => {
                    let message = "REQUEUE_TOKEN and REQUEUE_TOKEN_FILE are both set";
                    return Err(CliError::usage(message).hint("unset one of them"));
                }
                (None, Some(token)) => {
                    return match token.into_string() {
                        Ok(token) => Ok(Some(token)),
                        Err(_) => Err(CliError::usage("REQUEUE_TOKEN is not UTF-8")),
                    };
                }
                (None, None) => return Ok(None),
                (Some(file), None) => PathBuf::from(file),
            },
        };
        let name = file.display().to_string();
        let text =
            std::fs::read_to_string(&file).map_err(|error| CliError::io("read", &name, &error))?;
        warn_about(&file);
        match text.trim() {
            "" => Err(CliError::new(Exit::Failed, format!("the token file {name} is empty"))),
            token => Ok(Some(token.to_owned())),
        }
    }

    /// What to do about a store that is not available.
    pub(crate) fn hint(&self, error: &CliError) -> Option<String> {
        if FULL.iter().any(|text| error.mentions(text)) {
            let hint = "free some space on the disk of the store; jobs that it has can still be \
                        claimed, settled and cancelled";
            return Some(hint.to_owned());
        }
        match self.location().ok()? {
            StoreLocation::Server(_) if error.mentions("certificate") => {
                Some(self.certificate_hint(error))
            }
            // The server runs, and has reported the problem: only the errors of a connection begin with the
            // URL.
            StoreLocation::Server(_)
                if !error.mentions("unavailable: http") || error.mentions("respon") =>
            {
                None
            }
            StoreLocation::Server(url) if error.mentions("InvalidContentType") => {
                let plain = url.replacen("https://", "http://", 1);
                Some(format!("the server may not use TLS; try: --server {plain}"))
            }
            StoreLocation::Server(url) if error.mentions("invalid HTTP version") => {
                let tls = url.replacen("http://", "https://", 1);
                Some(format!("the server may use TLS; try: --server {tls}"))
            }
            StoreLocation::Server(url) => {
                Some(format!("is a server running at {url}? To start one: requeue serve"))
            }
            StoreLocation::Data(_) | StoreLocation::Redis(_) | StoreLocation::Postgres(_) => None,
        }
    }
}

impl StoreArgs {
    /// What to do about a certificate that was rejected.
    fn certificate_hint(&self, error: &CliError) -> String {
        if error.mentions("not valid for name") {
            return "use a host name or address that the certificate contains".to_owned();
        }
        if error.mentions("expired") || error.mentions("not valid yet") {
            return "renew the certificate of the server, or correct the clock".to_owned();
        }
        if error.mentions("certificate of a CA") {
            let how = "openssl req -x509 -addext basicConstraints=critical,CA:FALSE";
            return format!("create a certificate of the server, for example with {how}");
        }
        match self.ca_file() {
            None => "trust the CA that signed the certificate, or a self-signed certificate \
                     itself: --ca-file FILE"
                .to_owned(),
            Some(file) => format!(
                "{} contains neither the certificate of the server nor the CA that signed it",
                file.display()
            ),
        }
    }
}

/// An environment variable, unless it is empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Prints a warning, once per run, if other users have access to a file with a secret.
fn warn_about(file: &Path) {
    static WARNED: Once = Once::new();
    if let Some(warning) = private_files::warning(file) {
        WARNED.call_once(|| print_labelled("warning", &warning));
    }
}

/// Opens the store in a directory. With [`IfMissing::Fail`], a mistyped name creates no directory.
pub(crate) fn open_directory(directory: &Path, missing: IfMissing) -> Result<DiskStore> {
    if missing == IfMissing::Fail && !has_files(directory) {
        return Err(no_jobs(directory));
    }
    warn_about_directory(directory);
    Ok(DiskStore::open(directory)?)
}

/// Prints a warning if every user can change the files of a data directory.
pub(crate) fn warn_about_directory(directory: &Path) {
    if let Some(warning) = private_files::directory_warning(directory) {
        print_labelled("warning", &warning);
    }
}

/// The error for a directory that does not exist or contains no store.
pub(crate) fn no_jobs(directory: &Path) -> CliError {
    let message = format!("{} is not a data directory: it contains no jobs", directory.display());
    CliError::new(Exit::Failed, message)
        .hint("to create a data directory: requeue serve --data DIR")
}

/// Whether a directory contains anything. If that is damaged, opening the store reports it.
fn has_files(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_store_can_be_selected() {
        let data = || StoreArgs { data: Some("d".into()), ..StoreArgs::default() };
        assert_eq!(data().location().unwrap(), StoreLocation::Data("d".into()));
        let two = StoreArgs { store: Some("redis://h".to_owned()), ..data() };
        assert_eq!(two.location().unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn the_scheme_of_a_url_selects_the_store() {
        let at = |url: &str| StoreArgs { store: Some(url.to_owned()), ..StoreArgs::default() };
        for url in ["redis://h", "rediss+cluster://h"] {
            assert_eq!(at(url).location().unwrap(), StoreLocation::Redis(url.to_owned()));
        }
        for url in ["postgres://h/d", "postgresql://h/d"] {
            assert_eq!(at(url).location().unwrap(), StoreLocation::Postgres(url.to_owned()));
        }
        for url in ["mysql://me:hunter2@h/d", "hunter2", ""] {
            let error = at(url).location().unwrap_err();
            assert_eq!(error.exit, Exit::Usage);
            assert!(error.mentions("postgres://") && !error.mentions("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn every_connection_to_postgres_is_an_open_file() {
        let with =
            |postgres_connections| StoreArgs { postgres_connections, ..StoreArgs::default() };
        let postgres = StoreLocation::Postgres(String::new());
        assert_eq!(with(None).files_of_store(&postgres), RESERVED_FILES);
        assert_eq!(with(Some(1000)).files_of_store(&postgres), 1016);
        assert_eq!(
            with(Some(1000)).files_of_store(&StoreLocation::Data("d".into())),
            RESERVED_FILES
        );
    }

    #[test]
    fn a_missing_directory_is_not_created() {
        let directory = std::env::temp_dir().join(format!("requeue-none-{}", std::process::id()));
        let error = open_directory(&directory, IfMissing::Fail).unwrap_err();
        assert_eq!(error.exit, Exit::Failed);
        assert!(!directory.exists());
    }
}
