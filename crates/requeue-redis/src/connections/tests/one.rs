//! One server: it is called, and lost, and found again.

use super::*;
use requeue_jobs::limits::MAX_KINDS;
use requeue_testkit::servers::{RedisServer, until};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
fn a_server_is_called_by_its_address() {
    let server = RedisServer::start();
    let (link, _signals) = link(&server.url());
    assert_eq!(call(&link, &["SET", "{t}:a", "1"]).unwrap(), Value::Okay);
    assert_eq!(call(&link, &["GET", "{t}:a"]).unwrap(), text("1"));
    assert_eq!(server.command(&["GET", "{t}:a"]), "1");
    assert_eq!(server.command(&["GET", "{requeue}:format"]), "1");
}

#[test]
fn a_database_can_be_chosen() {
    let server = RedisServer::start();
    let (link, _signals) = link(&format!("{}/3", server.url()));
    call(&link, &["SET", "{t}:a", "1"]).unwrap();
    assert_eq!(server.command(&["-n", "3", "GET", "{t}:a"]), "1");
    assert_eq!(server.command(&["GET", "{t}:a"]), "");
}

#[test]
fn a_server_is_called_by_its_socket() {
    let server = RedisServer::with(&["--unixsocket", "socket"]);
    let socket = server.dir().join("socket");
    let (link, signals) = link(&format!("redis+unix://{}?db=2", socket.display()));
    call(&link, &["SET", "{t}:a", "1"]).unwrap();
    assert_eq!(server.command(&["-n", "2", "GET", "{t}:a"]), "1");
    link.subscribe("{t}:wake");
    assert_eq!(next(&signals), "resumed");
    server.command(&["PUBLISH", "{t}:wake", "5"]);
    assert_eq!(next(&signals), "{t}:wake 5");
}

#[test]
fn passwords_and_users_are_told() {
    let server = RedisServer::with(&["--requirepass", "s/e:c@ret"]);
    let (host, auth) = (server.address(), ["-a", "s/e:c@ret"]);
    let set = ["ACL", "SETUSER", "worker", "on", ">other", "~*", "&*", "+@all"];
    assert_eq!(server.command(&[&auth[..], &set].concat()), "OK");
    let set = ["ACL", "SETUSER", "open", "on", "nopass", "~*", "&*", "+@all"];
    assert_eq!(server.command(&[&auth[..], &set].concat()), "OK");
    for (login, user) in [(":s%2Fe:c@ret", "default"), ("worker:other", "worker"), ("open", "open")]
    {
        let (link, signals) = link(&format!("redis://{login}@{host}"));
        assert_eq!(call(&link, &["ACL", "WHOAMI"]).unwrap(), text(user));
        link.subscribe("{t}:wake");
        assert_eq!(next(&signals), "resumed");
    }
}

#[test]
fn calls_are_made_from_threads_and_from_any_runtime() {
    let server = RedisServer::start();
    let (link, _signals) = link(&server.url());
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let link = link.clone();
            thread::spawn(move || {
                for m in 0..100 {
                    let word = format!("{n} {m}");
                    assert_eq!(echo(&link, "t", &word).unwrap(), text(&word));
                }
            })
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for m in 0..100 {
            let answer = link.call("t", cmd(&["ECHO", &m.to_string()]), None).await;
            assert_eq!(answer.unwrap(), text(&m.to_string()));
        }
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(server.command(&["GET", "{t}:count"]), "800");
}

#[test]
fn a_script_that_is_not_there_is_loaded() {
    let server = RedisServer::start();
    let (link, _signals) = link(&server.url());
    assert_eq!(echo(&link, "t", "a").unwrap(), text("a"));
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(echo(&link, "t", "b").unwrap(), text("b"));
    assert_eq!(server.command(&["GET", "{t}:count"]), "2");
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let mut server = RedisServer::start();
    let (link, signals) = link(&server.url());
    link.subscribe("{t}:wake");
    assert_eq!(next(&signals), "resumed");
    echo(&link, "t", "a").unwrap();
    server.kill();
    let port = server.port().to_string();
    match echo(&link, "t", "b").unwrap_err() {
        // If the end of the connection had been noticed.
        CommandError::NotDone(reason) => assert!(reason.contains(&port), "{reason}"),
        CommandError::Unknown(reason) => assert!(reason.contains(&port), "{reason}"),
    }
    server.start_again();
    until_it_works(&link);
    message(&signals, "resumed");
    published(&signals, &server, "{t}:wake", "7");
    // What it knew is gone, and it is told again.
    assert_eq!(server.command(&["GET", "{requeue}:format"]), "1");
}

