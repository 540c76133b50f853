//! Runs a command in its own process group.
//!
//! The group is signalled only as long as its leader has not been reaped, because until then no
//! other process can get its number. So we wait for the leader to exit without reaping it, kill the
//! rest of the group, and reap the leader last.

use requeue_jobs::ClaimedJob;
use requeue_jobs::limits::MAX_ERROR_LEN;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::times;

/// Time between SIGTERM and SIGKILL.
pub(super) const KILL_DELAY: Duration = Duration::from_secs(5);

/// How long to wait for the end of stderr after the command has exited. A process that left the
/// group may keep it open.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// Exit code of sysexits.h for invalid input, which a retry does not change.
const EX_DATAERR: i32 = 65;

/// How many bytes of stderr are kept. Together with the exit code, they fit into a job's error.
const TAIL_LEN: usize = MAX_ERROR_LEN - 64;

/// Variables of the worker that contain its access to the store, or that of a bridge to brokers. Commands do not inherit them: a command
/// that prints its environment to stderr would store them as the error of its job.
const CREDENTIALS: [&str; 6] = [
    "REQUEUE_TOKEN",
    "REQUEUE_TOKEN_FILE",
    "REQUEUE_READ_TOKEN",
    "REQUEUE_STORE",
    "REQUEUE_BRIDGE_FROM",
    "REQUEUE_BRIDGE_TO",
];

/// The command to run for each job.
pub(super) struct Command {
    pub(super) line: String,
    pub(super) timeout: Option<Duration>,
    /// Set with `--json`, where stdout contains only our reports.
    pub(super) stdout_to_stderr: bool,
    pub(super) stopped: watch::Receiver<Stop>,
}

/// Whether running commands must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    No,
    Term,
    Kill,
}

/// How a command ended, with the error for the job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    /// The job is invalid: it becomes dead.
    NoGood(String),
    /// The job is retried.
    Failed(String),
}

/// The optional fields of a job, such as `REQUEUE_ENVELOPE`. A variable cannot contain a NUL.
fn head_variables(job: &ClaimedJob) -> impl Iterator<Item = (String, String)> {
    let entries = job.version.content.head.entries().into_iter();
    entries.map(|(name, text)| (format!("REQUEUE_{}", name.to_uppercase()), text.replace('\0', "")))
}

/// Why a command was stopped.
#[derive(Clone, Copy)]
enum StopReason {
    TimedOut(Duration),
    Stopped,
}

impl Command {
    /// Runs the command for a job. Dropping the future kills the process group.
    pub(super) async fn run(&self, job: &ClaimedJob) -> io::Result<Ended> {
        if [job.id().as_str(), job.body().content_type()].iter().any(|text| text.contains('\0')) {
            let error =
                "the id or content type contains a NUL, which no environment variable can contain";
            return Ok(Ended::NoGood(error.to_owned()));
        }
        let mut child = self.start(job)?;
        // Dropped before the child, which is reaped after that.
        let mut group = ProcessGroup::of(child.id());
        let feed = child.stdin.take().map(|stdin| tokio::spawn(feed(stdin, job.body().clone())));
        let tail = Arc::new(StderrTail::default());
        let stderr = child.stderr.take().expect("stderr is piped");
        let copied = tokio::spawn(copy(stderr, Arc::clone(&tail)));
        let cut = self.wait(&group).await?;
        group.signal(Signal::KILL);
        let status = child.wait().await?;
        group.reaped();
        if let Some(feed) = feed {
            feed.abort();
        }
        // A process that left the group may keep stderr open for ever.
        let _ = tokio::time::timeout(STDERR_TIMEOUT, copied).await;
        Ok(ended(status, cut, &tail.text()))
    }

    fn start(&self, job: &ClaimedJob) -> io::Result<tokio::process::Child> {
        let mut command = tokio::process::Command::new("sh");
        command
            .arg("-c")
            .arg(&self.line)
            .env("REQUEUE_KIND", job.kind().as_str())
            .env("REQUEUE_ID", job.id().as_str())
            .env("REQUEUE_ATTEMPT", job.attempt.to_string())
            .env("REQUEUE_PRIORITY", job.version.priority.to_string())
            .env("REQUEUE_GENERATION", job.version.generation.to_string())
            .env("REQUEUE_DUE", times::show_time(job.version.due))
            .env("REQUEUE_RECEIPT", job.receipt.to_string())
            .env("REQUEUE_CONTENT_TYPE", job.body().content_type())
            .envs(head_variables(job))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        for name in CREDENTIALS {
            command.env_remove(name);
        }
        if self.stdout_to_stderr {
            command.stdout(io::stderr().as_fd().try_clone_to_owned()?);
        }
        command.spawn()
    }

