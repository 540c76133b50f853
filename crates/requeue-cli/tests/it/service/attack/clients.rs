//! Clients that keep to the rules, and record the results of all their calls.

use super::Attack;
use crate::service::node::block_on;
use requeue_http::HttpStore;
use requeue_http::client::Options;
use requeue_jobs::{
    Body, Claim, ClaimedJob, JobId, Kind, Put, PutError, Settle, SettleError, Settled, Settlement,
    Store, StoreError, WorkerName,
};
use requeue_testkit::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) const KINDS: [&str; 4] = ["mail", "order.close", "report", "thumbnail"];
/// The kind that slow readers ask for. Its jobs have a body of a MiB.
pub(super) const BIG: &str = "big";
/// The kind that fills the disk.
pub(super) const FILL: &str = "fill";

const MIB: usize = 1 << 20;
const BIG_JOBS: usize = 40;
/// A claim that was killed with its server: its jobs come back after this.
const LEASE: Duration = Duration::from_secs(5);
/// How long a disk from which everything was removed may refuse puts.
const RECOVERY: Duration = Duration::from_secs(30);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The clients of a run.
#[derive(Clone)]
pub(super) struct Clients<'a> {
    attack: &'a Attack,
    /// Each has a thread for its connections.
    stores: Arc<Vec<HttpStore>>,
}

impl<'a> Clients<'a> {
    pub(super) fn connect(attack: &'a Attack, stores: usize) -> Self {
        let mut options = Options::default();
        options.response_timeout = Duration::from_secs(30);
        let url = format!("http://{}", attack.address);
        let connect = |_| HttpStore::connect_with(&url, options.clone()).expect("a valid address");
        Clients { attack, stores: Arc::new((0..stores).map(connect).collect()) }
    }

    /// Puts, claims and acks until the run is over.
    pub(super) fn run(&self, number: usize, mut random: Random) {
        let store = &self.stores[number % self.stores.len()];
        if number == 0 {
            self.put_all(store, BIG, &[MIB; BIG_JOBS]);
        }
        while self.attack.is_running() {
            if random.chance(50) {
                let len = |_| match random.below(20) {
                    0 => 1 + random.below(MIB),
                    1..5 => 1 + random.below(64 << 10),
                    _ => 1 + random.below(1 << 10),
                };
                let lens: Vec<usize> = (0..1 + number % 8).map(len).collect();
                self.put(store, KINDS[random.below(KINDS.len())], &lens);
            } else {
                let jobs = self.claim(store, &KINDS, 1 + number % 20);
                self.ack(store, &jobs);
            }
            self.attack.pause(Duration::from_millis(random.below(50) as u64));
        }
    }

    /// Puts large jobs until the disk is full, does all of them, and puts again.
    pub(super) fn fill_and_drain(&self) {
        let store = &self.stores[0];
        while self.attack.is_running() {
            let mut refused = 0;
            while refused < 5 && self.attack.is_running() {
                match self.put(store, FILL, &[MIB; 8]) {
                    0 => refused += 1,
                    _ => refused = 0,
                }
            }
            let mut empty = 0;
            while empty < 10 && self.attack.is_running() {
                let jobs = self.claim(store, &[FILL], 16);
                self.ack(store, &jobs);
                empty = if jobs.is_empty() { empty + 1 } else { 0 };
                self.attack.pause(Duration::from_millis(if jobs.is_empty() { 600 } else { 0 }));
            }
            let drained = Instant::now();
            while self.attack.is_running() && self.put(store, FILL, &[1000]) == 0 {
                if drained.elapsed() > RECOVERY {
                    let text = format!("the drained disk refuses puts after {RECOVERY:?}");
                    return self.attack.records.violation(text);
                }
                self.attack.pause(Duration::from_millis(100));
            }
            if self.attack.is_running() {
                self.attack.records.drained(drained.elapsed());
            }
            self.attack.pause(Duration::from_secs(20));
        }
    }

    /// Does all jobs. The leases of clients that have gone expire meanwhile.
    pub(super) fn drain(&self) {
        let store = &self.stores[0];
        let kinds = [&KINDS[..], &[BIG, FILL]].concat();
        crate::support::until("the end of all jobs", || {
            loop {
                let jobs = self.claim(store, &kinds, 1000);
                self.ack(store, &jobs);
                if jobs.is_empty() {
                    break;
                }
            }
            let kinds = block_on(store.kinds()).ok()?;
            kinds.iter().all(|kind| kind.counts.pending + kind.counts.leased == 0).then_some(())
        });
    }