#[test]
fn without_a_server_a_call_is_not_done_and_says_why() {
    let mut server = RedisServer::start();
    let mut options = quick();
    options.connect_timeout = Duration::from_millis(200);
    let (link, _signals) = open(&server.url(), &options).unwrap();
    echo(&link, "t", "a").unwrap();
    server.kill();
    drop(echo(&link, "t", "b"));
    let Err(CommandError::NotDone(reason)) = echo(&link, "t", "c") else { panic!("it was sent") };
    let told = format!("{} is not available: ", server.address());
    assert!(reason.starts_with(&told), "{reason}");
    assert!(reason.contains("refused"), "{reason}");
}

#[test]
fn a_cut_connection_is_replaced() {
    let server = RedisServer::start();
    let (link, signals) = link(&server.url());
    link.subscribe("{t}:wake");
    assert_eq!(next(&signals), "resumed");
    for round in 1..=3 {
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        until_it_works(&link);
        message(&signals, "resumed");
        published(&signals, &server, "{t}:wake", &round.to_string());
    }
}

#[test]
fn a_call_that_is_cut_while_it_runs_may_have_been_done() {
    let server = RedisServer::start();
    let (link, _signals) = link(&server.url());
    let waiting = {
        let link = link.clone();
        thread::spawn(move || call(&link, &["BLPOP", "{t}:list", "0"]))
    };
    until("it is there", || server.command(&["CLIENT", "LIST"]).contains("cmd=blpop"));
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let command_error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(command_error, CommandError::Unknown(_)), "{command_error:?}");
    until_it_works(&link);
}

#[test]
fn what_does_not_answer_in_time_may_have_been_done_and_is_left() {
    let server = RedisServer::start();
    let mut options = quick();
    options.answer_timeout = Duration::from_millis(300);
    options.connect_timeout = Duration::from_millis(300);
    let (link, _signals) = open(&server.url(), &options).unwrap();
    echo(&link, "t", "a").unwrap();
    server.freeze();
    let command_error = echo(&link, "t", "b").unwrap_err();
    assert!(
        matches!(&command_error, CommandError::Unknown(reason) if reason.contains("timed out")),
        "{command_error:?}"
    );
    // The connection was left, and there is no other one.
    let command_error = echo(&link, "t", "c").unwrap_err();
    assert!(
        matches!(&command_error, CommandError::NotDone(reason) if reason.contains("no answer")),
        "{command_error:?}"
    );
    server.thaw();
    until_it_works(&link);
    // The first and the last for certain, the second perhaps, the third not.
    let count = server.command(&["GET", "{t}:count"]);
    assert!(["2", "3"].contains(&&*count), "{count}");
}

#[test]
fn what_the_server_refuses_is_not_done() {
    let server = RedisServer::start();
    let (link, _signals) = link(&server.url());
    echo(&link, "t", "a").unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let command_error = call(&link, &["SET", "{t}:a", "1"]).unwrap_err();
    assert!(
        matches!(&command_error, CommandError::NotDone(reason) if reason.contains("OOM")),
        "{command_error:?}"
    );
    let mut half = HALF.begin(&["{t}:count".to_owned(), "{t}:a".to_owned()]);
    half.arg("x");
    let command_error = block_on(link.call("t", half, Some(&HALF))).unwrap_err();
    assert!(
        matches!(&command_error, CommandError::NotDone(reason) if reason.contains("OOM")),
        "{command_error:?}"
    );
    // What may be done when memory is full is, and over a new connection too.
    echo(&link, "t", "b").unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    until_it_works(&link);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let command_error = call(&link, &["SET", "{t}:a", "1"]).unwrap_err();
    assert!(
        matches!(&command_error, CommandError::NotDone(reason) if reason.contains("NOREPLICAS")),
        "{command_error:?}"
    );
}

#[test]
fn a_script_that_fails_in_the_middle_may_have_done_something() {
    let server = RedisServer::start();
    let (link, _signals) = link(&server.url());
    server.command(&["SET", "{t}:word", "none"]);
    let half = HALF.begin(&["{t}:count".to_owned(), "{t}:word".to_owned()]);
    let command_error = block_on(link.call("t", half, Some(&HALF))).unwrap_err();
    assert!(matches!(command_error, CommandError::Unknown(_)), "{command_error:?}");
    assert_eq!(server.command(&["GET", "{t}:count"]), "1");
}

#[test]
fn a_master_that_becomes_a_replica_is_left() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let mut options = quick();
    options.connect_timeout = Duration::from_millis(500);
    let (link, signals) = open(&server.url(), &options).unwrap();
    echo(&link, "t", "a").unwrap();
    link.subscribe("{t}:wake");
    assert_eq!(next(&signals), "resumed");
    let port = other.port().to_string();
    server.command(&["REPLICAOF", "127.0.0.1", &port]);
    let command_error = echo(&link, "t", "b").unwrap_err();
    assert!(
        matches!(&command_error, CommandError::NotDone(reason) if reason.contains("READONLY")),
        "{command_error:?}"
    );
    let Err(CommandError::NotDone(reason)) = echo(&link, "t", "c") else { panic!("it was sent") };
    assert!(reason.contains(&format!("it is a replica of 127.0.0.1:{port}")), "{reason}");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    until_it_works(&link);
    // What was published elsewhere in between was missed.
    assert_eq!(next(&signals), "resumed");
}

