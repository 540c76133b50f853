//! A private Postgres server: on a free port of this machine, with its data in the directory for
//! temporary files.

use requeue_testkit::servers::{PostgresServer, PostgresVersion};
use std::path::Path;

/// The superuser, who needs no password.
pub(super) const USER: &str = "requeue";

/// Postgres has the first two by default, and servers of tests have not. So a commit is durable
/// before its response.
const SETTINGS: [&str; 6] = [
    "fsync=on",
    "dynamic_shared_memory_type=posix",
    "max_connections=200",
    "shared_buffers=512MB",
    // A checkpoint during a measurement would affect its result.
    "max_wal_size=4GB",
    "checkpoint_timeout=1h",
];

/// Starts the server with the programs in `bin`.
pub(crate) fn server(bin: &Path) -> PostgresServer {
    let arguments: Vec<_> = SETTINGS.into_iter().flat_map(|setting| ["-c", setting]).collect();
    PostgresServer::with(&PostgresVersion::in_folder(bin), &arguments)
}

/// Returns the URL of a database.
pub(super) fn url(port: u16, database: &str) -> String {
    format!("postgres://{USER}@127.0.0.1:{port}/{database}")
}
