//! The example `two_machines`: all orders are closed although a worker is killed.

use requeue_testkit::example;
use requeue_testkit::servers::RedisServer;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> (Output, String) {
    let example = example("requeue-redis", "two_machines");
    let ran = Command::new(example).args(arguments).output().expect("the example starts");
    let output = [&ran.stdout[..], &ran.stderr].concat();
    let output = String::from_utf8_lossy(&output).into_owned();
    println!("{output}");
    (ran, output)
}

#[test]
fn all_orders_are_closed_although_a_worker_is_killed() {
    let server = RedisServer::start();
    for arguments in [&["--store", &server.url(), "1"][..], &["1"]] {
        let (ran, output) = run(arguments);
        assert!(ran.status.success());
        let count = |text: &str| output.lines().filter(|line| line.contains(text)).count();
        assert_eq!(count("worker-1 is killed while it closes an order"), 1);
        assert_eq!(count("order-1 is closed"), 0, "order-1 was paid");
        for number in 2..=12 {
            assert!(count(&format!("order-{number} is closed")) > 0, "order-{number}");
        }
        assert!(count("worker-2: order-") > 0 && count("is being closed, attempt 2") > 0);
        assert_eq!(count("started a redis-server"), usize::from(arguments.len() == 1));
    }
}

#[test]
fn invalid_arguments_are_reported() {
    for (arguments, code, expected) in [
        (&["--help"][..], 0, "usage: two_machines"),
        (&["soon"], 2, "\"soon\" is not a number of seconds"),
        (&["0"], 2, "\"0\" is not a number of seconds"),
        (&["--store"], 2, "--store URL needs a value"),
        (&["--store", "http://here"], 1, "invalid Redis URL"),
        (&["--store", "redis://127.0.0.1:1"], 1, "127.0.0.1:1 is not available"),
    ] {
        let (ran, output) = run(arguments);
        assert_eq!(ran.status.code(), Some(code), "{output}");
        assert!(output.contains(expected), "{output}");
    }
}
