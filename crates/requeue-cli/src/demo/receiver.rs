//! The receiver of the webhooks: a small HTTP server on a free port of this machine.
//!
//! A real receiver verifies the signature. This one only checks that there is one, because it shows
//! deliveries, not how to receive them. A second port is reserved and not listened on: connections to
//! it are refused, so the circuit of that target opens.

use super::random::Random;
use super::scenario::Speed;
use crate::error::{CliError, Result};
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};

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
    pub(super) async fn run(self, speed: Speed, random: Random) {
        let random = Arc::new(Mutex::new(random));
        let receive = move |headers: HeaderMap, _body: Bytes| {
            let mut random = random.lock().expect("nothing panics with it").split();
            async move {
                let [least, most] = [20, 400].map(Duration::from_millis);
                tokio::time::sleep(speed.scaled(random.between(least, most))).await;
                response(&headers, random.chance(4))
            }
        };
        // The server reports a delivery that failed.
        let _ = axum::serve(self.listener, Router::new().fallback(receive)).await;
    }
}

fn response(headers: &HeaderMap, fails: bool) -> (StatusCode, &'static str) {
    let signature = headers.get("webhook-signature").map(|value| value.as_bytes());
    if !signature.is_some_and(|value| value.starts_with(b"v1,")) {
        (StatusCode::UNAUTHORIZED, r#"{"error":"the signature is missing"}"#)
    } else if fails {
        (StatusCode::INTERNAL_SERVER_ERROR, r#"{"error":"deadlock detected, process 4242"}"#)
    } else {
        (StatusCode::OK, r#"{"status":"synced"}"#)
    }
}
