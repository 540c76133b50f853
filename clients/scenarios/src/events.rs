//! What the server did, as `GET /v1/events` reports it.

use serde_json::Value;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// Collects the events of a server until it ends.
pub(crate) struct ServerEvents {
    events: Arc<Mutex<Vec<Value>>>,
    reader: JoinHandle<()>,
}

impl ServerEvents {
    /// Returns when the server has begun to stream.
    pub(crate) fn of(server: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(server)?;
        write!(stream, "GET /v1/events HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
        let mut lines = BufReader::new(stream).lines();
        for line in lines.by_ref() {
            if line?.is_empty() {
                break;
            }
        }
        let events = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&events);
        let reader = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(event) = line.strip_prefix("data: ")
                    && let Ok(event) = serde_json::from_str(event)
                {
                    collected.lock().expect("no thread panics").push(event);
                }
            }
        });
        Ok(ServerEvents { events, reader })
    }

    /// Returns the events so far.
    pub(crate) fn so_far(&self) -> Vec<Value> {
        self.events.lock().expect("no thread panics").clone()
    }

    /// Returns the events when the stream has ended with its server.
    pub(crate) fn all(self) -> Vec<Value> {
        drop(self.reader.join());
        std::mem::take(&mut *self.events.lock().expect("no thread panics"))
    }
}

/// Returns the events of one job as text. Several extensions in a row are one.
pub(crate) fn of_job(events: &[Value], id: &str) -> Vec<String> {
    let text = |event: &Value| {
        let name = event["event"].as_str().unwrap_or_default();
        match event["worker"].as_str() {
            Some(worker) => format!("{name} {worker}"),
            None => name.to_owned(),
        }
    };
    let mut texts: Vec<_> = events.iter().filter(|event| event["id"] == *id).map(text).collect();
    texts.dedup_by(|second, first| first == second && first.starts_with("extended"));
    texts
}
