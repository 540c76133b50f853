//! Disks that fail, and disks that are full.
//!
//! Operations that returned stay done. An operation that fails is refused with a reason, or its
//! outcome is unknown: then it happened completely or not at all. Reading continues, and everything
//! continues when the disk works again.

use crate::support::simulated_disk::{Op, SimulatedDisk};
use crate::support::workload::{
    OperationResult, View, Workload, WorkloadShape, clock_at, content, id, kinds,
};
use crate::support::{PATIENCE, seeds, small, wait_until};
use requeue_disk::{Disk, DiskStore, Options, verify_on};
use requeue_jobs::{
    Body, Change, ChangeKind, Claim, Kind, Missed, Priority, Put, Query, Schedule, Settle,
    Settlement, Store, StoreError, Tick, TickJob, Timestamp, WorkerName,
};
use requeue_testkit::{Operation, Random, block_on};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{slice, thread};

const OPS: [Op; 6] = [Op::Write, Op::Sync, Op::Create, Op::Rename, Op::Remove, Op::SyncNames];

fn open(disk: &SimulatedDisk, options: &Options) -> DiskStore {
    DiskStore::open_on(Arc::new(disk.clone()), options.clone()).expect("it opens")
}

/// The reason of an error that a failed disk may cause.
fn reason(error: &StoreError) -> &str {
    match error {
        StoreError::Unknown { reason } | StoreError::Unavailable { reason } => reason,
        error => panic!("nothing is wrong with the call: {error}"),
    }
}

/// Cuts the power now. What is found must be one of the expected views.
fn check_cut(disk: &SimulatedDisk, seed: u64, now: Timestamp, expected: &[View]) {
    let (_, wall_clock) = clock_at(now);
    let store = open(&disk.after_cut(seed), &small(&wall_clock));
    let found = View::of(&store, now).expect("nothing is wrong with this disk");
    let differences = || expected.iter().map(|view| found.difference(view)).collect::<String>();
    assert!(expected.contains(&found), "{}", differences());
}

/// Some consecutive operations of the disk fail.
#[derive(Clone, Copy)]
struct Faults {
    op: Op,
    nth: u64,
    times: u64,
    /// The size of the blocks that they destroy.
    tear: Option<u64>,
}

/// Runs a workload on a disk of which some consecutive operations fail. Returns whether there were
/// that many operations.
fn work_with_faults(workload: &Workload, faults: Faults, seed: u64) -> bool {
    let Faults { op, nth, times, tear } = faults;
    let (mut disk, mut random) = (SimulatedDisk::new(), Random::new(seed));
    let (clock, wall_clock) = clock_at(workload.now(0));
    let options = small(&wall_clock);
    let mut store = open(&disk, &options);
    let before = disk.count(op);
    disk.fail(op, "", nth, times);
    tear.into_iter().for_each(|block| disk.tear(block));
    let cut_after = random.below(workload.steps.len());
    // The first step of which it is unknown whether it is synced.
    let mut in_doubt = None;
    for (number, step) in workload.steps.iter().enumerate() {
        clock.advance(step.now.saturating_since(wall_clock.now()));
        let mut tries = 0;
        loop {
            let result = step.operation.run(&store);
            if result == step.result {
                in_doubt = in_doubt.filter(|_| step.changes_nothing());
                break;
            }
            let Err(error) = result else { panic!("step {number}: {result:?}, {:?}", step.result) };
            tries += 1;
            assert!(tries <= times, "it continues when the disk works again: {error}");
            assert!(reason(&error).contains("the disk has a fault"), "{error}");
            let views: Vec<View> = (in_doubt.unwrap_or(number)..=number + 1)
                .map(|done| workload.view(done, number))
                .collect();
            if tear.is_none() {
                // Otherwise a second fault would come before the first is repaired.
                check_cut(&disk, random.number(), step.now, &views);
            }
            if tear.is_none() && in_doubt.is_none() && random.chance(20) {
                // The process is killed. What it could not sync can be read, but is not on disk.
                disk = disk.snapshot();
                disk.heal();
                store = open(&disk, &options);
            }
            let found = View::of(&store, step.now).expect("what is there can be read");
            if found == step.after && matches!(error, StoreError::Unknown { .. }) {
                in_doubt = in_doubt.or(Some(number));
                break;
            }
            assert!(found == step.before, "{error}: {}", found.difference(&step.before));
        }
        if number == cut_after && in_doubt.is_none() {
            check_cut(&disk, random.number(), step.now, slice::from_ref(&step.after));
        }
    }
    let (last, now) = (&workload.steps.last().expect("there are steps").after, wall_clock.now());
    let there_were = disk.count(op) - before > nth;
    disk.heal();
    drop(store);
    let store = open(&disk, &options);
    let found = View::of(&store, now).expect("nothing is wrong any more");
    assert!(found == *last, "{}", found.difference(last));
    store.check();
    drop(store);
    check_cut(&disk, random.number(), now, slice::from_ref(last));
    there_were
}