    fn put_all(&self, store: &HttpStore, kind: &str, lens: &[usize]) {
        for lens in lens.chunks(8) {
            while self.attack.is_running() && self.put(store, kind, lens) == 0 {}
        }
    }

    /// Puts jobs with bodies of these lengths. Returns how many were accepted.
    fn put(&self, store: &HttpStore, kind: &str, lens: &[usize]) -> usize {
        let records = &self.attack.records;
        let first = NEXT.fetch_add(lens.len() as u64, Ordering::Relaxed);
        let numbers: Vec<u64> = (first..first + lens.len() as u64).collect();
        records.sends(&numbers);
        let put = |(number, len): (&u64, &usize)| {
            let id = JobId::new(format!("{number}-{len}")).expect("a valid id");
            Put::new(Kind::new(kind).expect("a valid kind"), id, body(*number, *len))
        };
        let puts = numbers.iter().zip(lens).map(put).collect();
        let began = Instant::now();
        let placed = match block_on(store.put(puts)) {
            Ok(placed) => placed,
            Err(error) => {
                records.failed("put", outcome(&error));
                return 0;
            }
        };
        let mut accepted = 0;
        for ((number, len), placed) in numbers.iter().zip(lens).zip(placed) {
            match placed {
                Ok(_) => {
                    accepted += 1;
                    records.acknowledged(*number, *len);
                }
                Err(PutError::Store(error)) => records.failed("put", outcome(&error)),
                Err(error) => records.violation(format!("put of {number}: {error}")),
            }
        }
        if accepted > 0 {
            records.put_took(began.elapsed());
        }
        accepted
    }

    fn claim(&self, store: &HttpStore, kinds: &[&str], max: usize) -> Vec<ClaimedJob> {
        let records = &self.attack.records;
        let kinds = kinds.iter().map(|kind| Kind::new(*kind).expect("a valid kind")).collect();
        let worker = WorkerName::new("client").expect("a valid name");
        let nonce = NEXT.fetch_add(1, Ordering::Relaxed);
        let claim = Claim { kinds, max, lease: Some(LEASE), worker, nonce };
        let began = Instant::now();
        let claimed = match block_on(store.claim(claim)) {
            Ok(claimed) => claimed,
            Err(error) => {
                records.failed("claim", outcome(&error));
                return Vec::new();
            }
        };
        if !claimed.jobs.is_empty() {
            records.claim_took(began.elapsed());
        }
        for job in &claimed.jobs {
            let (number, len) = job.id().as_str().split_once('-').expect("an id of ours");
            let (number, len) = (number.parse().expect("a number"), len.parse().expect("a length"));
            records.delivered(number, began, job.version.content.body == body(number, len));
        }
        claimed.jobs
    }

    fn ack(&self, store: &HttpStore, jobs: &[ClaimedJob]) {
        if jobs.is_empty() {
            return;
        }
        let records = &self.attack.records;
        let settle =
            |job: &ClaimedJob| Settle { receipt: job.receipt.clone(), action: Settlement::Ack };
        let settled = match block_on(store.settle(jobs.iter().map(settle).collect())) {
            Ok(settled) => settled,
            Err(error) => return records.failed("ack", outcome(&error)),
        };
        for (job, settled) in jobs.iter().zip(settled) {
            let number = job.id().as_str().split_once('-').expect("an id of ours").0;
            match settled {
                Ok(Settled::Done) => records.acked(number.parse().expect("a number")),
                Ok(other) => records.violation(format!("{number} was acked, and is {other:?}")),
                // The server was killed or busy for longer than a lease.
                Err(SettleError::LeaseLost { .. }) => records.failed("ack", "lease lost"),
                Err(SettleError::Store(error)) => records.failed("ack", outcome(&error)),
                Err(error) => records.violation(format!("ack of {number}: {error}")),
            }
        }
    }
}

fn outcome(error: &StoreError) -> &'static str {
    match error {
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::Unknown { .. } => "unknown",
        _ => "rejected",
    }
}

/// The body of a job: text and binary in turn.
fn body(number: u64, len: usize) -> Body {
    let seed = number.to_le_bytes();
    if number.is_multiple_of(2) {
        let bytes: Vec<u8> = (0..len).map(|at| seed[at % 8] ^ (at >> 3) as u8).collect();
        return Body::octets(bytes).expect("a body that fits");
    }
    let text: Vec<u8> = number.to_string().bytes().cycle().take(len).collect();
    Body::new(text, "text/plain").expect("a body that fits")
}
