//! Real processes on real files: killed under load, two on one directory, and short of space.
//!
//! A test starts this program again to run [`child`], and specifies its task in environment
//! variables. The child prints each operation to its standard output after it has returned.

use crate::support::seeds;
use requeue_disk::{DiskError, DiskStore, Options, verify};
use requeue_jobs::{
    Body, Claim, JobId, Kind, Put, Query, Settle, Settlement, Store, StoreError, WorkerName,
};
use requeue_testkit::{Random, block_on, example};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fs, io, process, thread};

/// The environment variables for the task of the child and its directory.
const TASK: &str = "REQUEUE_CHILD";
const DIRECTORY: &str = "REQUEUE_DIRECTORY";

/// A directory that is removed when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("requeue-process-{}-{number}", process::id()));
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Small enough to flush, merge and use segments again within seconds.
fn options() -> Options {
    let mut options = Options::default();
    (options.memory, options.segment) = (256 << 10, SEGMENT);
    options
}

const SEGMENT: u64 = 1 << 20;

fn open(directory: &Path) -> DiskStore {
    DiskStore::open_with(directory, options()).expect("it opens")
}

fn kind() -> Kind {
    Kind::new("mail").expect("a valid kind")
}

// The child.

fn report(line: &str) {
    let mut out = io::stdout().lock();
    // The parent may have closed the pipe.
    let _ = writeln!(out, "> {line}").and_then(|()| out.flush());
}

fn put(store: &DiskStore, ids: &[String], bytes: usize) -> Result<(), StoreError> {
    let put = |id: &String| {
        let body = Body::octets(vec![b'x'; bytes]).expect("a small body");
        Put::new(kind(), JobId::new(id.as_str()).expect("a valid id"), body)
    };
    for placed in block_on(store.put(ids.iter().map(put).collect()))? {
        placed.expect("it has no condition");
    }
    ids.iter().for_each(|id| report(&format!("put {id}")));
    Ok(())
}

/// Claims some jobs and acks them. Returns how many.
fn work(store: &DiskStore, max: usize) -> Result<usize, StoreError> {
    let worker = WorkerName::new("worker").expect("a valid name");
    let lease = Some(Duration::from_secs(3600));
    let claim = Claim { kinds: vec![kind()], max, lease, worker, nonce: 7 };
    let claimed = block_on(store.claim(claim))?;
    if let Some((_, error)) = claimed.errors.into_iter().next() {
        return Err(error);
    }
    let ids: Vec<JobId> = claimed.jobs.iter().map(|job| job.id().clone()).collect();
    ids.iter().for_each(|id| report(&format!("claimed {id}")));
    let settle =
        |job: requeue_jobs::ClaimedJob| Settle { receipt: job.receipt, action: Settlement::Ack };
    let settled = block_on(store.settle(claimed.jobs.into_iter().map(settle).collect()))?;
    for (id, settled) in ids.iter().zip(settled) {
        settled.expect("no other worker has the lease");
        report(&format!("acked {id}"));
    }
    Ok(ids.len())
}

/// Puts and acks until the process is killed.
fn child_works(store: &DiskStore, round: &str) {
    thread::scope(|scope| {
        for producer in 0..3 {
            scope.spawn(move || {
                let mut random = Random::new(producer);
                for number in 0.. {
                    let name = |n| format!("{round}-{producer}-{number}-{n}");
                    let ids: Vec<String> = (0..=random.below(10)).map(name).collect();
                    let bytes = random.below(300);
                    put(store, &ids, bytes).expect("nothing is wrong with the disk");
                }
            });
        }
        scope.spawn(|| {
            loop {
                work(store, 10).expect("nothing is wrong with the disk");
            }
        });
    });
}

/// Puts until there is no space, settles, and reads.
fn child_is_short_of_space(store: &DiskStore) {
    let mut refused = 0;
    for number in 0..10_000 {
        let put = put(store, &[format!("more-{number}")], 1000);
        if let Err(error) = put {
            report(&format!("failed more-{number}"));
            report(&format!("error {error}"));
            refused += 1;
            if refused == 5 {
                break;
            }
        }
    }
    for _ in 0..500 {
        match work(store, 1) {
            Ok(_) => {}
            Err(error) => report(&format!("error {error}")),
        }
    }
    let page = block_on(store.list(Query::new(kind()))).expect("reading goes on");
    assert!(!page.jobs.is_empty());
    report("read");
}

