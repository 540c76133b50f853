//! A receiver of webhooks that does what a test tells it to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request, as it was received.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    /// `POST /path HTTP/1.1`
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Recorded {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// What a receiver does with a request.
pub(crate) enum Action {
    /// Responds with this status line, header lines and body.
    Respond(&'static str, Vec<u8>),
    /// Writes these bytes, and closes the connection.
    Write(Vec<u8>),
    /// Writes these bytes, and then nothing.
    Stall(Vec<u8>),
}

pub(crate) fn ok() -> Action {
    Action::Respond("200 OK", Vec::new())
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

type Script = Box<dyn Fn(usize, &Recorded) -> Action + Send + Sync>;

struct Shared {
    requests: Mutex<Vec<Recorded>>,
    connections: AtomicUsize,
    stalled: AtomicUsize,
    script: Script,
}

impl Receiver {
    /// Starts a receiver on 127.0.0.1. `script` gets the number of a request, beginning with 0.
    pub(crate) async fn start(
        script: impl Fn(usize, &Recorded) -> Action + Send + Sync + 'static,
    ) -> Self {
        Receiver::start_on("127.0.0.1:0", script).await
    }

    pub(crate) async fn start_on(
        address: &str,
        script: impl Fn(usize, &Recorded) -> Action + Send + Sync + 'static,
    ) -> Self {
        Receiver::start_with(address, None, script).await
    }

    pub(crate) async fn start_with(
        address: &str,
        tls: Option<tokio_rustls::TlsAcceptor>,
        script: impl Fn(usize, &Recorded) -> Action + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            stalled: AtomicUsize::new(0),
            script: Box::new(script),
        });
        let all = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            // Dropping the receiver drops this, which closes the connections.
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                all.connections.fetch_add(1, Ordering::SeqCst);
                let (shared, tls) = (Arc::clone(&all), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => drop(serve(stream, &shared).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                drop(serve(stream, &shared).await);
                            }
                        }
                    }
                });
            }
        });
        Receiver { address, shared, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hooks?tenant=7", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.shared.requests.lock().unwrap().len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of connections that are stalled, and that the sender has not closed.
    pub(crate) fn stalled(&self) -> usize {
        self.shared.stalled.load(Ordering::SeqCst)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await? {
        let number = {
            let mut requests = shared.requests.lock().unwrap();
            requests.push(request.clone());
            requests.len() - 1
        };
        match (shared.script)(number, &request) {
            Action::Respond(head, body) => {
                let head = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(&[head.as_bytes(), &body].concat()).await?;
            }
            Action::Write(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Action::Stall(bytes) => {
                stream.write_all(&bytes).await?;
                stream.flush().await?;
                shared.stalled.fetch_add(1, Ordering::SeqCst);
                // Until the sender closes the connection.
                while stream.read_buf(&mut buffer).await.is_ok_and(|len| len > 0) {}
                shared.stalled.fetch_sub(1, Ordering::SeqCst);
                return Ok(());
            }
        }
        stream.flush().await?;
    }
    Ok(())
}

/// Reads a request. Returns `None` if the connection was closed before one.
async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<Recorded>> {
    let head = loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let rest = buffer.split_off(end + 4);
            break String::from_utf8(std::mem::replace(buffer, rest)).unwrap();
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let mut lines = head.trim_end().split("\r\n").map(str::to_owned);
    let line = lines.next().unwrap();
    let mut headers = BTreeMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
        let before = headers.insert(name.to_owned(), value.to_owned());
        assert_eq!(before, None, "the header {name} was sent twice");
    }
    let len: usize = headers.get("content-length").map_or(0, |len| len.parse().unwrap());
    while buffer.len() < len {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let rest = buffer.split_off(len);
    Ok(Some(Recorded { line, headers, body: std::mem::replace(buffer, rest) }))
}
