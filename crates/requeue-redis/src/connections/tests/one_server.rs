//! Connections to one server: calls, failures and reconnects.

use super::*;
use requeue_jobs::limits::MAX_KINDS;
use requeue_testkit::servers::{RedisServer, until};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[test]
fn calls_go_over_tcp() {
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
fn calls_go_over_a_unix_socket() {
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
fn users_and_passwords_are_sent() {
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
            let reply = link.call("t", cmd(&["ECHO", &m.to_string()]), None).await;
            assert_eq!(reply.unwrap(), text(&m.to_string()));
        }
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(server.command(&["GET", "{t}:count"]), "800");
}

#[test]
fn a_missing_script_is_loaded() {
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
        // If the end of the connection was noticed before the call.
        CommandError::NotDone(reason) => assert!(reason.contains(&port), "{reason}"),
        CommandError::Unknown(reason) => assert!(reason.contains(&port), "{reason}"),
    }
    server.start_again();
    until_it_works(&link);
    message(&signals, "resumed");
    published(&signals, &server, "{t}:wake", "7");
    // The server has lost its data, and the format is written again.
    assert_eq!(server.command(&["GET", "{requeue}:format"]), "1");
}

#[test]
fn without_a_server_a_call_fails_as_not_done_with_the_reason() {
    let mut server = RedisServer::start();
    let mut options = quick();
    options.connect_timeout = Duration::from_millis(200);
    let (link, _signals) = open(&server.url(), &options).unwrap();
    echo(&link, "t", "a").unwrap();
    server.kill();
    drop(echo(&link, "t", "b"));
    let Err(CommandError::NotDone(reason)) = echo(&link, "t", "c") else {
        panic!("the call was sent")
    };
    let expected = format!("{} is not available: ", server.address());
    assert!(reason.starts_with(&expected), "{reason}");
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
    until("the call has arrived", || server.command(&["CLIENT", "LIST"]).contains("cmd=blpop"));
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let command_error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(command_error, CommandError::Unknown(_)), "{command_error:?}");
    until_it_works(&link);
}

#[test]
fn a_call_that_times_out_is_unknown_and_its_connection_is_closed() {
    let server = RedisServer::start();
    let mut options = quick();
    options.response_timeout = Duration::from_millis(300);
    options.connect_timeout = Duration::from_millis(300);
    let (link, _signals) = open(&server.url(), &options).unwrap();
    echo(&link, "t", "a").unwrap();
    server.freeze();
    let command_error = echo(&link, "t", "b").unwrap_err();
    assert!(
        matches!(&command_error, CommandError::Unknown(reason) if reason.contains("timed out")),
        "{command_error:?}"
    );
    // The connection was closed, and there is no other one.
    let command_error = echo(&link, "t", "c").unwrap_err();
    assert!(
        matches!(&command_error, CommandError::NotDone(reason) if reason.contains("no reply")),
        "{command_error:?}"
    );
    server.thaw();
    until_it_works(&link);
    // The first and the last call ran, the second may have run, the third did not.
    let count = server.command(&["GET", "{t}:count"]);
    assert!(["2", "3"].contains(&&*count), "{count}");
}

#[test]
fn a_call_that_the_server_rejects_is_not_done() {
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
    // Scripts that are allowed when memory is full still run, also over a new connection.
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
fn a_script_that_fails_in_the_middle_has_an_unknown_outcome() {
    let server = RedisServer::start();
    let (link, _signals) = link(&server.url());
    server.command(&["SET", "{t}:word", "none"]);
    let half = HALF.begin(&["{t}:count".to_owned(), "{t}:word".to_owned()]);
    let command_error = block_on(link.call("t", half, Some(&HALF))).unwrap_err();
    assert!(matches!(command_error, CommandError::Unknown(_)), "{command_error:?}");
    assert_eq!(server.command(&["GET", "{t}:count"]), "1");
}

#[test]
fn a_master_that_becomes_a_replica_is_no_longer_used() {
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
    let Err(CommandError::NotDone(reason)) = echo(&link, "t", "c") else {
        panic!("the call was sent")
    };
    assert!(reason.contains(&format!("it is a replica of 127.0.0.1:{port}")), "{reason}");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    until_it_works(&link);
    // Messages that were published elsewhere in between were missed.
    assert_eq!(next(&signals), "resumed");
}

#[test]
fn an_idle_server_is_checked_too() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let options = Options { response_timeout: Duration::from_millis(100), ..quick() };
    let (_link, _signals) = open(&server.url(), &options).unwrap();
    let clients = |kind| server.command(&["CLIENT", "LIST", "TYPE", kind]).lines().count();
    // The connection, and that of this command.
    assert_eq!(clients("normal"), 2);
    let first = server.command(&["CLIENT", "LIST", "TYPE", "normal"]);
    let id = first.split(' ').next().unwrap().to_owned();
    server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    until("the connection is closed", || {
        let clients = server.command(&["CLIENT", "LIST", "TYPE", "normal"]);
        clients.lines().all(|client| client.split(' ').next() != Some(&id))
    });
}

