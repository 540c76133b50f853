//! Streaming replicas.

use super::PostgresServer;
use super::psql::Session;
use crate::servers::unprivileged::{give, private_folder, run};
use crate::servers::until;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Copies a folder in which files may vanish meanwhile: the write-ahead log contains what happened to
/// them. Prints other errors.
const COPY: &str = r#"
errors=$(LC_ALL=C cp -a "$1" "$2" 2>&1 | grep -v "No such file or directory")
echo "$errors"
[ -z "$errors" ]
"#;

/// Whether a commit waits for a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// A commit waits until the replica, or another synchronous one, has written it.
    Synchronous,
    /// A commit does not wait: it is lost if the primary fails before the replica has received it.
    Asynchronous,
}

impl Replication {
    /// Returns the name of such replicas in `synchronous_standby_names` and `pg_stat_replication`.
    fn name(self) -> &'static str {
        match self {
            Replication::Synchronous => "synchronous_replica",
            Replication::Asynchronous => "asynchronous_replica",
        }
    }
}

impl PostgresServer {
    /// Starts a streaming replica of this server, with the same arguments. It accepts queries that
    /// only read.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn replica(&self, replication: Replication) -> PostgresServer {
        let dir = private_folder("postgres");
        let slot = self.query("select 'replica_' || count(*) from pg_replication_slots");
        // It makes the primary keep what the replica has to read.
        self.query(&format!("select pg_create_physical_replication_slot('{slot}', true)"));
        self.copy_data(&dir);
        let (port, name) = (self.port, replication.name());
        let primary = format!("host=127.0.0.1 port={port} user=requeue application_name={name}");
        let settings = format!("primary_conninfo = '{primary}'\nprimary_slot_name = '{slot}'\n");
        write(&dir.join("data/postgresql.auto.conf"), &settings);
        write(&dir.join("data/standby.signal"), "");
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        let replica = PostgresServer::in_folder(&self.version, dir, &arguments, self.tls);
        if replication == Replication::Synchronous {
            self.query(&format!("alter system set synchronous_standby_names = '{name}'"));
            self.query("select pg_reload_conf()");
        }
        let state = format!(
            "select state || ' ' || sync_state from pg_stat_replication join pg_replication_slots \
             on pid = active_pid where slot_name = '{slot}'"
        );
        until("the replica is connected", || {
            let state = self.query(&state);
            match replication {
                // Commits wait for the first of several synchronous replicas.
                Replication::Synchronous => {
                    state == "streaming sync" || state == "streaming potential"
                }
                Replication::Asynchronous => state == "streaming async",
            }
        });
        // Commits wait as soon as the checkpointer has read the settings. It does so before this.
        self.query("checkpoint");
        replica
    }

    /// Makes a replica a primary, which accepts writes. The old primary continues if it runs: kill it
    /// before.
    pub fn promote(&self) {
        // Not a query that waits: replaying the last changes of the primary may cancel it.
        until("the replica is a primary", || {
            drop(self.try_query("select pg_promote(false)"));
            self.try_query("select pg_is_in_recovery()").as_deref() == Ok("f")
        });
    }

    /// Waits until this replica has applied what the primary has committed until now.
    pub fn wait_caught_up(&self, primary: &PostgresServer) {
        let position = primary.query("select pg_current_wal_lsn()");
        let has = format!("select pg_last_wal_replay_lsn() >= '{position}'");
        until("the replica has caught up", || self.query(&has) == "t");
    }

    /// Copies the data of this running server for a replica: `pg_basebackup` exists only for one of the
    /// versions.
    fn copy_data(&self, dir: &Path) {
        let mut session = Session::open(&self.url(), &self.tls_environment());
        session.query("select pg_backup_start('replica', true)");
        let (from, to) = (self.dir.join("data"), dir.join("data"));
        let paths = [from.into(), to.clone().into()];
        run("sh", ["-c", COPY, "sh"].map(OsString::from).into_iter().chain(paths), "");
        let label = session.query("select labelfile from pg_backup_stop(false)");
        write(&to.join("backup_label"), &format!("{}\n", label.trim_end()));
        for file in ["postmaster.pid", "postmaster.opts"] {
            drop(fs::remove_file(to.join(file)));
        }
        for folder in ["pg_wal", "pg_replslot"] {
            clear(&to.join(folder));
        }
        for name in ["ca.crt", "client.crt", "client.key"] {
            if self.tls.is_some() {
                fs::copy(self.dir.join(name), dir.join(name)).expect("files can be copied");
            }
        }
    }
}

/// Removes all files in a folder, and folders of replication slots, but not those of the log.
fn clear(folder: &Path) {
    for entry in fs::read_dir(folder).expect("it is a folder").flatten() {
        let path = entry.path();
        if path.join("state").exists() {
            fs::remove_dir_all(path).expect("folders can be removed");
        } else if path.is_file() {
            fs::remove_file(path).expect("files can be removed");
        }
    }
}

/// Writes a file of the server.
fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("files can be written");
    give(path);
}