#[test]
#[ignore = "the other tests start it"]
fn child() {
    let Ok(task) = env::var(TASK) else { return };
    let store = open(Path::new(&env::var(DIRECTORY).expect("it is told where")));
    match task.split_once(' ').unwrap_or((&*task, "")) {
        ("works", round) => child_works(&store, round),
        ("holds", _) => {
            report("open");
            let _ = io::stdin().read(&mut [0]);
        }
        ("fills", _) => {
            for number in 0..100 {
                let ids: Vec<String> = (0..20).map(|n| format!("first-{number}-{n}")).collect();
                put(&store, &ids, 300).expect("nothing is wrong with the disk");
            }
        }
        ("short", _) => child_is_short_of_space(&store),
        (task, _) => panic!("{task} is unknown"),
    }
}

// The parent.

/// A child process and its output.
struct ChildProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ChildProcess {
    fn start(command: &mut Command) -> ChildProcess {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("a process can be started");
        let out = child.stdout.take().expect("it is piped");
        ChildProcess { child, lines: BufReader::new(out).lines() }
    }

    fn running(task: &str, directory: &Path) -> ChildProcess {
        ChildProcess::start(with_task(&mut Command::new(this()), task, directory).args(ARGS))
    }

    /// The next line that it reports; `None` after it has ended.
    fn line(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.expect("it can be read");
            // Other lines are from the test harness.
            if let Some((_, said)) = line.split_once("> ") {
                return Some(said.to_owned());
            }
        }
    }

    /// Kills it, and returns the rest of its output.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
        std::iter::from_fn(|| self.line()).collect()
    }
}

const ARGS: [&str; 4] = ["process::child", "--exact", "--ignored", "--nocapture"];

fn this() -> PathBuf {
    env::current_exe().expect("this program")
}

fn with_task<'a>(command: &'a mut Command, task: &str, directory: &Path) -> &'a mut Command {
    command.env(TASK, task).env(DIRECTORY, directory)
}

/// The operations that have returned.
#[derive(Default)]
struct Acknowledged {
    put: BTreeSet<String>,
    /// Jobs that the child was about to ack.
    claimed: BTreeSet<String>,
    acked: BTreeSet<String>,
}

impl Acknowledged {
    fn record(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("put", id)) => drop(self.put.insert(id.to_owned())),
            Some(("claimed", id)) => drop(self.claimed.insert(id.to_owned())),
            Some(("acked", id)) => drop(self.acked.insert(id.to_owned())),
            _ => {}
        }
    }

    /// Checks that the store contains all of it. Operations that did not return may have happened
    /// or not; what is found now must stay.
    fn check(&mut self, store: &DiskStore) {
        let mut found = BTreeSet::new();
        let mut query = Query { limit: 1000, ..Query::new(kind()) };
        loop {
            let page = block_on(store.list(query.clone())).expect("it can be read");
            found.extend(page.jobs.into_iter().map(|job| job.id.as_str().to_owned()));
            query.after = page.cursor;
            if query.after.is_none() {
                break;
            }
        }
        let in_doubt = self.claimed.difference(&found).cloned();
        self.acked.extend(in_doubt.collect::<Vec<_>>());
        let left: BTreeSet<String> = self.put.difference(&self.acked).cloned().collect();
        let lost: Vec<_> = left.difference(&found).collect();
        let back: Vec<_> = found.intersection(&self.acked).collect();
        assert!(lost.is_empty(), "{} were acknowledged and are lost: {lost:?}", lost.len());
        assert!(back.is_empty(), "{} were acked and are back: {back:?}", back.len());
        self.put.extend(found);
        store.check();
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let rounds = env::var("REQUEUE_ROUNDS").map_or(3, |rounds| rounds.parse().expect("a number"));
    for seed in seeds("REQUEUE_PROCESSES", 1) {
        let (mut random, scratch) = (Random::new(seed), Scratch::new());
        let mut acknowledged = Acknowledged::default();
        for round in 0..rounds {
            let mut child = ChildProcess::running(&format!("works {round}"), &scratch.0);
            for _ in 0..random.below(20_000) {
                let line = child.line().expect("it works until it is ended");
                acknowledged.record(&line);
            }
            child.kill().iter().for_each(|line| acknowledged.record(line));
            let (put, acked) = (acknowledged.put.len(), acknowledged.acked.len());
            println!("round {round}: {put} put, {acked} acked");
            let found = verify(&scratch.0, |_| ()).expect("it can be read");
            assert!(found.is_sound(), "{:?}", found.problems);
            acknowledged.check(&open(&scratch.0));
        }
        assert!(!acknowledged.put.is_empty());
    }
}