    /// Waits until the command has exited. Stops it after the timeout, or when the worker stops, and
    /// returns the reason.
    async fn wait(&self, group: &ProcessGroup) -> io::Result<Option<StopReason>> {
        let mut ended = std::pin::pin!(group.ended());
        let mut stopped = self.stopped.clone();
        let timeout = async {
            match self.timeout {
                Some(limit) => {
                    tokio::time::sleep(limit).await;
                    StopReason::TimedOut(limit)
                }
                None => std::future::pending().await,
            }
        };
        let cut = tokio::select! {
            biased;
            result = &mut ended => return result.map(|()| None),
            cut = timeout => cut,
            () = requested(&mut stopped, Stop::Term) => StopReason::Stopped,
        };
        group.signal(Signal::TERM);
        tokio::select! {
            result = &mut ended => return result.map(|()| Some(cut)),
            () = tokio::time::sleep(KILL_DELAY) => {}
            () = requested(&mut stopped, Stop::Kill) => {}
        }
        group.signal(Signal::KILL);
        ended.await?;
        Ok(Some(cut))
    }
}

/// Waits until commands must stop, at least in this way.
async fn requested(stopped: &mut watch::Receiver<Stop>, stop: Stop) {
    if stopped.wait_for(|requested| *requested >= stop).await.is_err() {
        // The sender is dropped: nobody can request it any more.
        std::future::pending::<()>().await;
    }
}

/// The process group of a running command. Dropping it kills the group.
struct ProcessGroup {
    /// `None` after the leader was reaped.
    leader: Option<Pid>,
}

impl ProcessGroup {
    fn of(leader: Option<u32>) -> Self {
        ProcessGroup { leader: leader.and_then(|pid| Pid::from_raw(pid.try_into().ok()?)) }
    }

    /// Signals all processes of the group. It is no error if none is left.
    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Records that the leader was reaped: another process can get its number now.
    fn reaped(&mut self) {
        self.leader = None;
    }

    /// Waits until the leader has exited, without reaping it. Uses no blocking thread: there are
    /// fewer threads than commands, and other tasks need them.
    async fn ended(&self) -> io::Result<()> {
        let Some(leader) = self.leader else { return Ok(()) };
        // Before the first check, so that no exit is missed.
        let mut children = signal(SignalKind::child())?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        loop {
            match waitid(WaitId::Pid(leader), options) {
                Ok(None) => {
                    children.recv().await;
                }
                Err(Errno::INTR) => {}
                result => return result.map(drop).map_err(io::Error::from),
            }
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Writes the body to stdin. Ignores errors: a command need not read all of its stdin.
async fn feed(mut stdin: ChildStdin, body: requeue_jobs::Body) {
    let _ = stdin.write_all(body.bytes()).await;
}

/// The last bytes that a command printed to stderr.
#[derive(Default)]
struct StderrTail(Mutex<Vec<u8>>);

impl StderrTail {
    fn add(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(bytes);
        let over = tail.len().saturating_sub(TAIL_LEN);
        tail.drain(..over);
    }

    /// The bytes as text, from the first whole character.
    fn text(&self) -> String {
        let tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let continues = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let cut = if tail.len() < TAIL_LEN { 0 } else { tail.iter().take_while(continues).count() };
        String::from_utf8_lossy(&tail[cut..]).trim().to_owned()
    }
}

/// Forwards stderr, and keeps its end.
async fn copy(mut from: ChildStderr, tail: Arc<StderrTail>) {
    let (mut buffer, mut to) = ([0; 8 << 10], tokio::io::stderr());
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        tail.add(&buffer[..count]);
        // The command continues even if nobody reads our stderr.
        let _ = to.write_all(&buffer[..count]).await;
        let _ = to.flush().await;
    }
}

fn ended(status: ExitStatus, cut: Option<StopReason>, tail: &str) -> Ended {
    let how = match (cut, status.code(), status.signal()) {
        (Some(StopReason::TimedOut(limit)), ..) => {
            format!("timed out after {}", times::show_duration(limit))
        }
        // A command that exits with 0 after SIGTERM has succeeded.
        (_, Some(0), _) => return Ended::Well,
        (Some(StopReason::Stopped), ..) => "the worker was stopped".to_owned(),
        (None, Some(code), _) => format!("exit code {code}"),
        (None, None, Some(signal)) => format!("killed by {}", signal_name(signal)),
        (None, None, None) => "ended for an unknown reason".to_owned(),
    };
    let error = if tail.is_empty() { how } else { format!("{how}: {tail}") };
    if cut.is_none() && status.code() == Some(EX_DATAERR) {
        return Ended::NoGood(error);
    }
    Ended::Failed(error)
}

fn signal_name(signal: i32) -> String {
    let named = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::TERM, "SIGTERM"),
    ];
    let named = named.iter().find(|(known, _)| known.as_raw() == signal);
    named.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `wait` encodes it: the exit code is in the second byte, a signal in the first.
    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn the_exit_status_decides_what_happens_to_the_job() {
        assert_eq!(ended(exit(0), None, "warning"), Ended::Well);
        assert_eq!(ended(exit(65), None, "bad"), Ended::NoGood("exit code 65: bad".to_owned()));
        assert_eq!(ended(exit(3), None, ""), Ended::Failed("exit code 3".to_owned()));
        let killed = ExitStatus::from_raw(9);
        assert_eq!(ended(killed, None, ""), Ended::Failed("killed by SIGKILL".to_owned()));
        let late = Some(StopReason::TimedOut(Duration::from_secs(2)));
        assert_eq!(ended(exit(0), late, ""), Ended::Failed("timed out after 2s".to_owned()));
        assert_eq!(ended(exit(0), Some(StopReason::Stopped), ""), Ended::Well);
        let stopped = ended(exit(65), Some(StopReason::Stopped), "");
        assert_eq!(stopped, Ended::Failed("the worker was stopped".to_owned()));
    }

