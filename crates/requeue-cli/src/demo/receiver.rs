//! The receiver of the webhooks: a small HTTP/1.1 server on a free port of this machine.
//!
//! A real receiver verifies the signature. This one only checks that there is one, because it shows
//! deliveries, not how to receive them. A second port is reserved and not listened on: connections to
//! it are refused, so the circuit of that target opens.

use super::random::Random;
use super::scenario::Speed;
use crate::error::{CliError, Result};
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;

/// The longest head and the longest body of a request.
const MAX_HEAD: u64 = 16 << 10;
const MAX_BODY: u64 = 1 << 20;

/// How many connections there can be. The server opens one per delivery in flight.
const MAX_CONNECTIONS: usize = 32;

/// How long a connection may take for a request, or be idle.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Receiver {
    listener: TcpListener,
    /// Bound, but not listening: no other program can use its port meanwhile.
    _refusing: TcpSocket,
    targets: WebhookTargets,
}

/// The push settings of the kinds that are delivered by webhook.
#[derive(Debug, Clone)]
pub(super) struct WebhookTargets {
    working: SocketAddr,
    unreachable: SocketAddr,
    secret: String,
}

impl WebhookTargets {
    pub(super) fn working(&self) -> Value {
        json!({ "url": format!("http://{}/hooks/crm", self.working), "secrets": [self.secret] })
    }

    pub(super) fn unreachable(&self) -> Value {
        json!({ "url": format!("http://{}/partners", self.unreachable), "secrets": [self.secret] })
    }

    /// The targets that the server has to allow, because they are not on the public internet.
    pub(super) fn allowed(&self) -> [String; 2] {
        [self.working, self.unreachable].map(|address| address.to_string())
    }
}

impl Receiver {
    /// Listens on a free port, and reserves another. The secret that signs the requests is random, and
    /// protects nothing.
    pub(super) async fn bind(random: &mut Random) -> Result<Self> {
        let failed = |error: io::Error| CliError::io("listen on", "a free port", &error);
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(any).await.map_err(failed)?;
        let refusing = TcpSocket::new_v4().map_err(failed)?;
        refusing.bind(any).map_err(failed)?;
        // 32 characters of base64 are 24 bytes, the shortest allowed.
        let secret: String = (0..32).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
        let targets = WebhookTargets {
            working: listener.local_addr().map_err(failed)?,
            unreachable: refusing.local_addr().map_err(failed)?,
            secret: format!("whsec_{secret}"),
        };
        Ok(Receiver { listener, _refusing: refusing, targets })
    }

    pub(super) fn targets(&self) -> &WebhookTargets {
        &self.targets
    }

    /// Receives deliveries until it is aborted.
    pub(super) async fn run(self, speed: Speed, mut random: Random) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            // An error of `accept` is one of the connection, or passes: no more files can be opened.
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let random = random.split();
            tokio::spawn(async move {
                let _place = place;
                // The server reports a delivery that failed.
                let _ = serve(BufReader::new(stream), speed, random).await;
            });
        }
    }
}

/// Responds to the requests of a connection, until it is closed or invalid.
async fn serve(
    mut stream: BufReader<TcpStream>,
    speed: Speed,
    mut random: Random,
) -> io::Result<()> {
    loop {
        let read = tokio::time::timeout(TIMEOUT, read_request(&mut stream)).await;
        let Some(request) = read?? else { return Ok(()) };
        let millis = [20, 400].map(Duration::from_millis);
        tokio::time::sleep(speed.scaled(random.between(millis[0], millis[1]))).await;
        let (status, body) = if !request.is_signed {
            ("401 Unauthorized", r#"{"error":"the signature is missing"}"#)
        } else if random.chance(4) {
            ("500 Internal Server Error", r#"{"error":"deadlock detected, process 4242"}"#)
        } else {
            ("200 OK", r#"{"status":"synced"}"#)
        };
        let response = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        tokio::time::timeout(TIMEOUT, stream.get_mut().write_all(response.as_bytes())).await??;
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    is_signed: bool,
}

/// Reads a request and discards its body. Returns `None` at the end of the connection.
async fn read_request(stream: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Option<Request>> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let (mut is_signed, mut length) = (false, 0);
    let mut head = stream.take(MAX_HEAD);
    let mut line = String::new();
    let mut lines = 0;
    loop {
        line.clear();
        if head.read_line(&mut line).await? == 0 {
            let closed = lines == 0 && head.limit() > 0;
            return if closed { Ok(None) } else { Err(invalid("the head is too long or cut off")) };
        }
        lines += 1;
        if line.trim_end().is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("webhook-signature") {
            is_signed = value.trim().starts_with("v1,");
        } else if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(|_| invalid("the length is not a number"))?;
        }
    }
    if length > MAX_BODY {
        return Err(invalid("the body is too long"));
    }
    let body = tokio::io::copy(&mut stream.take(length), &mut tokio::io::sink()).await?;
    if body < length {
        Err(invalid("the body is cut off"))
    } else {
        Ok(Some(Request { is_signed }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str) -> io::Result<Vec<Request>> {
        let (mut stream, mut requests) = (text.as_bytes(), Vec::new());
        while let Some(request) = read_request(&mut stream).await? {
            requests.push(request);
        }
        Ok(requests)
    }

    #[tokio::test]
    async fn requests_of_a_connection_are_read_one_after_the_other() {
        let signed =
            "POST / HTTP/1.1\r\nWebhook-Signature: v1,abc\r\ncontent-length: 4\r\n\r\nbody";
        let plain = "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n";
        let requests = read(&format!("{signed}{plain}{signed}")).await.unwrap();
        assert_eq!(requests, [true, false, true].map(|is_signed| Request { is_signed }));
    }

    #[tokio::test]
    async fn invalid_requests_end_the_connection() {
        let long = format!("POST / HTTP/1.1\r\na: {}\r\n\r\n", "a".repeat(MAX_HEAD as usize));
        for (text, problem) in [
            (long.as_str(), "the head is too long"),
            ("POST / HTTP/1.1\r\n", "cut off"),
            ("POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", "not a number"),
            ("POST / HTTP/1.1\r\ncontent-length: 1048577\r\n\r\n", "the body is too long"),
            ("POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nbod", "the body is cut off"),
        ] {
            let error = read(text).await.unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
