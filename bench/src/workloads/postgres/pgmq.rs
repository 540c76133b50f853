//! pgmq: a queue in SQL. A worker is a loop that reads a hundred messages and deletes them.

use super::commands::{Handler, Queue};
use super::connection::connect;
use super::job::Job;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Statement};

/// Connections that read, each in its own loop.
const READERS: usize = 2;
/// The time between two reads of an empty queue: the default of `pgmq.read_with_poll`.
const POLL: Duration = Duration::from_millis(100);

const SEND_BATCH: &str = "select pgmq.send_batch('bench', $1::text[]::jsonb[])";
const SEND_BATCH_LATER: &str =
    "select pgmq.send_batch('bench', $1::text[]::jsonb[], to_timestamp($2::float8 / 1000))";
/// A batch has one time for all messages.
const SEND_EACH: &str = "select pgmq.send('bench', message::jsonb, to_timestamp(due / 1000))
    from unnest($1::text[], $2::float8[]) as jobs(message, due)";
/// Messages are invisible for a minute, which is more time than a handler takes.
const READ: &str = "select msg_id, message #>> '{}' from pgmq.read('bench', 60, 100)";
const DELETE: &str = "select pgmq.delete('bench', $1::bigint[])";
/// Visible within a day, in an hour at the earliest.
const FILL: &str = "insert into pgmq.q_bench (vt, message)
    select now() + interval '1 hour' + random() * interval '1 day', to_jsonb(repeat('x', 100))
    from generate_series(1, $1::bigint)";

pub(super) struct Pgmq {
    version: String,
    sender: Client,
    /// Empty while a worker runs.
    readers: Vec<Client>,
    worker: Option<Worker>,
}

struct Worker {
    stop: watch::Sender<bool>,
    /// Each returns its connection.
    loops: Vec<JoinHandle<Client>>,
}

impl Pgmq {
    /// Creates the functions of the file `sql`, and a queue.
    pub(super) async fn open(url: String, sql: PathBuf) -> Self {
        let read = |path: &Path| {
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let version = read(&sql.with_file_name("VERSION")).trim().to_owned();
        let sender = connect(&url).await;
        let functions = read(&sql);
        let created = sender.batch_execute(&functions).await;
        created.expect("the server is supported by pgmq");
        execute(&sender, "select pgmq.create('bench')").await;
        let mut readers = Vec::new();
        for _ in 0..READERS {
            readers.push(connect(&url).await);
        }
        Pgmq { version, sender, readers, worker: None }
    }
}

impl Queue for Pgmq {
    fn version(&self) -> String {
        self.version.clone()
    }

    async fn insert(&self, jobs: &[Job]) {
        let json = |job: &Job| serde_json::to_string(&job.body).expect("a string is valid JSON");
        let messages: Vec<String> = jobs.iter().map(json).collect();
        let due: Vec<Option<f64>> =
            jobs.iter().map(|job| job.due_ms.map(|due| due as f64)).collect();
        let is_same = due.windows(2).all(|pair| pair[0] == pair[1]);
        let sent = match due[0] {
            None => self.sender.query(SEND_BATCH, &[&messages]).await,
            Some(due) if is_same => self.sender.query(SEND_BATCH_LATER, &[&messages, &due]).await,
            Some(_) => self.sender.query(SEND_EACH, &[&messages, &due]).await,
        };
        assert_eq!(sent.expect("the server responds").len(), jobs.len(), "not all were sent");
    }

    async fn fill(&self, count: usize) {
        let filled = self.sender.execute(FILL, &[&(count as i64)]).await;
        assert_eq!(filled.expect("the server responds"), count as u64);
    }

    async fn start(&mut self, _workers: usize, handler: Handler) {
        let (stop, stopped) = watch::channel(false);
        let readers = self.readers.drain(..);
        let loops = readers
            .map(|reader| tokio::spawn(read_and_delete(reader, handler.clone(), stopped.clone())))
            .collect();
        self.worker = Some(Worker { stop, loops });
    }

    async fn stop(&mut self) {
        let Worker { stop, loops } = self.worker.take().expect("a worker runs");
        stop.send_replace(true);
        for reader in loops {
            self.readers.push(reader.await.expect("the server responds"));
        }
    }
}

async fn read_and_delete(
    client: Client,
    handler: Handler,
    mut stopped: watch::Receiver<bool>,
) -> Client {
    let (read, delete) = (prepare(&client, READ).await, prepare(&client, DELETE).await);
    while !*stopped.borrow() {
        let messages = client.query(&read, &[]).await.expect("the server responds");
        if messages.is_empty() {
            // The result does not matter: it stops or reads again.
            let _ = tokio::time::timeout(POLL, stopped.changed()).await;
            continue;
        }
        messages.iter().for_each(|message| handler(message.get(1)));
        let ids: Vec<i64> = messages.iter().map(|message| message.get(0)).collect();
        let deleted = client.query(&delete, &[&ids]).await.expect("the server responds");
        assert_eq!(deleted.len(), ids.len(), "a message was read twice");
    }
    client
}

async fn prepare(client: &Client, sql: &str) -> Statement {
    client.prepare(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
}

async fn execute(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}