    #[test]
    fn the_kept_end_of_stderr_begins_with_a_whole_character() {
        let tail = StderrTail::default();
        tail.add(b"first\n");
        assert_eq!(tail.text(), "first");
        tail.add("ü".repeat(TAIL_LEN).as_bytes());
        tail.add(b"x");
        let text = tail.text();
        assert!(text.len() <= TAIL_LEN && text.ends_with("üx") && text.starts_with('ü'), "{text}");
    }

    #[test]
    fn an_error_with_its_tail_fits_into_the_limit() {
        let late = Some(StopReason::TimedOut(Duration::new(86_399, 999_999_999)));
        let Ended::Failed(error) = ended(exit(1), late, &"x".repeat(TAIL_LEN)) else {
            panic!("it failed");
        };
        assert!(error.len() <= MAX_ERROR_LEN, "{}", error.len());
    }

    #[tokio::test]
    async fn a_job_with_a_nul_in_its_id_is_dead_immediately() {
        let (_stop, stopped) = watch::channel(Stop::No);
        let line = "exit 0".to_owned();
        let command = Command { line, timeout: None, stdout_to_stderr: true, stopped };
        let ended = command.run(&claimed("a\0b")).await.unwrap();
        assert!(matches!(&ended, Ended::NoGood(error) if error.contains("NUL")), "{ended:?}");
    }

    fn claimed(id: &str) -> ClaimedJob {
        let kind = requeue_jobs::Kind::new("mail").unwrap();
        let id = requeue_jobs::JobId::new(id).unwrap();
        let receipt = requeue_jobs::Receipt::new(kind, id, requeue_jobs::Fence(1), 1);
        ClaimedJob::new(receipt, requeue_jobs::Body::default())
    }

    #[test]
    fn a_running_command_uses_no_blocking_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let name = std::env::temp_dir().join(format!("requeue-both-{}", std::process::id()));
        let (_stop, stopped) = watch::channel(Stop::No);
        // Each command waits for the other.
        let command = |mine: &str, other: &str| Command {
            line: format!("n={}; > $n.{mine}; until [ -e $n.{other} ]; do :; done", name.display()),
            timeout: None,
            stdout_to_stderr: true,
            stopped: stopped.clone(),
        };
        let (a, b, job) = (command("a", "b"), command("b", "a"), claimed("a"));
        let both = async { tokio::try_join!(a.run(&job), b.run(&job)) };
        let ended = runtime.block_on(both).unwrap();
        for end in ["a", "b"] {
            std::fs::remove_file(name.with_extension(end)).unwrap();
        }
        assert_eq!(ended, (Ended::Well, Ended::Well));
    }

    #[tokio::test]
    async fn dropping_a_run_kills_its_processes() {
        let name = std::env::temp_dir().join(format!("requeue-dropped-{}", std::process::id()));
        let line = format!("sleep 600 & echo $! > {}; wait", name.display());
        let (_stop, stopped) = watch::channel(Stop::No);
        let command = Command { line, timeout: None, stdout_to_stderr: true, stopped };
        let started = async {
            loop {
                let pid = std::fs::read_to_string(&name).unwrap_or_default();
                if pid.ends_with('\n') {
                    return pid.trim().parse().ok().and_then(Pid::from_raw).unwrap();
                }
                tokio::task::yield_now().await;
            }
        };
        let job = claimed("a");
        let child = tokio::select! {
            ended = command.run(&job) => panic!("{ended:?}"),
            child = started => child,
        };
        std::fs::remove_file(&name).unwrap();
        // A dead process may not have been reaped yet by its new parent.
        let runs = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with(['Z', 'X']))
        };
        while runs() {
            tokio::task::yield_now().await;
        }
    }
}
