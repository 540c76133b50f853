//! Where the jobs are: behind a server, in a directory, or on Redis.

use crate::failure::{Exit, Failure, Result};
use clap::Args;
use requeue_disk::DiskStore;
use requeue_http::HttpStore;
use requeue_http::client::Secret;
use requeue_jobs::Store;
use requeue_redis::RedisStore;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a server listens, and is looked for, if nothing is said.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:7654";

/// Where a server keeps its jobs, if nothing is said.
pub(crate) const DEFAULT_DATA: &str = "requeue-data";

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Where the jobs are")]
pub(crate) struct StoreArgs {
    /// Behind this server [env: REQUEUE_SERVER] [default: http://127.0.0.1:7654]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// In this directory, which no server has open
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// On this Redis: redis://, rediss://, redis+sentinel://, redis+cluster://
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// A file with the token that the server wants; REQUEUE_TOKEN may hold the token itself
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A file with certificates (PEM) to trust, beside the system's
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// What begins the names of keys on Redis [default: requeue]
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) redis_prefix: Option<String>,
    /// A file with the certificate (PEM) to show to Redis
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "redis_key",
        hide_short_help = true,
        long_help = "A file with the certificate (PEM) to show to Redis"
    )]
    pub(crate) redis_cert: Option<PathBuf>,
    /// A file with the private key (PEM) of that certificate
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "redis_cert",
        hide_short_help = true,
        long_help = "A file with the private key (PEM) of that certificate"
    )]
    pub(crate) redis_key: Option<PathBuf>,
}

/// One of the three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Where {
    Server(String),
    Data(PathBuf),
    Redis(String),
}

/// Whether a directory that is not there yet is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Make,
    Refuse,
}

impl StoreArgs {
    /// What the command line says, or else the environment.
    pub(crate) fn chosen(&self) -> Result<Where> {
        let server = self.server.clone().map(Where::Server);
        let data = self.data.clone().map(Where::Data);
        let store = self.store.clone().map(Where::Redis);
        let mut said = [server, data, store].into_iter().flatten();
        match (said.next(), said.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => {
                let server = std::env::var("REQUEUE_SERVER").ok().filter(|url| !url.is_empty());
                Ok(Where::Server(server.unwrap_or_else(|| DEFAULT_SERVER.to_owned())))
            }
            (Some(_), Some(_)) => {
                Err(Failure::usage("only one of --server, --data and --store can be meant"))
            }
        }
    }

    /// Opens or connects what is chosen.
    pub(crate) async fn open(&self, missing: IfMissing) -> Result<Arc<dyn Store>> {
        match self.chosen()? {
            Where::Server(url) => Ok(Arc::new(self.connect(&url)?)),
            Where::Data(directory) => Ok(Arc::new(open_directory(&directory, missing)?)),
            Where::Redis(url) => Ok(Arc::new(self.connect_redis(&url).await?)),
        }
    }

    /// Whether there is a server, the first call finds out.
    pub(crate) fn connect(&self, url: &str) -> Result<HttpStore> {
        let mut options = requeue_http::client::Options::default();
        options.token = self.token()?.map(Secret::from);
        options.ca_file.clone_from(&self.ca_file);
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
        options.ca_file.clone_from(&self.ca_file);
        options.certificate_file.clone_from(&self.redis_cert);
        options.key_file.clone_from(&self.redis_key);
        options
    }

    /// The token to show to a server. On the command line anybody could read it.
    fn token(&self) -> Result<Option<String>> {
        let Some(file) = &self.token_file else {
            return Ok(std::env::var("REQUEUE_TOKEN").ok().filter(|token| !token.is_empty()));
        };
        let name = file.display().to_string();
        let text =
            std::fs::read_to_string(file).map_err(|error| Failure::file("read", &name, &error))?;
        match text.trim() {
            "" => Err(Failure::new(Exit::Refused, format!("there is no token in {name}"))),
            token => Ok(Some(token.to_owned())),
        }
    }

    /// What to do about a place that is not available.
    pub(crate) fn hint(&self, failure: &Failure) -> Option<String> {
        match self.chosen().ok()? {
            Where::Server(_) if failure.tells("certificate") => {
                Some("trust those who signed it: --ca-file FILE".to_owned())
            }
            // It runs, and has said what is the matter.
            Where::Server(_) if failure.tells("answer") => None,
            Where::Server(url) if failure.tells("InvalidContentType") => {
                let plain = url.replacen("https://", "http://", 1);
                Some(format!("it does not speak TLS, as it seems: --server {plain}"))
            }
            Where::Server(url) if failure.tells("invalid HTTP version") => {
                let tls = url.replacen("http://", "https://", 1);
                Some(format!("does it speak TLS? --server {tls}"))
            }
            Where::Server(url) => {
                Some(format!("is a server running at {url}? start one: requeue serve"))
            }
            Where::Data(_) | Where::Redis(_) => None,
        }
    }
}

/// Opens a store in a directory. A name that was mistyped makes none.
pub(crate) fn open_directory(directory: &Path, missing: IfMissing) -> Result<DiskStore> {
    if missing == IfMissing::Refuse && !is_store(directory) {
        return Err(no_jobs(directory));
    }
    Ok(DiskStore::open(directory)?)
}

/// It is not there, or is of something else.
pub(crate) fn no_jobs(directory: &Path) -> Failure {
    let told = format!("there are no jobs in {}", directory.display());
    Failure::new(Exit::Refused, told)
        .hint("a server makes such a directory: requeue serve --data DIR")
}

/// Whether there is anything in it. What is damaged is for the store to tell.
fn is_store(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_is_chosen_and_not_two() {
        let data = || StoreArgs { data: Some("d".into()), ..StoreArgs::default() };
        assert_eq!(data().chosen().unwrap(), Where::Data("d".into()));
        let two = StoreArgs { store: Some("redis://h".to_owned()), ..data() };
        assert_eq!(two.chosen().unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_directory_without_jobs_is_not_made_into_a_store() {
        let directory = std::env::temp_dir().join(format!("requeue-none-{}", std::process::id()));
        let error = open_directory(&directory, IfMissing::Refuse).unwrap_err();
        assert_eq!(error.exit, Exit::Refused);
        assert!(!directory.exists());
    }
}