#[test]
fn a_server_that_nobody_calls_is_checked_too() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let options = Options { answer_timeout: Duration::from_millis(100), ..quick() };
    let (_link, _signals) = open(&server.url(), &options).unwrap();
    let clients = |kind| server.command(&["CLIENT", "LIST", "TYPE", kind]).lines().count();
    // It and the one who asks.
    assert_eq!(clients("normal"), 2);
    let first = server.command(&["CLIENT", "LIST", "TYPE", "normal"]);
    let id = first.split(' ').next().unwrap().to_owned();
    server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    until("it is left", || {
        let clients = server.command(&["CLIENT", "LIST", "TYPE", "normal"]);
        clients.lines().all(|client| client.split(' ').next() != Some(&id))
    });
}

#[test]
fn messages_come_from_every_channel_that_is_wanted() {
    let server = RedisServer::start();
    let (link, signals) = link(&server.url());
    // Who wants none has no connection for them.
    echo(&link, "t", "a").unwrap();
    assert!(!server.command(&["CLIENT", "LIST"]).contains("flags=P"));
    // Before each is listened to, something may have been missed.
    for n in 0..2 {
        link.subscribe(&format!("{{k{n}}}:wake"));
        assert_eq!(next(&signals), "resumed");
    }
    for n in 0..50 {
        link.subscribe(&format!("{{k{n}}}:wake"));
        link.subscribe(&format!("{{k{n}}}:wake"));
    }
    until("all are", || server.command(&["PUBSUB", "CHANNELS"]).lines().count() == 50);
    server.command(&["PUBLISH", "{k0}:wake", "1"]);
    server.command(&["PUBLISH", "{other}:wake", "2"]);
    server.command(&["PUBLISH", "{k49}:wake", "3"]);
    let mut messages = Vec::new();
    while messages.len() < 2 {
        messages.push(next(&signals));
        messages.retain(|message| message != "resumed");
    }
    assert_eq!(messages, ["{k0}:wake 1", "{k49}:wake 3"]);
}

#[test]
fn nothing_is_left_of_a_link_that_is_dropped() {
    /// StoredJob when what has it is gone.
    struct Gone(Arc<AtomicBool>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let server = RedisServer::start();
    for round in 0..50 {
        let gone = Arc::new(AtomicBool::new(false));
        let sentinel = Gone(gone.clone());
        let (sender, signals) = channel();
        let sender = Mutex::new(sender);
        let tell = move |_: Signal<'_>| {
            let _held = &sentinel;
            sender.lock().unwrap().send(()).expect("the test is there");
        };
        let address = server.url().parse().unwrap();
        let link = block_on(Connections::open(address, &quick(), Box::new(tell))).unwrap();
        if round % 2 == 0 {
            echo(&link, "t", "a").unwrap();
            link.subscribe("{t}:wake");
            signals.recv().unwrap();
        }
        if round % 4 == 0 {
            // One that would wait for ever goes too.
            let stuck = link.clone();
            let handle = link.shared.handle.clone();
            drop(handle.spawn(async move {
                let target = stuck.shared.target.clone();
                drop(stuck);
                target.call(0, &cmd(&["BLPOP", "{t}:list", "0"]), None).await
            }));
        }
        if round % 3 == 0 {
            // Inside of a runtime nothing may wait.
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async move { drop(link) });
        } else {
            drop(link);
        }
        // The runtime had it, on its thread: both are gone.
        until("the thread ends", || gone.load(Ordering::SeqCst));
    }
    until("all connections are closed", || {
        server.command(&["CLIENT", "LIST"]).lines().count() == 1
    });
}

#[test]
fn a_server_that_hangs_up_while_it_is_asked_is_not_available() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let fake = thread::spawn(move || {
        let mut streams = listener.incoming();
        let mut stream = streams.next().unwrap().unwrap();
        let mut buffer = [0; 4096];
        assert!(stream.read(&mut buffer).unwrap() > 0);
        stream.write_all(b"-ERR go away\r\n").unwrap();
    });
    let error = refused(&url, &quick());
    assert!(matches!(error, RedisConnectError::Unavailable { .. }), "{error}");
    fake.join().unwrap();
}

#[test]
fn ever_new_channels_are_not_subscribed_for_ever() {
    let server = RedisServer::start();
    let (link, signals) = link(&server.url());
    for number in 0..MAX_KINDS + 10 {
        link.subscribe(&format!("{{t:{number}}}:wake"));
    }
    let last = format!("{{t:{}}}:wake", MAX_KINDS - 1);
    published(&signals, &server, &last, "1");
    let channels = server.command(&["PUBSUB", "CHANNELS"]);
    assert_eq!(channels.lines().count(), MAX_KINDS);
}
