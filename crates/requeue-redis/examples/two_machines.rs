//! Orders that nobody pays, on Redis: two workers, as on two machines, and one of them is killed
//! while it closes orders. The other closes them.
//!
//! `cargo run -p requeue-redis --example two_machines -- --store redis://HOST [SECONDS]`. A day
//! lasts that many seconds (10); then what is not paid is closed. Without `--store` it starts a
//! Redis of its own.

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

Closes orders that nobody pays, with two workers, one of which is killed.

  --store URL  keep the jobs on this Redis: redis://HOST[:PORT], redis+cluster://HOST,HOST,
               redis+sentinel://HOST,HOST/MASTER. Without it, a redis-server is started.
  SECONDS      action long a day is, 1 at least: 10, if nothing is said";

const ORDERS: usize = 12;

/// So soon the other worker takes over from one that is killed.
const LEASE: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let asked = match Asked::read(std::env::args().skip(1)) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match &asked.worker {
        Some(name) => work(&asked, name).await,
        None => open_shop(&asked).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

struct Asked {
    store: Option<String>,
    day: Duration,
    /// Only this program asks for it.
    worker: Option<String>,
}

impl Asked {
    /// `None`: to be told how it is used.
    fn read(mut args: impl Iterator<Item = String>) -> Result<Option<Asked>, String> {
        let mut asked = Asked { store: None, day: Duration::from_secs(10), worker: None };
        while let Some(arg) = args.next() {
            let mut value = |of: &str| args.next().ok_or(format!("{of} needs a value"));
            match &*arg {
                "--help" | "-h" => return Ok(None),
                "--store" => asked.store = Some(value("--store URL")?),
                "--worker" => asked.worker = Some(value("--worker NAME")?),
                seconds => {
                    let day = seconds.parse().ok().filter(|seconds| *seconds > 0);
                    let day = day.ok_or(format!("{seconds:?} is no number of seconds"))?;
                    asked.day = Duration::from_secs(day);
                }
            }
        }
        Ok(Some(asked))
    }
}

async fn connect(url: &str) -> Result<Jobs, BoxError> {
    let mut options = Options::default();
    // Whatever else is there, it is left alone.
    options.prefix = "two-machines".to_owned();
    Ok(Jobs::new(Arc::new(RedisStore::connect_with(url, options).await?)))
}

// The shop.

async fn open_shop(asked: &Asked) -> Result<(), BoxError> {
    let own = match &asked.store {
        Some(_) => None,
        None => Some(OwnRedis::start().await?),
    };
    let url = asked.store.clone().or(own.as_ref().map(OwnRedis::url)).expect("it is one or other");
    let (jobs, day) = (connect(&url).await?, asked.day);

    let (tell, mut told) = mpsc::unbounded_channel();
    let mut one = Machine::start("worker-1", &url, day, &tell)?;
    let two = Machine::start("worker-2", &url, day, &tell)?;
    drop(tell);
    for _ in 0..2 {
        told.recv().await.ok_or("the workers did not start")?;
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
        let Some(line) = told.recv().await else {
            return Err(format!("the workers are gone, and these are open: {open:?}").into());
        };
        let (worker, what) = line.split_once(": ").unwrap_or_default();
        if let Some((order, "is closed")) = what.split_once(' ') {
            open.remove(order);
        }
        if worker == "worker-1" && what.contains("is being closed") && !is_killed {
            one.child.kill()?;
            println!("worker-1 is killed in the middle of it");
            is_killed = true;
        }
    }
    two.end()?;
    println!("all is done: 1 order was paid, and {} are closed", ORDERS - 1);
    Ok(())
}

/// Payment cancels what is left: on a slow day the reminder is out already.
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

/// A process that works, as on a machine of its own. What it says is passed on.
struct Machine {
    child: Child,
}

impl Machine {
    fn start(
        name: &str,
        url: &str,
        day: Duration,
        tell: &mpsc::UnboundedSender<String>,
    ) -> Result<Machine, BoxError> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--worker", name, "--store", url, &day.as_secs().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (said, tell) = (child.stdout.take().expect("it is piped"), tell.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                println!("{line}");
                let _ = tell.send(line);
            }
        });
        Ok(Machine { child })
    }

    /// Lets it finish: it ends with its input.
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

async fn work(asked: &Asked, name: &str) -> Result<(), BoxError> {
    let jobs = connect(asked.store.as_deref().ok_or("a worker needs --store")?).await?;
    let (day, who) = (asked.day, Arc::<str>::from(name));
    let worker = JobWorker::new(&jobs, ["order.remind", "order.close"], name)?;
    let running = worker.concurrency(2).lease(LEASE)?.spawn(move |run| {
        let who = who.clone();
        async move { fall_due(&who, &run.job, day).await }
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

async fn fall_due(who: &str, job: &ClaimedJob, day: Duration) -> Result<Outcome, BoxError> {
    let order = job.id().as_str();
    match job.kind().as_str() {
        "order.remind" => {
            println!("{who}: {order} is reminded of {}", std::str::from_utf8(job.body.bytes())?);
        }
        "order.close" => {
            let attempt = job.attempt;
            println!("{who}: {order} is being closed, attempt {attempt}");
            sleep(day / 10).await;
            println!("{who}: {order} is closed");
        }
        kind => return Ok(Outcome::give_up(format!("no handler for {kind}"))),
    }
    Ok(Outcome::Done)
}

/// A server for this run alone.
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
            .map_err(|error| format!("no redis-server here ({error}): give one by --store URL"))?;
        let own = OwnRedis { server, directory };
        println!("no --store is given: started a redis-server at {}", own.url());
        // It is up in no time, or there is something wrong with it.
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
