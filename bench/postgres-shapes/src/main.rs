//! Compares ways to store a queue in Postgres: the server's processor time per job that is put, claimed and acked.
//!
//! ```text
//! postgres-shapes URL fresh  [--rounds 3]               nothing else in the table, shapes interleaved
//! postgres-shapes URL churn  [--seconds 3600]           after this time of steady work
//! postgres-shapes URL held   [--seconds 600]            the same while a snapshot is held
//! postgres-shapes URL pending [--jobs 10000000]         with this many jobs that are not due
//! ```
//!
//! `--shapes a,b` limits the shapes; `--rate` sets the jobs per second of `churn` and `held`. The server must run on this
//! machine: its time is read from /proc. Each shape is a file in `shapes/` with the functions `put`, `claim`, `ack` and
//! `upkeep`, in a schema of its own. `keyed` is measured twice: `keyed` claims from the start of its index, `keyed-marks`
//! begins at the place that it had reached a moment ago.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::fs;
use std::time::{Duration, Instant, SystemTime};
use tokio_postgres::{Client, NoTls};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SHAPES: [(&str, &str); 4] = [
    ("unkeyed", include_str!("../shapes/unkeyed.sql")),
    ("keyed", include_str!("../shapes/keyed.sql")),
    ("keyed-marks", include_str!("../shapes/keyed.sql")),
    ("ring", include_str!("../shapes/ring.sql")),
];
const PUT: usize = 1000;
const CLAIM: i32 = 100;

/// A claim begins where this client was this long ago: jobs become visible when their transactions
/// commit, which is not in the order of their due times.
const LAG: Duration = Duration::from_millis(25);

/// A claim from the start of the index may take this fraction of the time.
const FULL_LOOK_SHARE: u32 = 50;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (url, what) = args
        .next()
        .zip(args.next())
        .ok_or("usage: postgres-shapes URL fresh|churn|held|pending")?;
    let mut options: HashMap<String, String> = HashMap::new();
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        options.insert(name.trim_start_matches('-').to_owned(), value);
    }
    let number = |name: &str, or: u64| options.get(name).map_or(Ok(or), |text| text.parse());
    let chosen = options.get("shapes").map(|text| text.split(',').collect::<Vec<_>>());
    let names = SHAPES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| chosen.as_ref().is_none_or(|these| these.contains(name)));
    let names: Vec<&str> = names.collect();
    match what.as_str() {
        "fresh" => {
            let mut shapes = Vec::new();
            for name in &names {
                shapes.push(Shape::create(&url, name).await?);
            }
            for round in 0..=number("rounds", 3)? {
                for shape in &mut shapes {
                    let micros = shape.measure(10, None).await?;
                    // The first round fills caches.
                    if round > 0 {
                        println!("{:12} round {round} {micros:6.1} µs", shape.name);
                    }
                }
            }
        }
        "churn" | "held" => {
            let seconds = number("seconds", if what == "held" { 600 } else { 3600 })?;
            let per_job = Duration::from_secs_f64(1.0 / number("rate", 2000)? as f64);
            for name in &names {
                let mut shape = Shape::create(&url, name).await?;
                shape.measure(5, None).await?;
                let holder = connect(&url).await?;
                if what == "held" {
                    holder
                        .batch_execute(
                            "begin isolation level repeatable read; select count(*) from pg_class",
                        )
                        .await?;
                }
                let (start, slice) = (Instant::now(), seconds as f64 / 10.0);
                for n in 1..=10 {
                    let end = start + Duration::from_secs_f64(slice * f64::from(n));
                    let mut spent = Vec::new();
                    while Instant::now() < end {
                        spent.push(shape.measure(1, Some(per_job)).await?);
                    }
                    let mean = spent.iter().sum::<f64>() / spent.len() as f64;
                    println!("{name:12} {what} {:6.0} s {mean:8.1} µs", slice * f64::from(n));
                }
                shape.drop().await?;
            }
        }
        "pending" => {
            let jobs = number("jobs", 10_000_000)?;
            for name in &names {
                let mut shape = Shape::create(&url, name).await?;
                shape.measure(5, None).await?;
                let before = shape.measure(10, None).await?;
                let due = now() + 10_000_000_000;
                for from in (0..jobs).step_by(100_000) {
                    let ids = format!(
                        "array(select 'later-' || n from generate_series({from}, {from} + 99999) n)"
                    );
                    shape
                        .client
                        .batch_execute(&format!("select put({ids}, {due}, {})", now()))
                        .await?;
                }
                shape.client.batch_execute("checkpoint").await?;
                let bytes: i64 = shape
                    .client
                    .query_one(
                        "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c \
                    where relnamespace = current_schema()::regnamespace and relkind = 'r'",
                        &[],
                    )
                    .await?
                    .get(0);
                let after = shape.measure(10, None).await?;
                println!(
                    "{name:12} empty {before:6.1} µs, with {jobs} {after:6.1} µs, {} bytes per job",
                    bytes as u64 / jobs.max(1)
                );
                shape.drop().await?;
            }
        }
        other => return Err(format!("{other}: expected fresh, churn, held or pending").into()),
    }
    Ok(())
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_millis() as i64)
}