#[test]
fn the_second_process_gets_an_error_that_names_the_first() {
    let scratch = Scratch::new();
    let mut child = ChildProcess::running("holds", &scratch.0);
    assert_eq!(child.line().as_deref(), Some("open"));
    let error = DiskStore::open(&scratch.0).expect_err("it is in use");
    let expected = (scratch.0.clone(), child.child.id().to_string());
    match &error {
        DiskError::InUse { directory, pid } => {
            assert_eq!((directory, pid), (&expected.0, &expected.1));
        }
        error => panic!("{error}"),
    }
    let text = error.to_string();
    assert!(text.contains(&*scratch.0.to_string_lossy()) && text.contains(&expected.1), "{text}");
    // After the first process was killed, the directory can be opened.
    child.kill();
    let store = open(&scratch.0);
    let error = DiskStore::open(&scratch.0).expect_err("it is in use here");
    assert!(error.to_string().contains(&process::id().to_string()), "{error}");
    drop(store);
}

#[test]
fn a_process_that_cannot_write_new_jobs_continues_to_settle() {
    let scratch = Scratch::new();
    let mut acknowledged = Acknowledged::default();
    let mut first = ChildProcess::running("fills", &scratch.0);
    while let Some(line) = first.line() {
        acknowledged.record(&line);
    }
    assert!(first.child.wait().expect("it is ours").success());
    assert_eq!(acknowledged.put.len(), 2000);

    // In blocks of 512 bytes or, in some shells, of 1024. Either way it is less than the log gets
    // between two flushes, so that the limit is met however fast flushes are.
    let limit = SEGMENT / 1024 / 8;
    let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(this()).args(ARGS);
    let mut child = ChildProcess::start(with_task(&mut command, "short", &scratch.0));
    let (mut errors, mut read, mut unknown) = (Vec::new(), false, BTreeSet::new());
    while let Some(line) = child.line() {
        acknowledged.record(&line);
        match line.split_once(' ') {
            Some(("error", error)) => errors.push(error.to_owned()),
            Some(("failed", id)) => drop(unknown.insert(id.to_owned())),
            _ => read |= line == "read",
        }
    }
    assert!(child.child.wait().expect("it is ours").success() && read);
    println!("{} put, {} acked", acknowledged.put.len(), acknowledged.acked.len());
    errors.iter().for_each(|error| println!("{error}"));
    assert!(errors.iter().any(|error| error.contains("File too large")), "{errors:?}");
    assert!(errors.iter().any(|error| error.contains("no space for new jobs")), "{errors:?}");
    assert!(acknowledged.acked.len() > 400, "settling goes on: {}", acknowledged.acked.len());

    let store = open(&scratch.0);
    acknowledged.check(&store);
    put(&store, &["last".to_owned()], 1000).expect("there is no limit any more");
    assert!(work(&store, 1).expect("there is no limit any more") == 1);
}

fn orders_on_disk() -> PathBuf {
    example("requeue-disk", "orders_on_disk")
}