fn check_faults(times: u64, shape: WorkloadShape) {
    // Some workloads remove few files; together they remove enough.
    let mut counts = OPS.map(|op| (op, 0));
    for seed in seeds("REQUEUE_FAULTS", 3) {
        let workload = Workload::random(seed, shape);
        for (op, all) in &mut counts {
            let mut count = 0;
            let faults = |nth| Faults { op: *op, nth, times, tear: None };
            while work_with_faults(&workload, faults(count), seed ^ count) {
                count += 1;
            }
            *all += count;
        }
    }
    println!("{counts:?}");
    assert!(counts.iter().all(|(_, count)| *count > 0), "all sorts fail: {counts:?}");
}

#[test]
fn any_one_operation_may_fail() {
    check_faults(1, WorkloadShape { steps: 90, ids: 25, content: content::<1500> });
}

#[test]
fn any_four_operations_in_a_row_may_fail() {
    check_faults(4, WorkloadShape { steps: 60, ids: 25, content: content::<1500> });
}

/// A failed write or sync destroys the blocks that it touches, including what was synced before.
#[test]
fn a_failed_write_may_destroy_its_blocks() {
    let shape = WorkloadShape { steps: 90, ids: 25, content: content::<1500> };
    let mut count = 0;
    for seed in seeds("REQUEUE_FAULTS", 1) {
        let workload = Workload::random(seed, shape);
        for op in [Op::Write, Op::Sync] {
            for (tear, times) in [(512, 1), (4096, 1), (4096, 4)] {
                let faults = |nth| Faults { op, nth, times, tear: Some(tear) };
                let nths = (0..).take_while(|nth| work_with_faults(&workload, faults(*nth), *nth));
                count += nths.count();
            }
        }
    }
    println!("{count} faults");
    assert!(count > 500, "{count}");
}

/// Checks that an error names the file and the offset that could not be read.
fn check_read_error(text: &str) {
    let named = ["log-", "table-", "manifest-"].iter().any(|name| text.contains(name));
    let placed = text.contains("at byte ") && text.contains("the disk has a fault");
    assert!(named && placed, "{text}");
}

/// All errors of a chain.
fn chain(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", chain(source)));
    format!("{error}{}", source.unwrap_or_default())
}

/// The text of the error of a step that failed, or that failed for one of its kinds.
fn read_error(result: &OperationResult) -> String {
    match result {
        Err(error) => reason(error).to_owned(),
        Ok(response) => format!("{response:?}"),
    }
}

