//! Two processes with many workers each, which are killed now and then.
//!
//! The test starts this program again to run [`child`], with the server and the prefix in environment
//! variables. The child prints each step of its handlers on a line of its standard output.

use crate::support::{connect, count, fresh, insist, is_whole};
use requeue_jobs::{Body, BoxError, ClaimedJob, JobId, JobWorker, Jobs, Kind, Put, Store};
use requeue_redis::{Options, RedisStore};
use requeue_testkit::servers::{RedisServer, until};
use requeue_testkit::{Random, block_on, check_seeds};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, process};

/// Environment variables of the child: the address of the server, and the prefix.
const URL: &str = "REQUEUE_URL";
const PREFIX: &str = "REQUEUE_PREFIX";

/// The concurrency of each process.
const WORKERS: usize = 50;
/// After this time, others take over from a process that was killed.
const LEASE: Duration = Duration::from_secs(2);

fn kind() -> Kind {
    Kind::new("mail").expect("a valid kind")
}

fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("the time is after 1970");
    u64::try_from(time.as_millis()).expect("the time fits into 64 bits")
}

// The child.

fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    // The parent may no longer read.
    let _ = writeln!(out, "> {line}").and_then(|()| out.flush());
}

async fn handle(job: &ClaimedJob) -> Result<(), BoxError> {
    let (id, fence, ends) = (job.id(), job.receipt.fence().0, job.lease_ends_at.as_millis());
    let version = std::str::from_utf8(job.body().bytes())?;
    print_line(&format!("began {id} {fence} {version} {} {ends}", now()));
    tokio::time::sleep(Duration::from_millis(fence % 5)).await;
    print_line(&format!("ended {id} {fence} {version} {} {ends}", now()));
    Ok(())
}

#[test]
#[ignore = "the other test starts it"]
fn child() {
    let Ok(url) = env::var(URL) else { return };
    // The child ends with its parent.
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        process::exit(0);
    });
    let mut options = Options::default();
    options.prefix = env::var(PREFIX).expect("the parent sets the prefix");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        let store = RedisStore::connect_with(&url, options).await.expect("the server is up");
        let jobs = Jobs::new(Arc::new(store));
        let worker = JobWorker::new(&jobs, ["mail"], &format!("process {}", process::id()));
        let worker = worker.expect("valid names").concurrency(WORKERS);
        let worker = worker.lease(LEASE).expect("a valid lease");
        let _running = worker.spawn(|run| async move { handle(&run.job).await });
        std::future::pending::<()>().await;
    });
}

// The parent.

/// One run of the handler for a job.
#[derive(Debug, Clone, Copy)]
struct Handling {
    version: u32,
    began: u64,
    /// `None` if the process was killed before.
    ended: Option<u64>,
    /// The end of the lease at the time of the claim. It may have been extended since.
    lease_ends: u64,
}

/// Runs by job and fence.
type Handlings = BTreeMap<String, BTreeMap<u64, Handling>>;

#[derive(Default)]
struct RunLog {
    handlings: Mutex<Handlings>,
    lines: AtomicUsize,
    /// The highest number of a job whose handler has begun.
    newest: AtomicUsize,
}

impl RunLog {
    fn record(&self, line: &str) {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a word");
        let (event, id, fence) = (word(), word().to_owned(), word().parse().expect("a number"));
        let (version, at) = (word().parse().expect("a number"), word().parse().expect("a number"));
        let lease_ends = word().parse().expect("a number");
        let number = id.strip_prefix("job-").and_then(|number| number.parse().ok());
        self.newest.fetch_max(number.expect("a number"), Ordering::Relaxed);
        let mut handlings = self.handlings.lock().unwrap_or_else(PoisonError::into_inner);
        let of_id = handlings.entry(id).or_default();
        match event {
            "began" => {
                let handling = Handling { version, began: at, ended: None, lease_ends };
                let twice = of_id.insert(fence, handling);
                assert!(twice.is_none(), "fence {fence} was used twice: {twice:?}");
            }
            "ended" => of_id.get_mut(&fence).expect("the run has begun").ended = Some(at),
            other => panic!("unknown event {other}"),
        }
        self.lines.fetch_add(1, Ordering::Relaxed);
    }
}

/// A child process, and the thread that reads its output.
struct Process {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    fn start(server: &RedisServer, options: &Options, log: &Arc<RunLog>) -> Process {
        let mut child = Command::new(env::current_exe().expect("the path of this program"))
            .args(["processes::child", "--exact", "--ignored", "--nocapture"])
            .env(URL, server.url())
            .env(PREFIX, &options.prefix)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the process starts");
        let (out, log) = (child.stdout.take().expect("stdout is piped"), log.clone());
        let reader = thread::spawn(move || {
            for line in BufReader::new(out).split(b'\n') {
                let line = line.expect("stdout is readable");
                let line = String::from_utf8_lossy(&line);
                // Other lines are output of the test harness, and the last line may be incomplete.
                if let Some((_, text)) = line.split_once("> ")
                    && text.split(' ').count() == 6
                {
                    log.record(text);
                }
            }
        });
        Process { child, reader: Some(reader) }
    }

