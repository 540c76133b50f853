//! Two processes with many workers each, one of which is killed now and then.
//!
//! A test starts this very program again to run [`child`], and tells it by the environment where
//! to work. The child tells on its standard output what it does, line by line.

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

/// Where the child works, and under which prefix.
const URL: &str = "REQUEUE_URL";
const PREFIX: &str = "REQUEUE_PREFIX";

/// Of each process.
const WORKERS: usize = 50;
/// So soon others take over from a process that was killed.
const LEASE: Duration = Duration::from_secs(2);

fn kind() -> Kind {
    Kind::new("mail").expect("a valid kind")
}

fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    u64::try_from(time.as_millis()).expect("it is not so late")
}

// The child.

fn say(line: &str) {
    let mut out = io::stdout().lock();
    // Nobody may be listening any more.
    let _ = writeln!(out, "> {line}").and_then(|()| out.flush());
}

async fn handle(job: &ClaimedJob) -> Result<(), BoxError> {
    let (id, fence, ends) = (job.id(), job.receipt.fence().0, job.lease_ends_at.as_millis());
    let version = std::str::from_utf8(job.body.bytes())?;
    say(&format!("began {id} {fence} {version} {} {ends}", now()));
    tokio::time::sleep(Duration::from_millis(fence % 5)).await;
    say(&format!("ended {id} {fence} {version} {} {ends}", now()));
    Ok(())
}

#[test]
#[ignore = "the other test starts it"]
fn child() {
    let Ok(url) = env::var(URL) else { return };
    // It ends with its parent.
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        process::exit(0);
    });
    let mut options = Options::default();
    options.prefix = env::var(PREFIX).expect("it is told");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        let store = RedisStore::connect_with(&url, options).await.expect("the server answers");
        let jobs = Jobs::new(Arc::new(store));
        let worker = JobWorker::new(&jobs, ["mail"], &format!("process {}", process::id()));
        let worker = worker.expect("valid names").concurrency(WORKERS);
        let worker = worker.lease(LEASE).expect("a valid lease");
        let _running = worker.spawn(|run| async move { handle(&run.job).await });
        std::future::pending::<()>().await;
    });
}

// Its parent.

/// What somebody did to a job, from its claim on.
#[derive(Debug, Clone, Copy)]
struct Handling {
    version: u32,
    began: u64,
    /// None: it was killed before.
    ended: Option<u64>,
    /// As it was told with the claim. It may have been extended.
    lease_ends: u64,
}

/// By job and fence.
type Handlings = BTreeMap<String, BTreeMap<u64, Handling>>;

#[derive(Default)]
struct Heard {
    handlings: Mutex<Handlings>,
    lines: AtomicUsize,
    /// The highest number of a job that somebody began.
    newest: AtomicUsize,
}

impl Heard {
    fn hear(&self, line: &str) {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a word");
        let (what, id, fence) = (word(), word().to_owned(), word().parse().expect("a number"));
        let (version, at) = (word().parse().expect("a number"), word().parse().expect("a number"));
        let lease_ends = word().parse().expect("a number");
        let number = id.strip_prefix("job-").and_then(|number| number.parse().ok());
        self.newest.fetch_max(number.expect("a number"), Ordering::Relaxed);
        let mut handlings = self.handlings.lock().unwrap_or_else(PoisonError::into_inner);
        let of_id = handlings.entry(id).or_default();
        match what {
            "began" => {
                let handling = Handling { version, began: at, ended: None, lease_ends };
                let twice = of_id.insert(fence, handling);
                assert!(twice.is_none(), "fence {fence} was given out twice: {twice:?}");
            }
            "ended" => of_id.get_mut(&fence).expect("it began").ended = Some(at),
            other => panic!("{other} is unknown"),
        }
        self.lines.fetch_add(1, Ordering::Relaxed);
    }
}

/// A child, and who listens to it.
struct Process {
    child: Child,
    listener: Option<JoinHandle<()>>,
}

impl Process {
    fn start(server: &RedisServer, options: &Options, heard: &Arc<Heard>) -> Process {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["processes::child", "--exact", "--ignored", "--nocapture"])
            .env(URL, server.url())
            .env(PREFIX, &options.prefix)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process can be started");
        let (out, heard) = (child.stdout.take().expect("it is piped"), heard.clone());
        let listener = thread::spawn(move || {
            for line in BufReader::new(out).split(b'\n') {
                let line = line.expect("it can be read");
                let line = String::from_utf8_lossy(&line);
                // The rest is what every test says; and the last may be half a line.
                if let Some((_, said)) = line.split_once("> ")
                    && said.split(' ').count() == 6
                {
                    heard.hear(said);
                }
            }
        });
        Process { child, listener: Some(listener) }
    }

    /// Ends it at once, and hears the rest of what it said.
    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
        let listener = self.listener.take().expect("it is killed once");
        listener.join().expect("all it said could be heard");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts so many jobs, and some of them again and again. Answers the last version of each.