/// Runs a workload. The read with this number fails once, or from then on until the disk is
/// repaired. Returns whether there were that many reads.
fn work_with_read_faults(workload: &Workload, nth: u64, times: u64) -> bool {
    let disk = SimulatedDisk::new();
    let (clock, wall_clock) = clock_at(workload.now(0));
    let store = open(&disk, &small(&wall_clock));
    let before = disk.count(Op::Read);
    disk.fail(Op::Read, "", nth, times);
    for (number, step) in workload.steps.iter().enumerate() {
        clock.advance(step.now.saturating_since(wall_clock.now()));
        let mut result = step.operation.run(&store);
        if result != step.result {
            check_read_error(&read_error(&result));
            disk.heal();
            let found = View::of(&store, step.now).expect("the disk works again");
            if found != step.before {
                // Some entries of a batch were applied, and the others were reported. Or one kind could
                // not be reaped, which the next reap does.
                let is_reap = matches!(step.operation, Operation::Reap(_));
                assert!(
                    result.is_ok() || is_reap,
                    "step {number}, {:?}: {result:?}",
                    step.operation
                );
                store.check();
                return true;
            }
            // The same call succeeds when the disk works again.
            result = step.operation.run(&store);
            assert_eq!(result, step.result, "step {number}");
        }
        match View::of(&store, step.now) {
            Ok(found) if found.keeps_more_ended_jobs_than(&step.after) => {
                assert!(disk.count(Op::Read) - before > nth, "no read has failed");
                disk.heal();
                store.check();
                return true;
            }
            Ok(found) => assert!(found == step.after, "{}", found.difference(&step.after)),
            Err(error) => check_read_error(reason(&error)),
        }
    }
    disk.heal();
    let found = View::of(&store, wall_clock.now()).expect("nothing is wrong any more");
    let last = &workload.steps.last().expect("there are steps").after;
    assert!(found == *last, "{}", found.difference(last));
    store.check();
    drop(store);
    check_cut(&disk, nth, wall_clock.now(), slice::from_ref(last));
    disk.count(Op::Read) - before > nth
}

#[test]
fn any_read_may_fail() {
    let mut count = 0;
    for seed in seeds("REQUEUE_FAULTS", 1) {
        let workload =
            Workload::random(seed, WorkloadShape { steps: 60, ids: 25, content: content::<1500> });
        // Each step is followed by many reads of everything, so not every one is tried.
        let stride = 1 + 34 * u64::from(std::env::var("REQUEUE_FAULTS").is_err());
        for times in [1, u64::MAX] {
            let mut nth = 0;
            while work_with_read_faults(&workload, nth, times) {
                nth += stride;
                count += 1;
            }
        }
    }
    println!("{count} reads failed");
    assert!(count > 100, "{count}");
}

#[test]
fn any_read_may_fail_while_a_store_is_opened_verified_or_copied() {
    let workload =
        Workload::random(3, WorkloadShape { steps: 120, ids: 40, content: content::<1500> });
    let (clock, wall_clock) = clock_at(workload.now(0));
    let (whole, options) = (SimulatedDisk::new(), small(&wall_clock));
    let store = open(&whole, &options);
    for step in &workload.steps {
        clock.advance(step.now.saturating_since(wall_clock.now()));
        assert_eq!(step.operation.run(&store), step.result);
    }
    drop(store);
    let last = &workload.steps.last().expect("there are steps").after;
    // Verification reads everything, so it has the most reads.
    let most = {
        let disk = whole.snapshot();
        let before = disk.count(Op::Read);
        verify_on(&disk, |_| ()).expect("nothing is wrong");
        disk.count(Op::Read) - before
    };
    let mut failed = [0; 3];
    for times in [1, u64::MAX] {
        for nth in 0.. {
            let faulty = || {
                let disk = whole.snapshot();
                disk.fail(Op::Read, "", nth, times);
                disk
            };
            let disk = faulty();
            match DiskStore::open_on(Arc::new(disk.clone()), options.clone()) {
                Ok(store) => {
                    disk.heal();
                    let found = View::of(&store, wall_clock.now()).expect("it works again");
                    assert!(found == *last, "{}", found.difference(last));
                }
                Err(error) => {
                    failed[0] += 1;
                    check_read_error(&chain(&error));
                    // Nothing was changed.
                    disk.heal();
                    check_cut(&disk, nth, wall_clock.now(), slice::from_ref(last));
                }
            }
            let verified = verify_on(&faulty(), |_| ());
            match &verified {
                Ok(verified) => {
                    failed[1] += usize::from(!verified.problems.is_empty());
                    verified.problems.iter().for_each(|p| check_read_error(&p.to_string()));
                }
                Err(error) => {
                    failed[1] += 1;
                    check_read_error(&chain(error));
                }
            }
            let disk = whole.snapshot();
            let (store, copy) = (open(&disk, &options), SimulatedDisk::new());
            disk.fail(Op::Read, "", nth, times);
            match store.backup_on(&copy, |_| ()) {
                Ok(_) => check_cut(&copy, nth, wall_clock.now(), slice::from_ref(last)),
                Err(error) => {
                    failed[2] += 1;
                    check_read_error(&chain(&error));
                    assert_eq!(copy.names().expect("the power is on"), [""; 0]);
                }
            }
            if nth > most {
                break;
            }
        }
    }
    println!("{failed:?} failed to open, to verify, to copy");
    assert!(failed.iter().all(|failed| *failed > 20), "{failed:?}");
}

