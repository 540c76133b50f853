//! Processes of servers that do not outlive the process of the test, even if that is killed.

use super::{LOOK, PATIENCE, until};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A shell between the test and the server. It prints the process id of the server and waits for the
/// end of its input. Then it kills the server with its child processes, and waits for their end.
///
/// The server is stopped first, so that it starts no more processes. Postgres has a shared memory
/// segment, whose id is in line 7 of its file. [`REMOVER`] waits for the lock.
const KEEPER: &str = r#"
exec 2>/dev/null 9<../lock
trap '' HUP INT TERM
flock -s 9
"$@" >>log 2>&1 9<&- & pid=$!
echo $pid
cat >/dev/null
kill -STOP $pid
children=$(cat /proc/$pid/task/$pid/children)
kill -9 $pid $children
wait $pid
for child in $children; do
    while grep -q '^State:.[^XZ]' /proc/$child/status; do sleep 0.01; done
done
memory=$(sed -n "1{/^$pid\$/!q};7s/.* //p" data/postmaster.pid)
[ -z "$memory" ] || ipcrm -m "$memory"
"#;

/// A shell that waits until the process of the test, all servers and all commands have ended. Then it
/// removes their folders.
const REMOVER: &str = r#"
exec 2>/dev/null 9<"$1/lock"
trap '' HUP INT TERM
cat >/dev/null
flock 9
rm -rf "$1"
"#;

/// A server in a folder. Its output is appended to the file `log` of the folder. Dropping it kills it
/// like `kill -9`, with its child processes.
#[derive(Debug)]
pub(super) struct Process {
    shell: Child,
    pid: u32,
    log: PathBuf,
    /// The length of the log when this process was started.
    logged_before: usize,
}

impl Process {
    /// Starts a server, and waits until it is ready. Paths in the command are relative to the folder.
    /// Returns `None` if its port or its shared memory is still in use.
    ///
    /// # Panics
    ///
    /// If the server does not start for another reason.
    pub(super) fn start(
        dir: &Path,
        command: &[OsString],
        environment: &[(String, String)],
        is_ready: impl Fn(&Process) -> bool,
    ) -> Option<Self> {
        Self::start_within(PATIENCE, dir, command, environment, is_ready)
    }

    /// Starts a server like [`start`](Self::start) that may take this long until it is ready.
    pub(super) fn start_within(
        limit: Duration,
        dir: &Path,
        command: &[OsString],
        environment: &[(String, String)],
        is_ready: impl Fn(&Process) -> bool,
    ) -> Option<Self> {
        let process = Self::spawn(dir, command, environment);
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if is_ready(&process) {
                return Some(process);
            }
            if process.is_over() {
                break;
            }
            thread::sleep(LOOK);
        }
        let log = process.log();
        let missing = log.contains("not found") || log.contains("No such file or directory");
        let hint = if missing { " (scripts/test installs it)" } else { "" };
        // Erlang reports the name of the error.
        let in_use = log.contains("in use") || log.contains("eaddrinuse");
        assert!(in_use, "{command:?} does not start{hint}: {log}");
        None
    }

    fn spawn(dir: &Path, command: &[OsString], environment: &[(String, String)]) -> Self {
        let log = dir.join("log");
        let logged_before = fs::read(&log).unwrap_or_default().len();
        let mut shell = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut line = String::new();
        let output = shell.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("the shell prints the process id");
        let pid = line.trim().parse().expect("it is a number");
        Process { shell, pid, log, logged_before }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns what it has logged since it was started.
    pub(super) fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let bytes = bytes.get(self.logged_before..).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Returns whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        state(self.pid).is_none_or(|state| state == 'Z')
    }

    /// Suspends it with its child processes. Connections stay open.
    pub(super) fn freeze(&self) {
        let is_frozen = |pid| state(pid).is_none_or(|state| matches!(state, 'T' | 'Z'));
        until("the server is suspended", || {
            // Afterwards it starts no more children.
            if !is_frozen(self.pid) {
                signal("-STOP", &[self.pid]);
                return false;
            }
            let mut children = self.children();
            children.retain(|&child| !is_frozen(child));
            signal("-STOP", &children);
            children.is_empty()
        });
    }

    /// Resumes it with its child processes.
    pub(super) fn thaw(&self) {
        signal("-CONT", &[self.children(), vec![self.pid]].concat());
    }

    fn children(&self) -> Vec<u32> {
        let pid = self.pid;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.expect("the server runs, and the kernel lists its children");
        children.split_whitespace().map(|child| child.parse().expect("it is a number")).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        self.shell.wait().expect("the shell ends");
    }
}

/// Creates an empty private folder.
pub(super) fn folder(of: &str) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let dir = folders().join(format!("{of}-{number}"));
    fs::create_dir(&dir).expect("temporary folders can be made");
    dir
}

/// Runs a command with this input. It ends before the folders of this process are removed.
///
/// # Panics
///
/// If it fails. The message contains what it prints.
pub(super) fn run(command: &[OsString], input: &str) {
    let script = r#"exec 9<lock; flock -s 9; printf %s "$0" | "$@" 2>&1 9<&-"#;
    let output = Command::new("sh")
        .args(["-c", script, input])
        .args(command)
        .current_dir(folders())
        .output();
    let output = output.expect("there is a shell");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?} fails: {printed}");
}

/// Returns the folder that contains the folders of all servers of this process.
fn folders() -> &'static Path {
    static FOLDERS: OnceLock<Folders> = OnceLock::new();
    &FOLDERS.get_or_init(Folders::new).dir
}

#[derive(Debug)]
struct Folders {
    dir: PathBuf,
    /// Its input ends with this process.
    _remover: Child,
}

impl Folders {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("requeue-servers-{}", std::process::id()));
        drop(fs::remove_dir_all(&dir));
        fs::create_dir_all(&dir).expect("temporary folders can be made");
        fs::write(dir.join("lock"), "").expect("files can be written");
        let mut remover = Command::new("sh");
        remover.args(["-c", REMOVER, "sh"]).arg(&dir).stdin(Stdio::piped()).stdout(Stdio::null());
        Folders { dir, _remover: remover.spawn().expect("there is a shell") }
    }
}

/// Sends a signal to those of these processes that still exist.
fn signal(name: &str, pids: &[u32]) {
    for pid in pids {
        let done = Command::new("kill").args([name, &pid.to_string()]).output();
        drop(done.expect("there is a kill"));
    }
}

/// Returns the state of a process as the kernel reports it, such as `T` for one that is suspended.
fn state(pid: u32) -> Option<char> {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    status.rsplit(") ").next()?.chars().next()
}