fn put_jobs(store: &RedisStore, jobs: usize, random: &mut Random, heard: &Heard) -> Vec<u32> {
    let mut versions: Vec<u32> = Vec::new();
    let newest = || heard.newest.load(Ordering::Relaxed);
    while versions.len() < jobs {
        // Not much faster than they are handled, so that many are put again meanwhile.
        until("they work", || versions.len() < newest() + 5000);
        let puts: Vec<Put> = (0..200.min(jobs - versions.len()))
            .map(|_| {
                let number = if random.chance(20) && !versions.is_empty() {
                    // One that is about to be worked on, or is, or was.
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
        for placed in block_on(store.put(puts)).expect("it is answered") {
            placed.expect("nothing is wrong with the server");
        }
    }
    versions
}

/// The last version of each job was handled, from beginning to end.
fn all_are_handled(versions: &[u32], handlings: &Handlings) {
    for (number, version) in versions.iter().enumerate() {
        let id = format!("job-{number}");
        let of_id = handlings.get(&id).unwrap_or_else(|| panic!("{id} was never handled"));
        let is_it = |handling: &&Handling| {
            assert!(handling.version <= *version, "{id} was never put so: {handling:?}");
            handling.version == *version && handling.ended.is_some()
        };
        assert!(of_id.values().any(|of| is_it(&of)), "{id} was put {version} times: {of_id:?}");
    }
}

/// Nobody gets a job that another works on, as long as that one's lease goes on. One that was
/// killed has not settled it, so that its lease has to end first.
fn none_overlap(handlings: &Handlings) {
    for (id, of_id) in handlings {
        let in_order: Vec<&Handling> = of_id.values().collect();
        for pair in in_order.windows(2) {
            let [first, second] = pair else { continue };
            let free_at = first.ended.map_or(first.lease_ends, |end| end.min(first.lease_ends));
            assert!(second.began >= free_at, "{id} is handled twice at once: {of_id:?}");
        }
    }
}

#[test]
fn each_job_is_handled_though_a_process_is_killed_now_and_then() {
    check_seeds(&[], "REQUEUE_PROCESSES", 1, |seed| {
        let jobs = count("REQUEUE_JOBS", 100_000) as usize;
        let (server, options, mut random) = (RedisServer::start(), fresh(), Random::new(seed));
        let store = connect(&server.url(), options.clone());
        let heard = Arc::new(Heard::default());
        let mut processes = [(); 2].map(|()| Process::start(&server, &options, &heard));
        let mut kills = 0;
        let began = std::time::Instant::now();
        let versions = thread::scope(|scope| {
            let (store, heard, mut chance) = (&store, &heard, Random::new(seed ^ 1));
            let putting = scope.spawn(move || put_jobs(store, jobs, &mut chance, heard));
            let left = || {
                let kinds = insist("it is answered", || block_on(store.kinds()));
                kinds.iter().map(|kind| kind.counts.pending + kind.counts.leased).sum::<u64>()
            };
            while !putting.is_finished() || left() > 0 {
                let before = heard.lines.load(Ordering::Relaxed);
                let more = random.below(jobs.min(100_000) / 5);
                until("they work, or are done", || {
                    heard.lines.load(Ordering::Relaxed) >= before + more
                        || putting.is_finished() && left() == 0
                });
                let victim = random.below(2);
                processes[victim].kill();
                processes[victim] = Process::start(&server, &options, heard);
                kills += 1;
            }
            putting.join().expect("it puts all")
        });
        processes.iter_mut().for_each(Process::kill);
        println!("{kills} kills, {:?}", began.elapsed());
        let handlings = heard.handlings.lock().unwrap_or_else(PoisonError::into_inner);
        let times: usize = handlings.values().map(BTreeMap::len).sum();
        let cut = handlings.values().flat_map(BTreeMap::values).filter(|of| of.ended.is_none());
        println!("{jobs} jobs, handled {times} times, {} of them cut short", cut.count());
        all_are_handled(&versions, &handlings);
        none_overlap(&handlings);
        is_whole(&store);
        Ok(())
    });
}
