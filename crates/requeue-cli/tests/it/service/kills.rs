//! A server on a data directory is killed and restarted.

use super::load::{Load, list};
use super::node::{KIND, LONG, Node, block_on, claim};
use crate::support::{Dir, runs, until};
use requeue_jobs::{Body, Due, JobId, JobState, Kind, Put, Settled, Store, Timestamp};
use requeue_testkit::{Random, check_seeds};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

#[test]
fn jobs_survive_a_kill_and_are_not_claimed_before_they_are_due() {
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    let jobs = node.jobs();
    block_on(jobs.put(KIND, "now", "1")).unwrap();
    block_on(jobs.put(KIND, "soon", "2").after(Duration::from_secs(2))).unwrap();
    block_on(jobs.put(KIND, "later", "3").after(LONG)).unwrap();
    let later = block_on(jobs.get(KIND, "later")).unwrap().unwrap();
    let soon = block_on(jobs.get(KIND, "soon")).unwrap().unwrap();
    node.kill();
    let node = Node::on_disk(&dir);
    let [first] = &claim(&node.client, "1m").unwrap()[..] else { panic!("not one") };
    assert_eq!((first.id().as_str(), first.body().bytes()), ("now", &b"1"[..]));
    let [second] = &claim(&node.client, "1m").unwrap()[..] else { panic!("not one") };
    let claimed_at = Timestamp::from(SystemTime::now());
    assert_eq!(
        (second.id().as_str(), second.version.due, second.attempt),
        ("soon", soon.version.due, 1)
    );
    assert!(claimed_at >= second.version.due);
    assert_eq!(block_on(node.jobs().get(KIND, "later")).unwrap(), Some(later));
}

#[test]
fn leases_and_receipts_survive_a_kill() {
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    block_on(node.jobs().put(KIND, "a", "")).unwrap();
    let job = claim(&node.client, "0s").unwrap().remove(0);
    let before = block_on(node.jobs().get(KIND, "a")).unwrap();
    node.kill();
    let node = Node::on_disk(&dir);
    let jobs = node.jobs();
    assert_eq!(block_on(jobs.get(KIND, "a")).unwrap(), before);
    assert_eq!(claim(&node.client, "0s").unwrap(), []);
    assert_eq!(block_on(jobs.ack(&job.receipt)).unwrap(), Settled::Done);
    node.kill();
    let node = Node::on_disk(&dir);
    assert_eq!(block_on(node.jobs().get(KIND, "a")).unwrap(), None);
}

#[test]
fn a_lease_whose_worker_died_with_the_server_expires() {
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    block_on(node.jobs().put(KIND, "a", "")).unwrap();
    let lease = Duration::from_secs(1);
    let claimed = block_on(node.jobs().claim([KIND], "first").lease(lease)).unwrap();
    let ends_at = claimed.jobs[0].lease_ends_at;
    node.kill();
    let node = Node::on_disk(&dir);
    let [job] = &claim(&node.client, "1m").unwrap()[..] else { panic!("not one") };
    assert_eq!(job.attempt, 2);
    assert!(Timestamp::from(SystemTime::now()) >= ends_at);
    let view = block_on(node.jobs().get(KIND, "a")).unwrap().unwrap();
    assert_eq!(view.failures[0].worker.as_str(), "first");
}

#[test]
fn the_backoff_of_a_failed_job_survives_a_kill() {
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    let jobs = node.jobs();
    block_on(jobs.put(KIND, "a", "")).unwrap();
    let job = claim(&node.client, "0s").unwrap().remove(0);
    let Settled::RetryAt(due) = block_on(jobs.retry(&job.receipt, "no luck")).unwrap() else {
        panic!("it is not retried");
    };
    node.kill();
    let node = Node::on_disk(&dir);
    let view = block_on(node.jobs().get(KIND, "a")).unwrap().unwrap();
    assert_eq!((view.attempts, view.version.due), (1, due));
    assert_eq!(view.failures[0].error.as_deref(), Some("no luck"));
    assert!(matches!(view.state, JobState::Waiting | JobState::Ready));
    assert_eq!(claim(&node.client, "1m").unwrap()[0].attempt, 2);
}

#[test]
fn a_kill_under_load_loses_nothing_that_was_acknowledged() {
    check_seeds(&[], "REQUEUE_KILLS", 1, |seed| {
        let (dir, mut random) = (Dir::new(), Random::new(seed));
        let load = Load::new(Duration::from_secs(2));
        for _ in 0..2 {
            let node = Node::on_disk(&dir);
            let client = node.client.clone();
            load.run(&[&client], random.number(), || {
                load.reaches(100 + random.below(100));
                node.kill();
            });
        }
        load.ends_well(&Node::on_disk(&dir).client);
        Ok(())
    });
}

#[test]
fn a_directory_can_be_opened_as_soon_as_its_server_is_killed() {
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    let second = dir.run(&["serve", "--listen", "127.0.0.1:0", "--data", "d"]).code(4);
    // The error names the process that has the directory open.
    let (_, told) = second.err.split_once("in use by process ").expect(&second.err);
    let pid: String = told.chars().take_while(char::is_ascii_digit).collect();
    assert!(runs(&pid));
    node.kill();
    assert!(!runs(&pid));
    assert_eq!(Node::on_disk(&dir).status("/readyz"), 200);
}

#[test]
fn an_interrupted_import_can_be_repeated() {
    const COUNT: usize = 3000;
    let dir = Dir::new();
    let node = Node::on_disk(&dir);
    for ids in (0..COUNT).collect::<Vec<_>>().chunks(1000) {
        let put = |id: &usize| {
            let (kind, id) = (Kind::new(KIND).unwrap(), JobId::new(id.to_string()).unwrap());
            Put { due: Due::After(LONG), ..Put::new(kind, id, Body::default()) }
        };
        let placed = block_on(node.client.put(ids.iter().map(put).collect()));
        placed.unwrap().into_iter().for_each(|placed| assert!(placed.is_ok()));
    }
    dir.run(&["export", "jobs", "--server", node.url()]).ok();
    let there = || Node::start(&dir, &["--listen", "127.0.0.1:0", "--data", "other"]);
    let other = there();
    let mut import = dir.command(&["import", "jobs", "--server", other.url()]);
    let import = import.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    until("some of them", || (!list(&other.client).is_empty()).then_some(()));
    other.kill();
    // The import may have finished before the kill.
    import.expect("it starts").wait().expect("it ends");
    let other = there();
    println!("{} of {COUNT} had arrived", list(&other.client).len());
    dir.run(&["import", "jobs", "--server", other.url()]).ok();
    assert!(list(&other.client) == list(&node.client));
}
