//! Redis is killed under load and restarted.
//!
//! With `appendfsync always`, no confirmed write is lost. With `everysec`, the last second or two may
//! be lost. A killed process has written all that it confirmed; only a crash of the machine loses
//! what was not synced. So the test truncates the file as such a crash would.

use crate::support::{as_stores, claimed, clients, ids, insist, is_whole, put, try_put};
use requeue_testkit::servers::RedisServer;
use requeue_testkit::{Concurrent, Load, Random, check_seeds};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Redis documents for `everysec`: it syncs every second, and waits one more if the disk is slow.
const SYNCED: Duration = Duration::from_secs(2);

/// A server with an append-only file, which is never rewritten, so that it can be truncated.
fn with_log(sync: &str) -> RedisServer {
    let arguments = ["--appendonly", "yes", "--appendfsync", sync];
    RedisServer::with(&[&arguments[..], &["--auto-aof-rewrite-percentage", "0"]].concat())
}

fn log_file(server: &RedisServer) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir"))
        .expect("the server has an append-only file")
        .flatten();
    let mut files = files.map(|file| file.path());
    files
        .find(|file| file.to_string_lossy().ends_with(".incr.aof"))
        .expect("the server has an append-only file")
}

#[test]
fn with_always_a_killed_server_loses_no_confirmed_write() {
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
fn with_always_no_part_of_a_confirmed_batch_is_lost() {
    check_seeds(&[], "REQUEUE_KILLS", 2, |seed| {
        let mut server = with_log("always");
        let store = clients(&server.url(), 1).remove(0);
        let more = Random::new(seed).below(2000);
        let (confirmed, ()) = Load::run(&store, seed, |load| {
            load.reaches(100 + more);
            server.kill();
        });
        server.start_again();
        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        is_whole(&store);
        println!(
            "{} put, {} acked, {} found",
            confirmed.put.len(),
            confirmed.acked.len(),
            found.len()
        );
        assert_eq!(confirmed.lost(&found, &confirmed.claimed), Vec::<String>::new());
        assert_eq!(confirmed.back(&found), Vec::<String>::new());
        Ok(())
    });
}

#[test]
fn with_everysec_at_most_two_seconds_are_lost_and_no_change_partially() {
    check_seeds(&[], "REQUEUE_KILLS", 2, |seed| {
        let mut server = with_log("everysec");
        let store = clients(&server.url(), 1).remove(0);
        let (confirmed, (safe, synced)) = Load::run(&store, seed, |load| {
            load.reaches(500);
            let safe = load.confirmed();
            thread::sleep(SYNCED);
            let synced =
                fs::metadata(log_file(&server)).expect("the server has an append-only file").len();
            load.reaches(500);
            server.kill();
            (safe, synced)
        });
        let file =
            File::options().write(true).open(log_file(&server)).expect("the file is writable");
        let end = file.metadata().expect("the file is readable").len();
        // In the first half of the unsynced part, so that something is lost.
        let left = synced + Random::new(seed).below((end - synced) as usize / 2) as u64;
        file.set_len(left).expect("the file can be truncated");
        server.start_again();

        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        is_whole(&store);
        let lost = confirmed.lost(&found, &confirmed.claimed).len() + confirmed.back(&found).len();
        println!("truncated from {end} to {left} bytes, {synced} synced: {lost} writes lost");
        assert!(lost > 0, "the test checks nothing unless writes are lost");
        assert_eq!(safe.lost(&found, &confirmed.claimed), Vec::<String>::new());
        assert_eq!(safe.back(&found), Vec::<String>::new());

        // Lost fences are not used again.
        insist("the server is up again", || try_put(&store, put("last")));
        let claimed = claimed(&store, 1000, Duration::from_secs(60));
        let lowest = claimed.jobs.iter().map(|job| job.receipt.fence().0).min();
        assert!(lowest > Some(confirmed.fence), "{lowest:?} and {}", confirmed.fence);
        Ok(())
    });
}
