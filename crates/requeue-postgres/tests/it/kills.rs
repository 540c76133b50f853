//! Postgres is killed under load and restarted. No confirmed write is lost, and fences and generations rise.

use crate::support::{LONG, as_stores, claimed, clients, ids, insist, is_whole, put, try_put};
use requeue_testkit::servers::{PostgresServer, PostgresVersion, until};
use requeue_testkit::{Concurrent, Load, Random, check_seeds};
use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn concurrent_clients_see_the_guarantees_although_the_server_is_killed() {
    check_seeds(&[], "REQUEUE_KILLS", 1, |seed| {
        let version = &PostgresVersion::all()[seed as usize % 2];
        let mut server = PostgresServer::with(version, &[]);
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
fn a_killed_server_loses_no_confirmed_write() {
    check_seeds(&[], "REQUEUE_KILLS", 1, |seed| {
        let version = &PostgresVersion::all()[(seed as usize + 1) % 2];
        let mut server = PostgresServer::with(version, &[]);
        let store = clients(&server.url(), 1).remove(0);
        let more = Random::new(seed).below(500);
        let (confirmed, ()) = Load::run(&store, seed, |load| {
            load.reaches(100 + more);
            server.kill();
        });
        server.start_again();
        let found: BTreeSet<String> = ids(&store).into_iter().collect();
        is_whole(&store);
        assert_eq!(confirmed.lost(&found, &confirmed.claimed), Vec::<String>::new());
        assert_eq!(confirmed.back(&found), Vec::<String>::new());
        let last = insist("the server is up again", || try_put(&store, put("last")));
        assert!(last.generation.0 > confirmed.generation);
        let lowest = claimed(&store, 1000, LONG).jobs.iter().map(|job| job.receipt.fence().0).min();
        assert!(lowest > Some(confirmed.fence), "{lowest:?} and {}", confirmed.fence);
        Ok(())
    });
}

/// If one process of a server crashes, the server restarts the others without restarting itself. With
/// `synchronous_commit=off`, that loses the latest transactions, and with them the numbers that they took.
#[test]
fn numbers_that_a_crash_has_lost_are_not_used_again() {
    let lazy = ["synchronous_commit=off", "wal_writer_delay=10s", "full_page_writes=off"];
    let lazy: Vec<_> = lazy.iter().flat_map(|setting| ["-c", setting]).collect();
    for version in PostgresVersion::all() {
        let server = PostgresServer::with(&version, &lazy);
        let store = clients(&server.url(), 1).remove(0);
        let (mut generation, mut fence, mut losses) = (0, 0, 0);
        // The server writes whole pages of its log. A transaction that begins a page is not lost.
        for round in 0.. {
            // The next number is written to the log.
            server.query("checkpoint");
            let id = format!("job-{round}");
            let placed = insist("the server is up", || try_put(&store, put(&id)));
            assert!(placed.generation.0 > generation, "{} after {generation}", placed.generation.0);
            let job = claimed(&store, 1, LONG).jobs.remove(0);
            let next = job.receipt.fence().0;
            assert!(next > fence, "{next} after {fence}");
            (generation, fence) = (placed.generation.0, next);
            if losses == 3 {
                break;
            }
            let of_client = "select pid from pg_stat_activity where application_name = 'requeue'";
            let pid = server.query(of_client).lines().next().expect("a process").to_owned();
            let killed = Command::new("kill").args(["-9", &pid]).status().expect("there is kill");
            assert!(killed.success());
            until("the server has recovered", || {
                server.log().matches("ready to accept").count() == round + 2
            });
            losses += usize::from(!ids(&store).contains(&id));
            is_whole(&store);
            assert!(round < 30, "nothing is lost");
        }
    }
}