/// A store together with the jobs that it must contain.
struct TrackedStore {
    disk: SimulatedDisk,
    options: Options,
    store: Option<DiskStore>,
    kind: Kind,
    /// Jobs that were put and not acked.
    there: BTreeSet<String>,
    /// Jobs of which it is unknown whether they are there.
    unknown: BTreeSet<String>,
    next: usize,
    /// The size of a body.
    body: usize,
}

impl TrackedStore {
    fn new(background: bool) -> TrackedStore {
        let (_, wall_clock) = clock_at(Timestamp::from_millis(1_700_000_000_000));
        let mut options = small(&wall_clock);
        options.background = background;
        TrackedStore::with(options, 300)
    }

    fn with(options: Options, body: usize) -> TrackedStore {
        let disk = SimulatedDisk::new();
        let store = Some(open(&disk, &options));
        let (kind, next) = (kinds().remove(0), 0);
        let (there, unknown) = Default::default();
        TrackedStore { disk, options, store, kind, there, unknown, next, body }
    }

    /// The details of the problems that the store reports, by name.
    fn problems(&self) -> BTreeMap<&'static str, String> {
        let problems = self.store().status().problems;
        problems.into_iter().map(|problem| (problem.name, problem.detail)).collect()
    }

    fn metric(&self, name: &str) -> f64 {
        let metrics = self.store().status().metrics;
        metrics.iter().find(|metric| metric.name == name).expect("a metric of this name").value
    }

    fn store(&self) -> &DiskStore {
        self.store.as_ref().expect("it is open")
    }

    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(open(&self.disk, &self.options));
    }

    fn put(&mut self) -> Result<(), StoreError> {
        self.next += 1;
        let name = format!("job-{:06}", self.next);
        let body = Body::octets(vec![7; self.body]).expect("a small body");
        let put = Put::new(self.kind.clone(), id(&*name), body);
        let placed = block_on(self.store().put(vec![put]));
        if let Err(StoreError::Unknown { .. }) = placed {
            self.unknown.insert(name.clone());
        }
        placed?.remove(0).expect("it has no condition");
        self.there.insert(name);
        Ok(())
    }

    /// Puts jobs until one is refused. Returns the reason.
    fn fill(&mut self) -> String {
        loop {
            if let Err(error) = self.put() {
                return reason(&error).to_owned();
            }
            assert!(self.next < 100_000, "a full disk takes no more");
        }
    }

    /// Claims one job and acks it. Returns whether there was one.
    fn work(&mut self) -> Result<bool, StoreError> {
        let worker = WorkerName::new("worker").expect("a valid name");
        let (kinds, lease) = (vec![self.kind.clone()], Some(Duration::from_secs(60)));
        let claim = Claim { kinds, max: 1, lease, worker, nonce: 7 };
        let mut claimed = block_on(self.store().claim(claim))?;
        if let Some((_, error)) = claimed.errors.pop() {
            return Err(error);
        }
        let Some(job) = claimed.jobs.pop() else { return Ok(false) };
        let name = job.id().as_str().to_owned();
        let settle = Settle { receipt: job.receipt, action: Settlement::Ack };
        let settled = block_on(self.store().settle(vec![settle]));
        if let Err(StoreError::Unknown { .. }) = settled {
            self.unknown.insert(name.clone());
        }
        settled?.remove(0).expect("the lease is there");
        self.there.remove(&name);
        self.unknown.remove(&name);
        Ok(true)
    }

    /// Tries until it succeeds: the store repeats what failed only now and then.
    fn eventually<T>(&mut self, call: impl Fn(&mut TrackedStore) -> Result<T, StoreError>) -> T {
        let begun = Instant::now();
        loop {
            match call(self) {
                Ok(done) => return done,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "there is space now: {error}"),
            }
            thread::yield_now();
        }
    }

    /// Checks the contents of the store by reading it.
    fn check(&self) {
        self.check_store(self.store());
        self.store().check();
    }

    /// Checks what a power cut would leave behind.
    fn check_cut(&self, seed: u64) {
        self.check_store(&open(&self.disk.after_cut(seed), &self.options));
    }

    fn check_store(&self, store: &DiskStore) {
        let mut query = Query { limit: 1000, ..Query::new(self.kind.clone()) };
        let mut found = BTreeSet::new();
        loop {
            let page = block_on(store.list(query.clone())).expect("reading goes on");
            for job in page.jobs {
                assert_eq!(job.body().len(), self.body);
                found.insert(job.id.as_str().to_owned());
            }
            query.after = page.cursor;
            if query.after.is_none() {
                break;
            }
        }
        let lost: Vec<_> = self.there.difference(&found).collect();
        let back: Vec<_> = found.difference(&self.there).collect();
        let known = |names: Vec<&String>| {
            names.into_iter().filter(|name| !self.unknown.contains(*name)).count()
        };
        assert_eq!((known(lost), known(back)), (0, 0), "lost, and back again");
    }
}

