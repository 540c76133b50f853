//! Redis is killed under load, and started again.
//!
//! With `appendfsync always` nothing is lost that was answered. With `everysec` the last second
//! or two may be: a process that is killed has written what it answered, and only a machine
//! that goes down loses what was not synced. So here the file is cut as that would cut it.

use crate::support::load::Load;
use crate::support::{as_stores, claimed, clients, ids, insist, is_whole, put, try_put};
use requeue_testkit::servers::RedisServer;
use requeue_testkit::{Concurrent, Random, check_seeds};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// What Redis says of `everysec`: it syncs each second, and waits one more where the disk is slow.
const SYNCED: Duration = Duration::from_secs(2);

/// One that writes down all it does. The file stays one file, to be cut.
fn with_log(sync: &str) -> RedisServer {
    let arguments = ["--appendonly", "yes", "--appendfsync", sync];
    RedisServer::with(&[&arguments[..], &["--auto-aof-rewrite-percentage", "0"]].concat())
}

fn log_file(server: &RedisServer) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("it has a log").flatten();
    let mut files = files.map(|file| file.path());
    files.find(|file| file.to_string_lossy().ends_with(".incr.aof")).expect("it has a log")
}

#[test]
fn with_always_a_server_that_is_killed_loses_nothing_it_answered() {
    check_seeds(&[], "REQUEUE_KILLS", 1, |seed| {
        let mut server = with_log("always");
        let clients = clients(&server.url(), 4);
        let mut kills = 0;
        let run = Concurrent { operations: 300, ..Concurrent::default() };
        run.check(&as_stores(&clients), seed, || {
            server.kill();
            server.start_again();
            kills += 1;
        })?;
        is_whole(&clients[0]);
        assert!(kills > 0);
        Ok(())
    });
}

#[test]
fn with_always_nothing_of_a_batch_is_lost_either() {
    check_seeds(&[], "REQUEUE_KILLS", 2, |seed| {
        let mut server = with_log("always");
        let store = clients(&server.url(), 1).remove(0);
        let more = Random::new(seed).below(2000);
        let (answered, ()) = Load::run(&store, seed, |load| {
            load.reaches(100 + more);
            server.kill();
        });
        server.start_again();
        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        is_whole(&store);
        println!(
            "{} put, {} acked, {} there",
            answered.put.len(),
            answered.acked.len(),
            found.len()
        );
        assert_eq!(answered.lost(&found, &answered.claimed), Vec::<String>::new());
        assert_eq!(answered.back(&found), Vec::<String>::new());
        Ok(())
    });
}

#[test]
fn with_everysec_a_second_or_two_may_be_lost_and_nothing_by_halves() {
    check_seeds(&[], "REQUEUE_KILLS", 2, |seed| {
        let mut server = with_log("everysec");
        let store = clients(&server.url(), 1).remove(0);
        let (answered, (safe, synced)) = Load::run(&store, seed, |load| {
            load.reaches(500);
            let safe = load.answered();
            thread::sleep(SYNCED);
            let synced = fs::metadata(log_file(&server)).expect("it has a log").len();
            load.reaches(500);
            server.kill();
            (safe, synced)
        });
        let file = File::options().write(true).open(log_file(&server)).expect("it can be written");
        let end = file.metadata().expect("it can be read").len();
        // Not so near the end that nothing is lost.
        let left = synced + Random::new(seed).below((end - synced) as usize / 2) as u64;
        file.set_len(left).expect("it can be cut");
        server.start_again();

        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        is_whole(&store);
        let lost = answered.lost(&found, &answered.claimed).len() + answered.back(&found).len();
        println!("cut from {end} to {left} of {synced} synced: {lost} answers were lost");
        assert!(lost > 0, "the test is none if nothing is lost");
        assert_eq!(safe.lost(&found, &answered.claimed), Vec::<String>::new());
        assert_eq!(safe.back(&found), Vec::<String>::new());

        // Fences that were lost are not given out again.
        insist("it is there again", || try_put(&store, put("last")));
        let claimed = claimed(&store, 1000, Duration::from_secs(60));
        let lowest = claimed.jobs.iter().map(|job| job.receipt.fence().0).min();
        assert!(lowest > Some(answered.fence), "{lowest:?} and {}", answered.fence);
        Ok(())
    });
}
