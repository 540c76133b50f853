//! A connection of the benchmark itself, which creates databases and reads statistics.

use super::server::url;
use crate::workloads::usage;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::FromSqlOwned;
use tokio_postgres::{Client, NoTls};

pub(super) struct Connection {
    runtime: Runtime,
    client: Client,
}

impl Connection {
    /// Connects to a database.
    pub(super) fn to(port: u16, database: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the system has resources for a runtime");
        let client = runtime.block_on(connect(&url(port, database)));
        Connection { runtime, client }
    }

    /// Executes statements.
    pub(super) fn execute(&self, sql: &str) {
        let done = self.runtime.block_on(self.client.batch_execute(sql));
        done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// Returns the only value of a query.
    pub(super) fn value<T: FromSqlOwned>(&self, sql: &str) -> T {
        let row = self.runtime.block_on(self.client.query_one(sql, &[]));
        row.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
    }

    /// Returns the process that all processes of the server were started by.
    pub(super) fn postmaster(&self) -> Postmaster {
        let backend: i32 = self.value("select pg_backend_pid()");
        Postmaster { process: usage::parent(backend.cast_unsigned()) }
    }
}

/// The main process of a server.
#[derive(Clone, Copy)]
pub(super) struct Postmaster {
    process: u32,
}

impl Postmaster {
    /// CPU time of all processes of the server, including those that have ended.
    pub(super) fn cpu_time(self) -> Duration {
        usage::cpu_time_of_all(self.process)
    }
}

/// Connects, and serves the connection on the current runtime.
pub(super) async fn connect(url: &str) -> Client {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.unwrap_or_else(|error| panic!("{url}: {error:?}"));
    // It ends with the client, or with an error that the client reports.
    tokio::spawn(connection);
    client
}