struct Shape {
    name: &'static str,
    client: Client,
    server: u32,
    next_id: u64,
    upkeep_at: Instant,
    /// Where this client was, by time.
    places: VecDeque<(Instant, i64, i64)>,
    mark: (i64, i64),
    full_look_at: Instant,
}

impl Shape {
    async fn create(url: &str, name: &str) -> Result<Shape> {
        let (name, sql) = SHAPES.iter().find(|(shape, _)| *shape == name).ok_or("no such shape")?;
        let client = connect(url).await?;
        let schema = format!("\"shape {name}\"");
        client.batch_execute(&format!("drop schema if exists {schema} cascade; create schema {schema}; set search_path = {schema}")).await?;
        client.batch_execute(sql).await?;
        let backend: i32 = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
        let server = stat(backend as u32)?.parent;
        let now = Instant::now();
        let (places, mark) = (VecDeque::new(), (0, 0));
        Ok(Shape {
            name,
            client,
            server,
            next_id: 0,
            upkeep_at: now,
            places,
            mark,
            full_look_at: now,
        })
    }

    async fn drop(self) -> Result<()> {
        Ok(self
            .client
            .batch_execute(&format!("drop schema \"shape {}\" cascade", self.name))
            .await?)
    }

    /// Puts, claims and acks `batches` of jobs. Returns the server's microseconds per job. With `per_job`, waits until the
    /// time of the jobs is over.
    async fn measure(&mut self, batches: usize, per_job: Option<Duration>) -> Result<f64> {
        let (before, start) = (cpu(self.server)?, Instant::now());
        for _ in 0..batches {
            let ids: Vec<String> = (0..PUT)
                .map(|_| {
                    self.next_id += 1;
                    format!("order-{:08}", self.next_id)
                })
                .collect();
            let at = now();
            let put = self.client.prepare("select put($1, $2, $3)").await?;
            self.client.execute(&put, &[&ids, &at, &at]).await?;
            let mut done = 0;
            while done < PUT {
                done += self.claim_and_ack().await?;
            }
        }
        if self.upkeep_at.elapsed() > Duration::from_secs(1) {
            self.client.execute("select upkeep($1)", &[&now()]).await?;
            self.upkeep_at = Instant::now();
        }
        if let Some(per_job) = per_job {
            let end = start + per_job * (batches * PUT) as u32;
            tokio::time::sleep_until(end.into()).await;
        }
        Ok((cpu(self.server)? - before) / (batches * PUT) as f64)
    }

    /// Takes the oldest place out, if it is old enough.
    fn older(&mut self, than: Instant) -> Option<(Instant, i64, i64)> {
        let is_old = self.places.front().is_some_and(|(when, ..)| than - *when > LAG);
        if is_old { self.places.pop_front() } else { None }
    }

    async fn claim_and_ack(&mut self) -> Result<usize> {
        let has_marks = self.name == "keyed-marks";
        let start = Instant::now();
        while let Some((_, at, place)) = self.older(start) {
            self.mark = (at, place);
        }
        let is_full_look = !has_marks || start >= self.full_look_at;
        let mark = if is_full_look { (0, 0) } else { self.mark };
        let lease_mark = if is_full_look { 0 } else { now() - LAG.as_millis() as i64 };
        let claim = self
            .client
            .prepare("select id, fence, body, at, place from claim($1, $2, $3, $4, $5)")
            .await?;
        let rows =
            self.client.query(&claim, &[&CLAIM, &now(), &mark.0, &mark.1, &lease_mark]).await?;
        if is_full_look {
            self.full_look_at = Instant::now() + start.elapsed() * FULL_LOOK_SHARE;
        }
        if rows.is_empty() {
            return Err("no job was claimed".into());
        }
        if let Some(last) = rows.iter().map(|row| (row.get(3), row.get(4))).max() {
            self.places.push_back((start, last.0, last.1));
        }
        let ids: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        let fences: Vec<i64> = rows.iter().map(|row| row.get(1)).collect();
        let ack = self.client.prepare("select ack($1, $2)").await?;
        let acked: i64 = self.client.query_one(&ack, &[&ids, &fences]).await?.get(0);
        if acked as usize != rows.len() {
            return Err(format!("{acked} of {} acked", rows.len()).into());
        }
        Ok(rows.len())
    }
}

struct Stat {
    parent: u32,
    /// Microseconds of the process.
    own: f64,
    /// Microseconds of its children that have ended.
    ended: f64,
}

fn stat(pid: u32) -> Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    // In ticks of 10 ms.
    let micros = |n: usize| fields[n].parse::<f64>().map(|ticks| ticks * 10_000.0);
    // The scheduler counts in nanoseconds.
    let own = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let own = own.split_whitespace().next().unwrap_or("0").parse::<f64>()? / 1000.0;
    Ok(Stat { parent: fields[1].parse()?, own, ended: micros(13)? + micros(14)? })
}

/// Microseconds of the processor that the server and its processes have used.
fn cpu(server: u32) -> Result<f64> {
    let mut sum = stat(server).map(|stat| stat.own + stat.ended)?;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        if let Ok(stat) = stat(pid)
            && stat.parent == server
        {
            sum += stat.own;
        }
    }
    Ok(sum)
}
