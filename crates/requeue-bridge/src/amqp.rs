//! RabbitMQ, and other brokers with AMQP 0.9.1.

mod properties;
mod publisher;
mod source;

pub(crate) use publisher::AmqpPublisher;
pub(crate) use source::{AmqpSource, check_source};

use crate::error::BridgeError;
use crate::target::BrokerOptions;
use crate::tls::{client_certificate, own_authorities};
use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Connection, ConnectionProperties};
use requeue_push::BrokerUrl;
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
    tls: OwnedTLSConfig,
    origin: String,
}

impl Connector {
    /// Fails if the file of certificates cannot be read.
    pub(crate) fn new(url: &BrokerUrl, options: &BrokerOptions) -> Result<Self, BridgeError> {
        let tls = OwnedTLSConfig {
            identity: client_certificate(options)?.map(|client| OwnedIdentity::PKCS8 {
                pem: client.certificate.into_bytes(),
                key: client.key.into_bytes(),
            }),
            // In addition to those of the system.
            cert_chain: own_authorities(options)?,
        };
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
        Ok(Connector { uri, tls, origin: url.origin() })
    }

    /// Fails with a text for people, without the password.
    pub(crate) async fn connect(&self) -> Result<Connection, String> {
        let runtime = lapin::runtime::default_runtime().map_err(|error| error.to_string())?;
        let name = ConnectionProperties::default().with_connection_name("requeue".into());
        let connect =
            Connection::connect_uri_with_config(self.uri.clone(), name, self.tls.clone(), runtime);
        match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(format!("no connection to {}: {error}", self.origin)),
            Err(_) => Err(format!("no connection to {} within 10s", self.origin)),
        }
    }
}