    /// Kills the process, and reads the rest of its output.
    fn kill(&mut self) {
        self.child.kill().expect("the process runs");
        self.child.wait().expect("the process is a child");
        let reader = self.reader.take().expect("the process is killed once");
        reader.join().expect("the output is valid");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts `jobs` jobs, some of them several times. Returns the last version of each.
fn put_jobs(store: &RedisStore, jobs: usize, random: &mut Random, log: &RunLog) -> Vec<u32> {
    let mut versions: Vec<u32> = Vec::new();
    let newest = || log.newest.load(Ordering::Relaxed);
    while versions.len() < jobs {
        // Not much faster than they are handled, so that many are put again while they are leased.
        until("the workers make progress", || versions.len() < newest() + 5000);
        let puts: Vec<Put> = (0..200.min(jobs - versions.len()))
            .map(|_| {
                let number = if random.chance(20) && !versions.is_empty() {
                    // A job that will soon be handled, is being handled, or was handled.
                    let near = (newest() + 100).saturating_sub(random.below(300));
                    near.min(versions.len() - 1)
                } else {
                    versions.push(0);
                    versions.len() - 1
                };
                versions[number] += 1;
                let body = Body::octets(versions[number].to_string().into_bytes());
                let id = JobId::new(format!("job-{number}")).expect("a valid id");
                Put::new(kind(), id, body.expect("a small body"))
            })
            .collect();
        for placed in block_on(store.put(puts)).expect("the server is up") {
            placed.expect("the put succeeds");
        }
    }
    versions
}

/// Checks that the last version of each job was handled from beginning to end.
fn check_all_handled(versions: &[u32], handlings: &Handlings) {
    for (number, version) in versions.iter().enumerate() {
        let id = format!("job-{number}");
        let of_id = handlings.get(&id).unwrap_or_else(|| panic!("{id} was never handled"));
        let is_complete = |handling: &&Handling| {
            assert!(
                handling.version <= *version,
                "{id} has a version that was never put: {handling:?}"
            );
            handling.version == *version && handling.ended.is_some()
        };
        assert!(
            of_id.values().any(|of| is_complete(&of)),
            "{id} was put {version} times: {of_id:?}"
        );
    }
}

/// Checks that no job is claimed while another run holds its lease. A killed process has not settled
/// the job, so its lease has to expire first.
fn check_no_overlap(handlings: &Handlings) {
    for (id, of_id) in handlings {
        let in_order: Vec<&Handling> = of_id.values().collect();
        for pair in in_order.windows(2) {
            let [first, second] = pair else { continue };
            let free_at = first.ended.map_or(first.lease_ends, |end| end.min(first.lease_ends));
            assert!(second.began >= free_at, "two runs of {id} overlap: {of_id:?}");
        }
    }
}

#[test]
fn each_job_is_handled_although_processes_are_killed() {
    check_seeds(&[], "REQUEUE_PROCESSES", 1, |seed| {
        let jobs = count("REQUEUE_JOBS", 100_000) as usize;
        let (server, options, mut random) = (RedisServer::start(), fresh(), Random::new(seed));
        let store = connect(&server.url(), options.clone());
        let log = Arc::new(RunLog::default());
        let mut processes = [(); 2].map(|()| Process::start(&server, &options, &log));
        let mut kills = 0;
        let began = std::time::Instant::now();
        let versions = thread::scope(|scope| {
            let (store, log, mut chance) = (&store, &log, Random::new(seed ^ 1));
            let putting = scope.spawn(move || put_jobs(store, jobs, &mut chance, log));
            let left = || {
                let kinds = insist("the server is up", || block_on(store.kinds()));
                kinds.iter().map(|kind| kind.counts.pending + kind.counts.leased).sum::<u64>()
            };
            while !putting.is_finished() || left() > 0 {
                let before = log.lines.load(Ordering::Relaxed);
                let more = random.below(jobs.min(100_000) / 5);
                until("the workers make progress or are done", || {
                    log.lines.load(Ordering::Relaxed) >= before + more
                        || putting.is_finished() && left() == 0
                });
                let victim = random.below(2);
                processes[victim].kill();
                processes[victim] = Process::start(&server, &options, log);
                kills += 1;
            }
            putting.join().expect("the thread puts all jobs")
        });
        processes.iter_mut().for_each(Process::kill);
        println!("{kills} kills, {:?}", began.elapsed());
        let handlings = log.handlings.lock().unwrap_or_else(PoisonError::into_inner);
        let times: usize = handlings.values().map(BTreeMap::len).sum();
        let cut = handlings.values().flat_map(BTreeMap::values).filter(|of| of.ended.is_none());
        println!("{jobs} jobs, handled {times} times, {} of them cut short", cut.count());
        check_all_handled(&versions, &handlings);
        check_no_overlap(&handlings);
        is_whole(&store);
        Ok(())
    });
}
