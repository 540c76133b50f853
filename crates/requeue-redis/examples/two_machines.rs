//! Unpaid orders on Redis: two worker processes, as on two machines, close them. One worker is killed
//! while it closes orders, and the other one takes over.
//!
//! `cargo run -p requeue-redis --example two_machines -- --store redis://HOST [SECONDS]`. A day
//! lasts that many seconds (default 10); then unpaid orders are closed. Without `--store`, the
//! example starts its own Redis server.

use requeue_jobs::{BoxError, ChangeError, ClaimedJob, JobWorker, Jobs, Outcome};
use requeue_redis::{Options, RedisStore};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

const USAGE: &str = "usage: two_machines [--store URL] [SECONDS]

Closes unpaid orders with two workers, one of which is killed.

  --store URL  store the jobs on this Redis: redis://HOST[:PORT], redis+cluster://HOST,HOST,
               redis+sentinel://HOST,HOST/MASTER. Without it, a redis-server is started.
  SECONDS      length of a day, at least 1 (default 10)";

const ORDERS: usize = 12;

/// After this time, the other worker takes over from one that was killed.
const LEASE: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match &args.worker {
        Some(name) => work(&args, name).await,
        None => open_shop(&args).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

struct Args {
    store: Option<String>,
    day: Duration,
    /// Set only for the worker processes that this program starts.
    worker: Option<String>,
}

impl Args {
    /// Returns `None` if the usage is requested.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
        let mut args = Args { store: None, day: Duration::from_secs(10), worker: None };
        while let Some(arg) = words.next() {
            let mut value = |of: &str| words.next().ok_or(format!("{of} needs a value"));
            match &*arg {
                "--help" | "-h" => return Ok(None),
                "--store" => args.store = Some(value("--store URL")?),
                "--worker" => args.worker = Some(value("--worker NAME")?),
                seconds => {
                    let day = seconds.parse().ok().filter(|seconds| *seconds > 0);
                    let day = day.ok_or(format!("{seconds:?} is not a number of seconds"))?;
                    args.day = Duration::from_secs(day);
                }
            }
        }
        Ok(Some(args))
    }
}

async fn connect(url: &str) -> Result<Jobs, BoxError> {
    let mut options = Options::default();
    // Its own prefix: other data on the server is not touched.
    options.prefix = "two-machines".to_owned();
    Ok(Jobs::new(Arc::new(RedisStore::connect_with(url, options).await?)))
}

// The shop.

async fn open_shop(args: &Args) -> Result<(), BoxError> {
    let own = match &args.store {
        Some(_) => None,
        None => Some(OwnRedis::start().await?),
    };
    let url =
        args.store.clone().or(own.as_ref().map(OwnRedis::url)).expect("one of the two is set");
    let (jobs, day) = (connect(&url).await?, args.day);

    let (lines, mut output) = mpsc::unbounded_channel();
    let mut one = Machine::start("worker-1", &url, day, &lines)?;
    let two = Machine::start("worker-2", &url, day, &lines)?;
    drop(lines);
    for _ in 0..2 {
        output.recv().await.ok_or("the workers did not start")?;
    }
    for number in 1..=ORDERS {
        let (order, amount) = (format!("order-{number}"), format!("{} €", 5 * number));
        jobs.put("order.remind", &order, &amount).after(day / 10).await?;
        jobs.put("order.close", &order, &amount).after(day).await?;
    }
    println!("{ORDERS} orders are placed");
    pay(&jobs, "order-1").await?;

    let mut open: BTreeSet<String> = (2..=ORDERS).map(|number| format!("order-{number}")).collect();
    let mut is_killed = false;
    while !open.is_empty() {
        let Some(line) = output.recv().await else {
            return Err(
                format!("all workers have ended, but these orders are open: {open:?}").into()
            );
        };
        let (worker, event) = line.split_once(": ").unwrap_or_default();
        if let Some((order, "is closed")) = event.split_once(' ') {
            open.remove(order);
        }
        if worker == "worker-1" && event.contains("is being closed") && !is_killed {
            one.child.kill()?;
            println!("worker-1 is killed while it closes an order");
            is_killed = true;
        }
    }
    two.end()?;
    println!("done: 1 order was paid, and {} are closed", ORDERS - 1);
    Ok(())
}

