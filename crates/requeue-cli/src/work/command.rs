//! One run of a command, in a process group of its own.
//!
//! The group is signalled only while its leader has not been waited for: until then its number
//! belongs to nobody else. So the end of the leader is awaited without taking it, then whatever is
//! left of the group is killed, and only then the leader is let go.

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

/// Between SIGTERM and SIGKILL.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long the end of stderr is waited for once the command has ended: somebody may hold it open
/// who left the group.
const LAST_LINES: Duration = Duration::from_secs(1);

/// `EX_DATAERR` of sysexits.h: the input was wrong, and stays so.
const NO_GOOD: i32 = 65;

/// What is kept of stderr: with how the command ended, as much as is kept of an error.
const TAIL: usize = MAX_ERROR_LEN - 64;

/// What is run for each job.
pub(super) struct Command {
    pub(super) line: String,
    pub(super) timeout: Option<Duration>,
    /// Where our own reports go to stdout.
    pub(super) stdout_to_stderr: bool,
    pub(super) stopped: watch::Receiver<Stop>,
}

/// Whether commands are to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    No,
    Term,
    Kill,
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    /// The job is no good.
    NoGood(String),
    Failed(String),
}

/// Why a command is ended before its time.
#[derive(Clone, Copy)]
enum Cut {
    TimedOut(Duration),
    Stopped,
}

impl Command {
    /// Runs it for a job. Dropped half way, the group is killed.
    pub(super) async fn run(&self, job: &ClaimedJob) -> io::Result<Ended> {
        if [job.id().as_str(), job.body.content_type()].iter().any(|text| text.contains('\0')) {
            let told = "its id or content type has a NUL in it, which no environment can hold";
            return Ok(Ended::NoGood(told.to_owned()));
        }
        let mut child = self.start(job)?;
        // Dropped before the child, which is let go then.
        let mut group = Group::of(child.id());
        let feed = child.stdin.take().map(|stdin| tokio::spawn(feed(stdin, job.body.clone())));
        let tail = Arc::new(Tail::default());
        let stderr = child.stderr.take().expect("it is piped");
        let copied = tokio::spawn(copy(stderr, Arc::clone(&tail)));
        let cut = self.wait(&group).await?;
        group.signal(Signal::KILL);
        let status = child.wait().await?;
        group.over();
        if let Some(feed) = feed {
            feed.abort();
        }
        // What it printed is there; more may come from those who left the group, for ever.
        let _ = tokio::time::timeout(LAST_LINES, copied).await;
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
            .env("REQUEUE_GENERATION", job.generation.to_string())
            .env("REQUEUE_DUE", times::show_time(job.due))
            .env("REQUEUE_RECEIPT", job.receipt.to_string())
            .env("REQUEUE_CONTENT_TYPE", job.body.content_type())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if self.stdout_to_stderr {
            command.stdout(io::stderr().as_fd().try_clone_to_owned()?);
        }
        command.spawn()
    }

    /// Waits until the command has ended, and ends it when it is time. Answers why, if it did.
    async fn wait(&self, group: &Group) -> io::Result<Option<Cut>> {
        let mut ended = std::pin::pin!(group.ended());
        let mut stopped = self.stopped.clone();
        let timeout = async {
            match self.timeout {
                Some(limit) => {
                    tokio::time::sleep(limit).await;
                    Cut::TimedOut(limit)
                }
                None => std::future::pending().await,
            }
        };
        let cut = tokio::select! {
            biased;
            answer = &mut ended => return answer.map(|()| None),
            cut = timeout => cut,
            () = asked(&mut stopped, Stop::Term) => Cut::Stopped,
        };
        group.signal(Signal::TERM);
        tokio::select! {
            answer = &mut ended => return answer.map(|()| Some(cut)),
            () = tokio::time::sleep(PATIENCE) => {}
            () = asked(&mut stopped, Stop::Kill) => {}
        }
        group.signal(Signal::KILL);
        ended.await?;
        Ok(Some(cut))
    }
}

/// Waits until so much is asked for.
async fn asked(stopped: &mut watch::Receiver<Stop>, stop: Stop) {
    if stopped.wait_for(|asked| *asked >= stop).await.is_err() {
        // The asker is gone, and asks no more.
        std::future::pending::<()>().await;
    }
}

/// The group of a command that was started and not let go.
struct Group {
    /// `None`: it was let go.
    leader: Option<Pid>,
}

impl Group {
    fn of(leader: Option<u32>) -> Self {
        Group { leader: leader.and_then(|pid| Pid::from_raw(pid.try_into().ok()?)) }
    }