#[test]
fn a_shop_that_is_killed_goes_on_when_it_is_started_again() {
    let (example, scratch) = (orders_on_disk(), Scratch::new());
    let mut said = Vec::new();
    for last in ["order-1: paid", "jobs are left from the last run", "all jobs are done"] {
        let mut shop = ChildProcess::start(Command::new(&example).arg("5").arg(&scratch.0));
        for line in shop.lines.by_ref() {
            let line = line.expect("it can be read");
            println!("{line}");
            said.push(line.clone());
            if line.contains(last) {
                break;
            }
        }
        assert!(said.last().is_some_and(|line| line.contains(last)), "{said:?}");
        shop.kill();
    }
    let count = |line: &str| said.iter().filter(|said| *said == line).count();
    for order in ["order-2", "order-3"] {
        assert_eq!(count(&format!("{order}: closed, not paid")), 1);
    }
    assert_eq!(count("order-1: closed, not paid"), 0, "it was paid");
    let placed = |line: &&String| line.contains(": placed, ");
    assert_eq!(said.iter().filter(placed).count(), 3, "each order once");
}

#[test]
fn an_order_may_be_paid_after_its_reminder() {
    let (example, scratch) = (orders_on_disk(), Scratch::new());
    let ran = Command::new(&example).arg("0").arg(&scratch.0).output().expect("it starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("order-1: paid"), "{said}{complained}");
}

#[test]
fn files_that_are_symbolic_links_are_not_opened_and_their_targets_stay_as_they_are() {
    let scratch = Scratch::new();
    let data = scratch.0.join("data");
    let put = Put::new(
        Kind::new("mail").expect("a valid kind"),
        JobId::new("a").expect("a valid id"),
        Body::default(),
    );
    block_on(open(&data).put(vec![put])).expect("it is put").remove(0).expect("it is put");
    for entry in fs::read_dir(&data).expect("it is a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with("spare") {
            continue;
        }
        let target = scratch.0.join("target");
        fs::rename(&path, &target).expect("it is moved");
        std::os::unix::fs::symlink(&target, &path).expect("a link");
        let before = fs::read(&target).expect("it is a file");
        let Err(DiskError::Io { source, file, .. }) = DiskStore::open(&data) else {
            panic!("{name} was followed")
        };
        assert!(file.ends_with(&name), "{file}");
        assert!(source.to_string().contains("is a symbolic link"), "{name}: {source}");
        assert_eq!(fs::read(&target).expect("it is a file"), before, "{name}");
        fs::remove_file(&path).expect("it is removed");
        fs::rename(&target, &path).expect("it is moved back");
    }
    // The directory can be one.
    std::os::unix::fs::symlink("data", scratch.0.join("link")).expect("a link");
    drop(open(&scratch.0.join("link")));
}

#[test]
fn only_the_owner_can_read_what_the_store_creates() {
    use std::os::unix::fs::PermissionsExt;
    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it exists").permissions().mode() & 0o777
    }
    let scratch = Scratch::new();
    // A directory that exists is not changed.
    fs::create_dir(&scratch.0).expect("it is created");
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).expect("they are set");
    let (data, copy) = (scratch.0.join("a/data"), scratch.0.join("backups/copy"));
    let store = open(&data);
    // Enough for tables, spare segments and manifests.
    for number in 0..20 {
        let id = JobId::new(format!("id-{number}")).expect("a valid id");
        let body = Body::octets(vec![7; 50_000]).expect("a small body");
        let put = Put::new(Kind::new("mail").expect("a valid kind"), id, body);
        block_on(store.put(vec![put])).expect("it is put").remove(0).expect("it is put");
    }
    store.backup(&copy, |_| ()).expect("it is copied");
    drop(store);
    let mut kinds = BTreeSet::new();
    for directory in [&data, &copy] {
        assert_eq!(mode(directory), 0o700, "{}", directory.display());
        assert_eq!(mode(directory.parent().expect("it has one")), 0o700);
        for entry in fs::read_dir(directory).expect("it is a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
            kinds.insert(name.split('-').next().expect("a prefix").to_owned());
        }
    }
    let all = ["lock", "log", "manifest", "spare", "table"].map(str::to_owned);
    assert_eq!(kinds, BTreeSet::from(all));
    assert_eq!(mode(&scratch.0), 0o755);
}