fn fill_and_work(background: bool, seed: u64) {
    let mut random = Random::new(seed);
    let mut tracked = TrackedStore::new(background);
    let capacity = 100_000 + random.below(100_000) as u64;
    tracked.disk.set_capacity(Some(capacity));
    for _ in 0..3 {
        let why = tracked.fill();
        assert!(why.contains("space") || why.contains("MiB free"), "{why}");
        tracked.check();
        tracked.check_cut(random.number());
        let mut done = 0;
        let all = tracked.there.len();
        while done < all {
            match tracked.work() {
                Ok(true) => done += 1,
                // The jobs that are left were claimed and could not be acked.
                Ok(false) => break,
                Err(error) => {
                    let why = reason(&error);
                    let expected = ["free on the disk", "the memory is full"];
                    assert!(expected.iter().any(|text| why.contains(text)), "{error}");
                    break;
                }
            }
        }
        println!("{done} of {all} settled with {capacity} bytes");
        // In each earlier round one job was claimed and could not be acked.
        assert!(done + 3 >= all.min(50), "the reserve is for settling: {done} of {all}");
        tracked.check();
        tracked.check_cut(random.number());
        if random.chance(50) {
            tracked.reopen();
            tracked.check();
        }
        tracked.disk.set_capacity(None);
        tracked.eventually(TrackedStore::put);
        tracked.check();
        tracked.disk.set_capacity(Some(tracked.disk.used() + random.below(50_000) as u64));
    }
    tracked.disk.set_capacity(None);
    while tracked.eventually(TrackedStore::work) {}
    tracked.reopen();
    tracked.check();
}

#[test]
fn a_full_disk_refuses_puts_and_continues_to_settle() {
    for seed in seeds("REQUEUE_FAULTS", 4) {
        fill_and_work(false, seed);
        fill_and_work(true, seed);
    }
}

#[test]
fn a_layer_that_cannot_be_flushed_stays_in_memory_and_blocks_no_caller() {
    for background in [false, true] {
        for op in [Op::Create, Op::Write, Op::Sync] {
            let mut tracked = TrackedStore::new(background);
            (0..20).for_each(|_| tracked.put().expect("nothing is wrong yet"));
            tracked.disk.fail(op, "table-", 0, u64::MAX);
            let why = tracked.fill();
            assert!(why.contains("the memory is full") && why.contains("table-"), "{why}");
            tracked.check();
            for _ in 0..20 {
                assert!(tracked.work().expect("settling goes on"));
            }
            tracked.check();
            tracked.check_cut(1);
            tracked.disk.heal();
            tracked.eventually(TrackedStore::put);
            (0..100).for_each(|_| tracked.eventually(TrackedStore::put));
            while tracked.eventually(TrackedStore::work) {}
            tracked.check();
            tracked.reopen();
            tracked.check();
        }
    }
}