    /// To all of it. That nobody is left to be signalled is no error.
    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            let _ = kill_process_group(leader, signal);
        }
    }

    /// The leader was let go: its number may be another's.
    fn over(&mut self) {
        self.leader = None;
    }

    /// Waits for the end of the leader, and leaves it to be waited for. It takes no thread: of
    /// those there are fewer than commands may run, and others need them.
    async fn ended(&self) -> io::Result<()> {
        let Some(leader) = self.leader else { return Ok(()) };
        // Before the first look, so that no end is missed.
        let mut children = signal(SignalKind::child())?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        loop {
            match waitid(WaitId::Pid(leader), options) {
                Ok(None) => {
                    children.recv().await;
                }
                Err(Errno::INTR) => {}
                answer => return answer.map(drop).map_err(io::Error::from),
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// A command that does not read all of it, or none, is free to.
async fn feed(mut stdin: ChildStdin, body: requeue_jobs::Body) {
    let _ = stdin.write_all(body.bytes()).await;
}

/// The end of what a command printed.
#[derive(Default)]
struct Tail(Mutex<Vec<u8>>);

impl Tail {
    fn add(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(bytes);
        let over = tail.len().saturating_sub(TAIL);
        tail.drain(..over);
    }

    /// As text, from the beginning of a character.
    fn text(&self) -> String {
        let tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let continues = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let cut = if tail.len() < TAIL { 0 } else { tail.iter().take_while(continues).count() };
        String::from_utf8_lossy(&tail[cut..]).trim().to_owned()
    }
}

/// Passes stderr on, and keeps its end.
async fn copy(mut from: ChildStderr, tail: Arc<Tail>) {
    let (mut buffer, mut to) = ([0; 8 << 10], tokio::io::stderr());
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        tail.add(&buffer[..count]);
        // Nobody may read it; the command goes on all the same.
        let _ = to.write_all(&buffer[..count]).await;
        let _ = to.flush().await;
    }
}

fn ended(status: ExitStatus, cut: Option<Cut>, tail: &str) -> Ended {
    let how = match (cut, status.code(), status.signal()) {
        (Some(Cut::TimedOut(limit)), ..) => {
            format!("it took longer than {}", times::show_duration(limit))
        }
        // It may have ended well, after SIGTERM: then it has.
        (_, Some(0), _) => return Ended::Well,
        (Some(Cut::Stopped), ..) => "its worker was stopped".to_owned(),
        (None, Some(code), _) => format!("exit code {code}"),
        (None, None, Some(signal)) => format!("killed by {}", signal_name(signal)),
        (None, None, None) => "it ended, and nobody knows how".to_owned(),
    };
    let told = if tail.is_empty() { how } else { format!("{how}: {tail}") };
    if cut.is_none() && status.code() == Some(NO_GOOD) {
        return Ended::NoGood(told);
    }
    Ended::Failed(told)
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

    /// As `wait` tells it: the exit code is in the second byte, a signal in the first.
    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn how_a_command_ends_decides_what_becomes_of_its_job() {
        assert_eq!(ended(exit(0), None, "warning"), Ended::Well);
        assert_eq!(ended(exit(65), None, "bad"), Ended::NoGood("exit code 65: bad".to_owned()));
        assert_eq!(ended(exit(3), None, ""), Ended::Failed("exit code 3".to_owned()));
        let killed = ExitStatus::from_raw(9);
        assert_eq!(ended(killed, None, ""), Ended::Failed("killed by SIGKILL".to_owned()));
        let late = Some(Cut::TimedOut(Duration::from_secs(2)));
        assert_eq!(ended(exit(0), late, ""), Ended::Failed("it took longer than 2s".to_owned()));
        assert_eq!(ended(exit(0), Some(Cut::Stopped), ""), Ended::Well);
        let stopped = ended(exit(65), Some(Cut::Stopped), "");
        assert_eq!(stopped, Ended::Failed("its worker was stopped".to_owned()));
    }

    #[test]
    fn the_end_of_stderr_is_kept_in_whole_characters() {
        let tail = Tail::default();
        tail.add(b"first\n");
        assert_eq!(tail.text(), "first");
        tail.add("ü".repeat(TAIL).as_bytes());
        tail.add(b"x");
        let text = tail.text();
        assert!(text.len() <= TAIL && text.ends_with("üx") && text.starts_with('ü'), "{text}");
    }

    #[test]
    fn an_error_with_its_tail_is_not_longer_than_what_is_kept() {
        let late = Some(Cut::TimedOut(Duration::new(86_399, 999_999_999)));
        let Ended::Failed(told) = ended(exit(1), late, &"x".repeat(TAIL)) else {
            panic!("it failed");
        };
        assert!(told.len() <= MAX_ERROR_LEN, "{}", told.len());
    }

    #[tokio::test]
    async fn a_job_that_no_environment_can_hold_is_dead_at_once() {
        let (_stop, stopped) = watch::channel(Stop::No);
        let line = "exit 0".to_owned();
        let command = Command { line, timeout: None, stdout_to_stderr: true, stopped };
        let ended = command.run(&claimed("a\0b")).await.unwrap();
        assert!(matches!(&ended, Ended::NoGood(told) if told.contains("NUL")), "{ended:?}");
    }

    fn claimed(id: &str) -> ClaimedJob {
        let kind = requeue_jobs::Kind::new("mail").unwrap();
        let id = requeue_jobs::JobId::new(id).unwrap();
        let receipt = requeue_jobs::Receipt::new(kind, id, requeue_jobs::Fence(1), 1);
        ClaimedJob::new(receipt, requeue_jobs::Body::default(), requeue_jobs::Generation(1))
    }

    #[test]
    fn a_command_that_runs_takes_no_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let name = std::env::temp_dir().join(format!("requeue-both-{}", std::process::id()));
        let (_stop, stopped) = watch::channel(Stop::No);
        // Each waits for the other.
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
    async fn a_run_that_is_dropped_leaves_nothing_behind() {
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
        // Dead, and perhaps not yet waited for by whoever adopted it.
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