#[test]
fn messages_arrive_from_all_subscribed_channels() {
    let server = RedisServer::start();
    let (link, signals) = link(&server.url());
    // Without a subscription there is no pub/sub connection.
    echo(&link, "t", "a").unwrap();
    assert!(!server.command(&["CLIENT", "LIST"]).contains("flags=P"));
    // Messages before a subscription may have been missed, so each one is signalled.
    for n in 0..2 {
        link.subscribe(&format!("{{k{n}}}:wake"));
        assert_eq!(next(&signals), "resumed");
    }
    for n in 0..50 {
        link.subscribe(&format!("{{k{n}}}:wake"));
        link.subscribe(&format!("{{k{n}}}:wake"));
    }
    until("all channels are subscribed", || {
        server.command(&["PUBSUB", "CHANNELS"]).lines().count() == 50
    });
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
fn dropping_the_connections_ends_the_thread_and_closes_them() {
    /// Records when its owner is dropped.
    struct DropFlag(Arc<AtomicBool>);
    impl Drop for DropFlag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let server = RedisServer::start();
    for round in 0..50 {
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = DropFlag(dropped.clone());
        let (sender, signals) = channel();
        let sender = Mutex::new(sender);
        let on_signal = move |_: Signal<'_>| {
            let _held = &flag;
            sender.lock().unwrap().send(()).expect("the test still runs");
        };
        let address = server.url().parse().unwrap();
        let link = block_on(Connections::open(address, &quick(), Box::new(on_signal))).unwrap();
        if round % 2 == 0 {
            echo(&link, "t", "a").unwrap();
            link.subscribe("{t}:wake");
            signals.recv().unwrap();
        }
        if round % 4 == 0 {
            // A call that would wait forever ends too.
            let stuck = link.clone();
            let handle = link.shared.handle.clone();
            drop(handle.spawn(async move {
                let target = stuck.shared.target.clone();
                drop(stuck);
                target.call(0, &cmd(&["BLPOP", "{t}:list", "0"]), None).await
            }));
        }
        if round % 3 == 0 {
            // Inside a runtime, the drop must not block.
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async move { drop(link) });
        } else {
            drop(link);
        }
        // The task of the runtime owns the flag: the runtime and its thread have ended.
        until("the thread ends", || dropped.load(Ordering::SeqCst));
    }
    until("all connections are closed", || {
        server.command(&["CLIENT", "LIST"]).lines().count() == 1
    });
}

#[test]
fn a_server_that_closes_the_connection_during_the_handshake_is_unavailable() {
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
fn the_number_of_subscribed_channels_is_limited() {
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

#[test]
fn the_connections_can_run_on_the_runtime_of_the_caller() {
    let server = RedisServer::start();
    let options = Options { use_current_runtime: true, ..quick() };
    let error = open(&server.url(), &options).map(drop).expect_err("this thread has no runtime");
    assert!(error.to_string().contains("use_current_runtime needs a tokio runtime"), "{error}");

    let (runtime, end) = crate::connections::start().unwrap();
    let _entered = runtime.enter();
    let (link, signals) = open(&server.url(), &options).unwrap();
    call(&link, &["SET", "{t}:a", "1"]).unwrap();
    link.subscribe("{t}:wake");
    assert_eq!(next(&signals), "resumed");
    let clients = || server.command(&["CLIENT", "LIST"]).lines().count();
    // The server may still count clients that have gone.
    until("connections for calls, for messages, and this one", || clients() == 3);
    drop(link);
    until("the connections are closed", || clients() == 1);

    let (link, _signals) = open(&server.url(), &options).unwrap();
    drop(end);
    until("the runtime has ended", || call(&link, &["GET", "{t}:a"]).is_err());
}
