//! Redis Streams.

mod entry;
mod publisher;
mod source;

pub(crate) use publisher::RedisPublisher;
pub(crate) use source::{RedisSource, check_source};

use crate::error::BridgeError;
use crate::target::BrokerOptions;
use crate::tls::{client_certificate, trusted_authorities};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, TlsCertificates,
};
use requeue_push::{BrokerUrl, MAX_CONCURRENCY};
use std::time::Duration;

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the response to a command may take, apart from how long the command waits for entries.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a command waits for entries.
const BLOCK: Duration = Duration::from_secs(1);

/// What is needed to connect.
#[derive(Clone)]
pub(crate) struct Connector {
    client: Client,
    origin: String,
}

impl Connector {
    /// Fails if the file of certificates cannot be read.
    pub(crate) fn new(url: &BrokerUrl, options: &BrokerOptions) -> Result<Self, BridgeError> {
        let setting = |error: RedisError| BridgeError::Setting { reason: error.to_string() };
        let (host, port) = url.hosts()[0].clone();
        let address = match url.is_tls() {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let mut account = RedisConnectionInfo::default().set_db(database(url));
        if let Some(user) = url.user() {
            account = account.set_username(user);
        }
        if let Some(password) = url.password() {
            account = account.set_password(password);
        }
        let info = address.into_connection_info().map_err(setting)?.set_redis_settings(account);
        let client = match url.is_tls() {
            true => {
                let root_cert = Some(trusted_authorities(options)?.into_bytes());
                let client_tls = client_certificate(options)?.map(|client| ClientTlsConfig {
                    client_cert: client.certificate.into_bytes(),
                    client_key: client.key.into_bytes(),
                });
                let certificates = TlsCertificates { client_tls, root_cert };
                Client::build_with_tls(info, certificates)
            }
            false => Client::open(info),
        };
        Ok(Connector { client: client.map_err(setting)?, origin: url.origin() })
    }

    /// Fails with a text for people, without the password.
    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection, String> {
        let config = AsyncConnectionConfig::new()
            .set_pipeline_buffer_size(MAX_CONCURRENCY as usize)
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(BLOCK + RESPONSE_TIMEOUT));
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        connected.map_err(|error| format!("no connection to {}: {error}", self.origin))
    }
}

/// Returns the number of the database. It was checked with the URL.
fn database(url: &BrokerUrl) -> i64 {
    url.parameter("db").and_then(|number| number.parse().ok()).unwrap_or(0)
}
