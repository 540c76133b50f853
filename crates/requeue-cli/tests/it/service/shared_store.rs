//! A Redis or a Postgres server that several servers share.

use requeue_testkit::servers::{PostgresServer, RedisServer};

pub(crate) enum SharedStore {
    Redis(RedisServer),
    Postgres(PostgresServer),
}

impl SharedStore {
    /// Starts one of each.
    pub(crate) fn each() -> [Self; 2] {
        [SharedStore::Redis(RedisServer::start()), SharedStore::Postgres(PostgresServer::start())]
    }

    /// Starts one of each, which lose nothing when they are killed.
    pub(crate) fn each_durable() -> [Self; 2] {
        let redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
        [SharedStore::Redis(redis), SharedStore::Postgres(PostgresServer::start())]
    }

    pub(crate) fn url(&self) -> String {
        match self {
            SharedStore::Redis(redis) => redis.url(),
            SharedStore::Postgres(postgres) => postgres.url(),
        }
    }

    /// Kills it like `kill -9`.
    pub(crate) fn kill(&mut self) {
        match self {
            SharedStore::Redis(redis) => redis.kill(),
            SharedStore::Postgres(postgres) => postgres.kill(),
        }
    }

    pub(crate) fn start_again(&mut self) {
        match self {
            SharedStore::Redis(redis) => redis.start_again(),
            SharedStore::Postgres(postgres) => postgres.start_again(),
        }
    }
}
