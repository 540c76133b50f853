//! RabbitMQ, and other brokers with AMQP 0.9.1.

mod properties;
mod publisher;
mod source;

pub(crate) use publisher::AmqpPublisher;
pub(crate) use source::{AmqpSource, check_source};

use crate::error::BridgeError;
use crate::target::BrokerOptions;
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Connection, ConnectionProperties};
use requeue_push::BrokerUrl;
use std::fs;
use std::time::Duration;

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the broker is asked whether it lives, in seconds. A broker that does not respond for twice as long
/// is gone.
const HEARTBEAT: u16 = 10;

/// The virtual host that a URL without one means.
const DEFAULT_VHOST: &str = "/";

/// The user and password of RabbitMQ after its installation.
const GUEST: &str = "guest";

/// What is needed to connect.
#[derive(Clone)]
pub(crate) struct Connector {
    uri: AMQPUri,
    ca: Option<String>,
    origin: String,
}

impl Connector {
    /// Fails if the file of certificates cannot be read.
    pub(crate) fn new(url: &BrokerUrl, options: &BrokerOptions) -> Result<Self, BridgeError> {
        let ca = options.ca_file.as_ref().map(|file| {
            fs::read_to_string(file).map_err(|error| BridgeError::Setting {
                reason: format!("certificates in {}: {error}", file.display()),
            })
        });
        let (host, port) = url.hosts()[0].clone();
        let vhost = match url.segments() {
            [vhost, _place] => vhost.clone(),
            _ => DEFAULT_VHOST.to_owned(),
        };
        let uri = AMQPUri {
            scheme: if url.is_tls() { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo {
                    username: url.user().unwrap_or(GUEST).to_owned(),
                    password: url.password().unwrap_or(GUEST).to_owned(),
                },
                host,
                port,
            },
            vhost,
            query: AMQPQueryString { heartbeat: Some(HEARTBEAT), ..AMQPQueryString::default() },
        };
        Ok(Connector { uri, ca: ca.transpose()?, origin: url.origin() })
    }

    /// Fails with a text for people, without the password.
    pub(crate) async fn connect(&self) -> Result<Connection, String> {
        let tls = OwnedTLSConfig { cert_chain: self.ca.clone(), ..OwnedTLSConfig::default() };
        let runtime = lapin::runtime::default_runtime().map_err(|error| error.to_string())?;
        let name = ConnectionProperties::default().with_connection_name("requeue".into());
        let connect = Connection::connect_uri_with_config(self.uri.clone(), name, tls, runtime);
        match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(format!("no connection to {}: {error}", self.origin)),
            Err(_) => Err(format!("no connection to {} within 10s", self.origin)),
        }
    }
}