/// Few and large jobs: their acks fill neither the memory nor the log.
fn fill_with_large_jobs(background: bool) -> TrackedStore {
    let (_, wall_clock) = clock_at(Timestamp::from_millis(1_700_000_000_000));
    let mut options = small(&wall_clock);
    (options.background, options.memory, options.segment) = (background, 64 << 10, 64 << 10);
    let mut tracked = TrackedStore::with(options, 16 << 10);
    tracked.disk.set_capacity(Some(2 << 20));
    let why = tracked.fill();
    assert!(why.contains("MiB free"), "{why}");
    tracked
}

#[test]
fn space_is_free_again_after_the_jobs_on_a_full_disk_are_settled() {
    for (background, restart) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut tracked = fill_with_large_jobs(background);
        let fitted = tracked.there.len();
        assert!(fitted > 20, "{fitted}");
        while tracked.work().expect("settling goes on") {}
        if restart {
            tracked.reopen();
        }
        for _ in 0..fitted / 2 {
            tracked.eventually(TrackedStore::put);
        }
        // A merge may have failed meanwhile for want of space.
        let begun = Instant::now();
        while background && !tracked.problems().is_empty() && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(tracked.problems(), BTreeMap::new(), "{:?}", tracked.store().status().metrics);
        tracked.check();
        tracked.check_cut(1);
    }
}

#[test]
fn space_is_free_again_after_half_of_the_jobs_are_deleted() {
    for restart in [false, true] {
        let mut tracked = fill_with_large_jobs(false);
        let half: Vec<String> = tracked.there.iter().step_by(2).cloned().collect();
        for name in &half {
            let action = ChangeKind::Cancel;
            let change = Change { kind: tracked.kind.clone(), id: id(&**name), action };
            block_on(tracked.store().change(vec![change])).expect("it is there").remove(0).unwrap();
            tracked.there.remove(name);
        }
        if restart {
            tracked.reopen();
        }
        for _ in 0..half.len() / 2 {
            tracked.eventually(TrackedStore::put);
        }
        tracked.check();
    }
}

#[test]
fn a_full_disk_is_reported_until_there_is_space() {
    for background in [false, true] {
        let mut tracked = TrackedStore::new(background);
        (0..20).for_each(|_| tracked.put().expect("there is space"));
        assert_eq!(tracked.problems(), BTreeMap::new());
        tracked.disk.set_capacity(Some(tracked.disk.used() + 40_000));
        let why = tracked.fill();
        let detail = &tracked.problems()["disk_full"];
        assert!(detail.contains(&why) && detail.contains("the disk"), "{why}; {detail}");
        let (free, reserved) =
            (tracked.metric("disk_free_bytes"), tracked.metric("disk_reserved_bytes"));
        assert!(free < 40_000.0 && reserved == 28_672.0, "{free}, {reserved}");
        tracked.disk.set_capacity(None);
        tracked.eventually(TrackedStore::put);
        assert_eq!(tracked.problems(), BTreeMap::new());
    }
}

#[test]
fn a_log_that_cannot_be_written_is_reported_until_it_can() {
    for background in [false, true] {
        for op in [Op::Write, Op::Sync] {
            let mut tracked = TrackedStore::new(background);
            tracked.put().expect("nothing is wrong yet");
            let syncs = tracked.metric("disk_syncs_total");
            tracked.disk.fail(op, "log-", 0, u64::MAX);
            tracked.put().expect_err("the log cannot be written");
            let detail = &tracked.problems()["log_write_failed"];
            assert!(detail.contains("log-") && detail.contains("the disk has a fault"), "{detail}");
            tracked.disk.heal();
            if background {
                wait_until(|| tracked.problems().is_empty());
            }
            tracked.put().expect("nothing is wrong any more");
            assert_eq!(tracked.problems(), BTreeMap::new());
            assert!(tracked.metric("disk_syncs_total") > syncs);
        }
    }
}

