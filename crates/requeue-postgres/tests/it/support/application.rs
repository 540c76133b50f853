//! A connection of an application, for transactions of its own.

use requeue_jobs::{ChangeError, Changed, Placed, PutError, PutJob, Reschedule};
use requeue_postgres::{PostgresStore, PutInTransaction};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

pub(crate) struct Application {
    runtime: Runtime,
    client: Client,
}

impl Application {
    pub(crate) fn connect(url: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let (client, connection) =
            runtime.block_on(tokio_postgres::connect(url, NoTls)).expect("the server is up");
        runtime.spawn(async move { drop(connection.await) });
        Application { runtime, client }
    }

    /// Runs statements, and returns the first column of the first row, or an empty text. An error is the
    /// code and the message of the server.
    pub(crate) fn try_run(&self, sql: &str) -> Result<String, (String, String)> {
        let messages = self.runtime.block_on(self.client.simple_query(sql)).map_err(|error| {
            let error = error.as_db_error().expect("an error of the server");
            (error.code().code().to_owned(), error.message().to_owned())
        })?;
        let value = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        });
        Ok(value.unwrap_or_default())
    }

    pub(crate) fn run(&self, sql: &str) -> String {
        self.try_run(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// Puts a job in the transaction that is open.
    pub(crate) fn put(&self, store: &PostgresStore, put: PutJob) -> Result<Placed, PutError> {
        self.runtime.block_on(put.on(store, &self.client))
    }

    /// Cancels a job in the transaction that is open.
    pub(crate) fn cancel(
        &self,
        store: &PostgresStore,
        kind: &str,
        id: &str,
    ) -> Result<Changed, ChangeError> {
        self.runtime.block_on(store.cancel_on(&self.client, kind, id))
    }

    /// Reschedules a job in the transaction that is open.
    pub(crate) fn reschedule(
        &self,
        store: &PostgresStore,
        kind: &str,
        id: &str,
        set: Reschedule,
    ) -> Result<Placed, ChangeError> {
        self.runtime.block_on(store.reschedule_on(&self.client, kind, id, set))
    }
}
