//! The example of two machines: all orders are closed, though a worker is killed.

use requeue_testkit::example;
use requeue_testkit::servers::RedisServer;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> (Output, String) {
    let ran = Command::new(example("requeue-redis", "two_machines"))
        .args(arguments)
        .output()
        .expect("it starts");
    let said = [&ran.stdout[..], &ran.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    println!("{said}");
    (ran, said)
}

#[test]
fn all_orders_are_closed_though_a_worker_is_killed() {
    let server = RedisServer::start();
    for arguments in [&["--store", &server.url(), "1"][..], &["1"]] {
        let (ran, said) = run(arguments);
        assert!(ran.status.success());
        let count = |what: &str| said.lines().filter(|line| line.contains(what)).count();
        assert_eq!(count("worker-1 is killed in the middle of it"), 1);
        assert_eq!(count("order-1 is closed"), 0, "it was paid");
        for number in 2..=12 {
            assert!(count(&format!("order-{number} is closed")) > 0, "order-{number}");
        }
        assert!(count("worker-2: order-") > 0 && count("is being closed, attempt 2") > 0);
        assert_eq!(count("started a redis-server"), usize::from(arguments.len() == 1));
    }
}

#[test]
fn who_asks_wrongly_is_told_what_is_wrong() {
    for (arguments, code, told) in [
        (&["--help"][..], 0, "usage: two_machines"),
        (&["soon"], 2, "\"soon\" is no number of seconds"),
        (&["0"], 2, "\"0\" is no number of seconds"),
        (&["--store"], 2, "--store URL needs a value"),
        (&["--store", "http://here"], 1, "invalid Redis URL"),
        (&["--store", "redis://127.0.0.1:1"], 1, "127.0.0.1:1 is not available"),
    ] {
        let (ran, said) = run(arguments);
        assert_eq!(ran.status.code(), Some(code), "{said}");
        assert!(said.contains(told), "{said}");
    }
}