#[test]
fn a_layer_that_cannot_be_flushed_is_reported_until_it_is() {
    let mut tracked = TrackedStore::new(true);
    tracked.disk.fail(Op::Sync, "table-", 0, u64::MAX);
    tracked.fill();
    let detail = &tracked.problems()["flush_failed"];
    assert!(detail.contains("sync table-") && detail.contains("the disk has a fault"), "{detail}");
    assert!(tracked.metric("disk_upkeep_failures_total") >= 1.0);
    assert_eq!(tracked.metric("disk_tables"), 0.0);
    tracked.disk.heal();
    // Without any call.
    wait_until(|| tracked.problems().is_empty());
    assert!(tracked.metric("disk_flushes_total") >= 1.0);
    assert!(tracked.metric("disk_tables") > 0.0 && tracked.metric("disk_table_bytes") > 0.0);
    tracked.check();
}

/// The claims of a store whose memory cannot be flushed do not fill the memory without limit.
#[test]
fn claims_end_when_the_memory_is_full_and_cannot_be_flushed() {
    let mut tracked = TrackedStore::new(false);
    (0..400).for_each(|_| tracked.put().expect("nothing is wrong yet"));
    tracked.disk.fail(Op::Create, "table-", 0, u64::MAX);
    let claim = |tracked: &TrackedStore| {
        let worker = WorkerName::new("worker").expect("a valid name");
        let (kinds, lease) = (vec![tracked.kind.clone()], Some(Duration::from_secs(60)));
        let claim = Claim { kinds, max: 1, lease, worker, nonce: 7 };
        block_on(tracked.store().claim(claim)).map(|mut claimed| claimed.jobs.remove(0))
    };
    let mut claimed = Vec::new();
    let why = loop {
        match claim(&tracked) {
            Ok(job) => claimed.push(job),
            Err(error) => break reason(&error).to_owned(),
        }
    };
    assert!(why.contains("the memory is full") && why.contains("table-"), "{why}");
    let memory = tracked.metric("disk_memory_bytes");
    assert!((16_384.0..20_000.0).contains(&memory), "{memory} bytes, {} jobs", claimed.len());
    for job in claimed {
        let settle = Settle { receipt: job.receipt.clone(), action: Settlement::Ack };
        block_on(tracked.store().settle(vec![settle])).unwrap().remove(0).unwrap();
        tracked.there.remove(job.id().as_str());
    }
    claim(&tracked).expect("there is room in memory again");
    tracked.disk.heal();
    tracked.eventually(TrackedStore::put);
    tracked.check();
}

/// A tick puts a job with the body of the schedule: its size must be checked before it runs.
#[test]
fn a_tick_that_does_not_fit_blocks_no_caller() {
    let mut tracked = TrackedStore::new(false);
    let now = Timestamp::from_millis(1_700_000_000_000);
    let schedule = Schedule {
        id: id("large"),
        when: "0 3 * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        content: Body::octets(vec![7; 30_000]).expect("a body").into(),
        missed: Missed::One,
        next: now,
    };
    block_on(tracked.store().set_schedule(kinds().remove(1), schedule, Default::default()))
        .expect("it fits");
    (0..10).for_each(|_| tracked.put().expect("there is space"));
    tracked.disk.set_capacity(Some(tracked.disk.used() + 20_000));
    tracked.fill();
    let (body, priority) = (Body::octets(vec![7; 30_000]).expect("a body"), Priority::default());
    let put = Some(TickJob { id: id("large"), content: body.into(), priority });
    let tick = Tick { kind: kinds().remove(1), id: id("large"), expected: now, next: now, put };
    let refused = block_on(tracked.store().tick(tick)).expect_err("there is no space");
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused}");
    for _ in 0..10 {
        assert!(tracked.work().expect("settling goes on"));
    }
}
