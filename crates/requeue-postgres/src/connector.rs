//! Opens connections: to one host after the other, each within its time.
//!
//! It also finds out whether a connection pooler, such as PgBouncer, is in between. A pooler may execute each transaction on
//! another server process, so nothing can be kept in a session. In particular, a prepared statement may not exist there, or
//! may be another one with the same name, of another process.

use crate::database::Tls;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, LoadBalanceHosts};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Connection, Error, Socket};

pub(crate) type Opened = (Client, Connection<Socket, <Tls as MakeTlsConnect<Socket>>::Stream>);

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    /// A configuration for each host. A server that accepts connections and does not respond, because it hangs, must not
    /// keep us from the next one.
    hosts: Arc<[Config]>,
    tls: Tls,
    /// How long one host may take.
    limit: Duration,
    is_pooled: Arc<AtomicBool>,
    /// How many connections were opened.
    opened: Arc<AtomicU64>,
}

impl Connector {
    pub(crate) fn new(config: &Config, tls: Tls, limit: Duration) -> Self {
        let hosts = (0..config.get_hosts().len()).map(|n| for_host(config, n)).collect();
        let (is_pooled, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        Connector { hosts, tls, limit, is_pooled, opened }
    }

    /// Returns how long connecting takes at most.
    pub(crate) fn longest(&self) -> Duration {
        self.limit * u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)
    }

    /// Returns whether a connection so far has led to a connection pooler.
    pub(crate) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Ordering::Relaxed)
    }

    /// Returns how many connections were opened so far. If it is the same number as before, the server is the same.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Connects to the first host that accepts.
    #[cfg_attr(not(feature = "tls"), allow(clippy::clone_on_copy))]
    pub(crate) async fn open(&self) -> Result<Opened, Error> {
        let is_random = self.hosts[0].get_load_balance_hosts() == LoadBalanceHosts::Random;
        let first = if is_random { RandomState::new().hash_one(()) as usize } else { 0 };
        let count = self.hosts.len();
        for n in 0..count - 1 {
            let config = &self.hosts[first.wrapping_add(n) % count];
            if let Ok(Ok(opened)) = timeout(self.limit, config.connect(self.tls.clone())).await {
                return Ok(opened);
            }
        }
        // The caller limits how long the last one takes.
        self.hosts[first.wrapping_add(count - 1) % count].connect(self.tls.clone()).await
    }

    /// Asks the server to end what it executes for this connection.
    #[cfg_attr(not(feature = "tls"), allow(clippy::clone_on_copy))]
    pub(crate) async fn cancel(&self, client: &Client) {
        let request = client.cancel_token();
        // Without it, the statement ends later.
        drop(timeout(self.limit, request.cancel_query(self.tls.clone())).await);
    }

    async fn connect(&self) -> Result<(Client, JoinHandle<()>), Error> {
        let (client, connection) = self.open().await?;
        let task = tokio::spawn(async move { drop(connection.await) });
        let rows = client.query_typed("select pg_catalog.pg_backend_pid()", &[]).await?;
        if announced_process(&client).await != rows.first().map(|row| row.get(0)) {
            self.is_pooled.store(true, Ordering::Relaxed);
        }
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok((client, task))
    }
}

impl deadpool_postgres::Connect for Connector {
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(Connector::connect(self))
    }
}

/// Returns the configuration for one of the hosts.
fn for_host(all: &Config, n: usize) -> Config {
    let mut config = Config::new();
    match &all.get_hosts()[n] {
        Host::Tcp(name) => config.host(name),
        Host::Unix(path) => config.host_path(path),
    };
    if let Some(address) = all.get_hostaddrs().get(n) {
        config.hostaddr(*address);
    }
    if let Some(port) = all.get_ports().get(n).or(all.get_ports().first()) {
        config.port(*port);
    }
    all.get_user().map(|user| config.user(user));
    all.get_password().map(|password| config.password(password));
    all.get_dbname().map(|name| config.dbname(name));
    all.get_options().map(|options| config.options(options));
    all.get_application_name().map(|name| config.application_name(name));
    all.get_connect_timeout().map(|limit| config.connect_timeout(*limit));
    all.get_tcp_user_timeout().map(|limit| config.tcp_user_timeout(*limit));
    config
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding())
        .target_session_attrs(all.get_target_session_attrs())
        .load_balance_hosts(all.get_load_balance_hosts())
        .keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle());
    all.get_keepalives_interval().map(|interval| config.keepalives_interval(interval));
    all.get_keepalives_retries().map(|retries| config.keepalives_retries(retries));
    config
}

/// Returns the process id that was announced when the connection was opened. A connection pooler announces another one than
/// that of the server process. The driver shows it only as a part of the message that would cancel a statement.
async fn announced_process(client: &Client) -> Option<i32> {
    let mut message = Message::default();
    client.cancel_token().cancel_query_raw(&mut message, Unencrypted).await.ok()?;
    // The length, the code of the request, the process id and the key.
    let last = message.0.len().checked_sub(16)?;
    let id = message.0.get(last + 8..last + 12)?;
    Some(i32::from_be_bytes(id.try_into().ok()?))
}

/// A stream that keeps what is written. If asked, it supports TLS, which then changes nothing.
#[derive(Default)]
struct Message(Vec<u8>);

impl AsyncRead for Message {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buffer.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Message {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for &mut Message {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

struct Unencrypted;

impl<'a> TlsConnect<&'a mut Message> for Unencrypted {
    type Stream = &'a mut Message;
    type Error = Infallible;
    type Future = Ready<Result<&'a mut Message, Infallible>>;

    fn connect(self, stream: &'a mut Message) -> Self::Future {
        ready(Ok(stream))
    }
}
