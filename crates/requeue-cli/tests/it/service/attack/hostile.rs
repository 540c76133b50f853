//! Clients that are slow, idle or hostile. None of them may affect the others.

use super::Attack;
use super::clients::BIG;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const CLAIMED_LEN: usize = 31 << 20;
/// Longer than the server's limits for slow clients in most runs.
const PATIENCE: Duration = Duration::from_secs(30);
const IDLE: usize = 100;

/// Repeats an attack on a new connection until the run is over. Connections fail while the server is
/// restarted, and the server closes many of them.
fn repeat(attack: &Attack, mut attempt: impl FnMut(TcpStream) -> std::io::Result<()>) {
    while attack.is_running() {
        if let Ok(stream) = TcpStream::connect(&attack.address) {
            stream.set_read_timeout(Some(PATIENCE)).expect("a valid timeout");
            stream.set_write_timeout(Some(PATIENCE)).expect("a valid timeout");
            // The server may close it at any time.
            let _ = attempt(stream);
        }
        attack.pause(Duration::from_millis(100));
    }
}

fn head(path: &str, len: usize) -> String {
    let fixed = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    format!("POST {path} {fixed}\r\ncontent-length: {len}\r\n\r\n")
}

/// Announces large requests. Half of them send a few bytes at a time, the others send spaces quickly
/// and then nothing.
pub(super) fn send_slowly(attack: &Attack, number: usize) {
    repeat(attack, |mut stream| {
        stream.write_all(head("/v1/put", CLAIMED_LEN).as_bytes())?;
        if number.is_multiple_of(2) {
            let spaces = vec![b' '; CLAIMED_LEN - 1];
            stream.write_all(&spaces)?;
        }
        while attack.is_running() {
            stream.write_all(b" ")?;
            attack.pause(Duration::from_millis(500));
        }
        Ok(())
    });
}

/// Asks for as many large jobs as possible, by claims and lists in turn, and reads a byte at a time.
pub(super) fn read_slowly(attack: &Attack, number: usize) {
    repeat(attack, |mut stream| {
        let request = if number.is_multiple_of(2) {
            let lease = r#""lease": "5s", "max": 1000, "worker": "slow""#;
            let body = format!(r#"{{"kinds": ["{BIG}"], {lease}}}"#);
            head("/v1/claim", body.len()) + &body
        } else {
            format!("GET /v1/kinds/{BIG}/jobs?limit=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        };
        stream.write_all(request.as_bytes())?;
        while attack.is_running() {
            stream.read_exact(&mut [0])?;
            attack.pause(Duration::from_millis(500));
        }
        Ok(())
    });
}

/// Opens connections and sends nothing.
pub(super) fn stay_idle(attack: &Attack) {
    while attack.is_running() {
        let connect = |_| TcpStream::connect(&attack.address).ok();
        let _idle: Vec<TcpStream> = (0..IDLE).filter_map(connect).collect();
        attack.pause(PATIENCE);
    }
}

/// Sends requests with millions of empty entries, which must be rejected.
pub(super) fn send_many_entries(attack: &Attack) {
    let mut body = br#"{"jobs":[{}"#.to_vec();
    while body.len() < CLAIMED_LEN {
        body.extend_from_slice(b",{}");
    }
    body.extend_from_slice(b"]}");
    repeat(attack, |mut stream| {
        stream.write_all(head("/v1/put", body.len()).as_bytes())?;
        // The server may respond before it has read everything.
        let sent = stream.write_all(&body);
        let mut status = [0; 12];
        match stream.read_exact(&mut status) {
            Ok(()) if status.starts_with(b"HTTP/1.1 4") || &status[9..] == b"503" => {}
            Ok(()) => {
                let status = String::from_utf8_lossy(&status);
                attack.records.violation(format!("millions of entries: {status}"));
            }
            // The connection was reset after the response, or the server was killed.
            Err(_) => {}
        }
        attack.pause(Duration::from_secs(5));
        sent
    });
}