/// A payment cancels the pending jobs of the order. The reminder may have run already.
async fn pay(jobs: &Jobs, order: &str) -> Result<(), BoxError> {
    for kind in ["order.remind", "order.close"] {
        match jobs.cancel(kind, order).await {
            Ok(_) | Err(ChangeError::Absent { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    println!("{order} is paid");
    Ok(())
}

/// A worker process, as on its own machine. Its output is printed and sent to the shop.
struct Machine {
    child: Child,
}

impl Machine {
    fn start(
        name: &str,
        url: &str,
        day: Duration,
        lines: &mpsc::UnboundedSender<String>,
    ) -> Result<Machine, BoxError> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--worker", name, "--store", url, &day.as_secs().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdout, lines) = (child.stdout.take().expect("stdout is piped"), lines.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                println!("{line}");
                let _ = lines.send(line);
            }
        });
        Ok(Machine { child })
    }

    /// Closes its standard input, upon which it shuts down, and waits for its end.
    fn end(mut self) -> Result<(), BoxError> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// A worker.

async fn work(args: &Args, name: &str) -> Result<(), BoxError> {
    let jobs = connect(args.store.as_deref().ok_or("a worker needs --store")?).await?;
    let (day, worker_name) = (args.day, Arc::<str>::from(name));
    let worker = JobWorker::new(&jobs, ["order.remind", "order.close"], name)?;
    let running = worker.concurrency(2).lease(LEASE)?.spawn(move |run| {
        let worker_name = worker_name.clone();
        async move { handle(&worker_name, &run.job, day).await }
    });
    println!("{name}: waits for work");
    let (end, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        drop(end);
    });
    let _ = ended.await;
    running.shut_down(Duration::from_secs(1)).await;
    Ok(())
}

async fn handle(worker_name: &str, job: &ClaimedJob, day: Duration) -> Result<Outcome, BoxError> {
    let order = job.id().as_str();
    match job.kind().as_str() {
        "order.remind" => {
            println!(
                "{worker_name}: {order} is reminded of {}",
                std::str::from_utf8(job.body().bytes())?
            );
        }
        "order.close" => {
            let attempt = job.attempt;
            println!("{worker_name}: {order} is being closed, attempt {attempt}");
            sleep(day / 10).await;
            println!("{worker_name}: {order} is closed");
        }
        kind => return Ok(Outcome::give_up(format!("no handler for {kind}"))),
    }
    Ok(Outcome::Done)
}

/// A Redis server for this run only.
struct OwnRedis {
    server: Child,
    directory: PathBuf,
}

impl OwnRedis {
    async fn start() -> Result<OwnRedis, BoxError> {
        let directory = std::env::temp_dir().join(format!("two-machines-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let server = Command::new("redis-server")
            .args(["--port", "0", "--unixsocket", "socket", "--save", "", "--dir"])
            .arg(&directory)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| {
                format!("cannot start redis-server ({error}): specify a server with --store URL")
            })?;
        let own = OwnRedis { server, directory };
        println!("no --store given: started a redis-server at {}", own.url());
        // Waits up to ten seconds until the server is up.
        for _ in 0..500 {
            if RedisStore::connect(&own.url()).await.is_ok() {
                return Ok(own);
            }
            sleep(Duration::from_millis(20)).await;
        }
        RedisStore::connect(&own.url()).await?;
        Ok(own)
    }

    fn url(&self) -> String {
        format!("redis+unix://{}", self.directory.join("socket").display())
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
