//! A private Postgres server: on a free port of this machine, with its data in the scratch directory.
//!
//! It runs with the settings that Postgres has by default, so a commit is durable before its
//! response; the exceptions are in [`SETTINGS`].

use crate::workloads::http::free_address;
use crate::workloads::place::{Fresh, Place};
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The superuser, who needs no password.
pub(super) const USER: &str = "requeue";

const SETTINGS: [&str; 6] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "shared_buffers=512MB",
    // A checkpoint during a measurement would affect its result.
    "max_wal_size=4GB",
    "checkpoint_timeout=1h",
];

/// Runs the server until the input ends, which it also does if the benchmark is killed. Then stops the
/// server without a checkpoint.
const KEEPER: &str = r#"
trap '' INT
"$@" >>log 2>&1 & pid=$!
cat >/dev/null
kill -QUIT $pid
wait $pid
"#;

/// The user `nobody` and its group: Postgres refuses to run as root.
const NOBODY: u32 = 65534;

const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two checks whether it accepts connections.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) struct PostgresServer {
    keeper: Child,
    port: u16,
    dir: Fresh,
}

impl PostgresServer {
    /// Starts the server of the programs in `bin`.
    ///
    /// # Panics
    ///
    /// If it does not start. The message contains its output.
    pub(crate) fn start(bin: &Path, scratch: Option<PathBuf>) -> Self {
        let dir = Place::new(scratch).fresh("postgres");
        if geteuid().is_root() {
            chown(&*dir, Some(NOBODY), Some(NOBODY)).expect("root can change the owner");
        }
        create_data(bin, &dir);
        let port = free_address().port();
        let settings = SETTINGS.map(str::to_owned).into_iter().chain([format!("port={port}")]);
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).args(unprivileged(&bin.join("postgres")));
        command.args(["-D", "data"]).args(settings.flat_map(|setting| ["-c".to_owned(), setting]));
        let keeper = command.current_dir(&*dir).stdin(Stdio::piped()).spawn();
        let mut server = PostgresServer { keeper: keeper.expect("there is a shell"), port, dir };
        let end = Instant::now() + PATIENCE;
        while !server.is_ready() {
            assert!(Instant::now() < end, "postgres does not start: {}", server.log());
            let ended = server.keeper.try_wait().expect("it is our child");
            assert!(ended.is_none(), "postgres does not start: {}", server.log());
            thread::sleep(PAUSE);
        }
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether it reports in its file that it accepts connections.
    fn is_ready(&self) -> bool {
        let file = fs::read_to_string(self.dir.join("data/postmaster.pid")).unwrap_or_default();
        file.lines().nth(7).is_some_and(|state| state.trim() == "ready")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // Nothing depends on how it ends.
        let _ = self.keeper.wait();
    }
}

/// Returns the URL of a database.
pub(super) fn url(port: u16, database: &str) -> String {
    format!("postgres://{USER}@127.0.0.1:{port}/{database}")
}

fn create_data(bin: &Path, dir: &Path) {
    let program = unprivileged(&bin.join("initdb"));
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).args(["-D", "data", "-U", USER, "-A", "trust", "--no-sync"]);
    command.args(["-E", "UTF8", "--locale=C.UTF-8"]).current_dir(dir);
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("could not start {command:?}: {error}"));
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?} fails: {}", String::from_utf8_lossy(&printed));
}

/// Returns a command that does not run as root.
fn unprivileged(program: &Path) -> Vec<String> {
    let program = AsRef::<OsStr>::as_ref(program).to_string_lossy().into_owned();
    if !geteuid().is_root() {
        return vec![program];
    }
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    ["setpriv".to_owned(), "--clear-groups".to_owned()]
        .into_iter()
        .chain(user)
        .chain([program])
        .collect()
}
