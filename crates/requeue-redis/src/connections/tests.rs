//! Tests of the connections, with real servers.

mod cluster;
mod one_server;
mod refusals;
mod sentinels;
#[cfg(feature = "tls")]
mod tls;

use super::{CommandError, Connections, Signal};
use crate::error::RedisConnectError;
use crate::options::Options;
use crate::script::Script;
use redis::{Cmd, Value};
use requeue_testkit::block_on;
use requeue_testkit::servers::RedisServer;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

/// Returns its argument, and counts its runs in a key.
static ECHO: LazyLock<Script> = LazyLock::new(|| {
    let text = "#!lua flags=allow-oom\nredis.call('INCR', KEYS[1]) return ARGV[1]";
    Script {
        text: text.to_owned(),
        sha: redis::Script::new(text).get_hash().to_owned(),
        only_reads: false,
        adds: false,
    }
});

/// Changes its first key, and fails if the second contains no number.
static HALF: LazyLock<Script> = LazyLock::new(|| {
    let text = "#!lua\nredis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])";
    Script {
        text: text.to_owned(),
        sha: redis::Script::new(text).get_hash().to_owned(),
        only_reads: false,
        adds: false,
    }
});

/// Options with short backoffs.
fn quick() -> Options {
    Options {
        first_backoff: Duration::from_millis(5),
        longest_backoff: Duration::from_millis(50),
        ..Options::default()
    }
}

/// Returns the connections, and their signals as text: `channel payload` for a message, or
/// `resumed`.
fn open(
    url: &str,
    options: &Options,
) -> Result<(Connections, Receiver<String>), RedisConnectError> {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let on_signal = move |signal: Signal<'_>| {
        let text = match signal {
            Signal::Message { channel, payload } => {
                format!("{channel} {}", String::from_utf8_lossy(payload))
            }
            Signal::Resumed => "resumed".to_owned(),
        };
        drop(sender.lock().unwrap().send(text));
    };
    let link = block_on(Connections::open(url.parse()?, options, Box::new(on_signal)))?;
    Ok((link, receiver))
}

fn link(url: &str) -> (Connections, Receiver<String>) {
    open(url, &quick()).unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Returns the error of an attempt to connect.
fn refused(url: &str, options: &Options) -> RedisConnectError {
    match open(url, options) {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error,
    }
}

/// A command, whose keys have the tag `t`.
fn cmd(words: &[&str]) -> Cmd {
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    cmd
}

fn call(link: &Connections, words: &[&str]) -> Result<Value, CommandError> {
    block_on(link.call("t", cmd(words), None))
}

fn text(bytes: &str) -> Value {
    Value::BulkString(bytes.as_bytes().to_vec())
}

/// Runs the script [`ECHO`] on a tag.
fn echo(link: &Connections, tag: &str, word: &str) -> Result<Value, CommandError> {
    let mut cmd = ECHO.begin(&[format!("{{{tag}}}:count")]);
    cmd.arg(word);
    block_on(link.call(tag, cmd, Some(&ECHO)))
}

/// Calls until a call succeeds, and returns the errors before that.
fn until_it_works(link: &Connections) -> Vec<CommandError> {
    let mut errors = Vec::new();
    loop {
        match echo(link, "t", "again") {
            Ok(value) => {
                assert_eq!(value, text("again"));
                return errors;
            }
            Err(command_error) => errors.push(command_error),
        }
        assert!(errors.len() < 100_000, "{:?}", errors.last());
    }
}

/// Waits for the next signal.
fn next(signals: &Receiver<String>) -> String {
    signals.recv_timeout(Duration::from_secs(60)).expect("a signal arrives")
}

/// Waits for this signal, and ignores others before it.
fn message(signals: &Receiver<String>, wanted: &str) {
    while next(signals) != wanted {}
}

/// Publishes until the message arrives: the listener may be moving from one server to another.
fn published(signals: &Receiver<String>, server: &RedisServer, channel: &str, payload: &str) {
    let wanted = format!("{channel} {payload}");
    loop {
        server.command(&["PUBLISH", channel, payload]);
        if signals.recv_timeout(Duration::from_millis(100)).is_ok_and(|signal| signal == wanted) {
            return;
        }
    }
}

/// A fake server. `reply` gets the number of the connection and a line that was received on it, and
/// returns the reply. Returns the address, and the number of connections that were closed.
fn fake(reply: fn(usize, &str) -> &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, closed) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = closed.clone();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (mut stream, closed) = (stream.unwrap(), closed.clone());
            thread::spawn(move || {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for line in lines.map_while(Result::ok) {
                    match reply(number, &line) {
                        "close" => drop(stream.shutdown(Shutdown::Both)),
                        text => stream.write_all(text.as_bytes()).unwrap_or_default(),
                    }
                }
                closed.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    (address, count)
}

/// The reply to CLIENT SETINFO of servers before 7.2.
const NO_SETINFO: &str = "-ERR unknown subcommand\r\n";
