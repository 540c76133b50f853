//! NATS with JetStream.

mod headers;
mod publisher;
mod source;
mod subject;

pub(crate) use publisher::NatsPublisher;
pub(crate) use source::{NatsSource, check_source};

use crate::error::BridgeError;
use crate::target::BrokerOptions;
use crate::tls::{client_certificate, trusted_authorities};
use async_nats::rustls::crypto::ring;
use async_nats::rustls::pki_types::pem::PemObject;
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use async_nats::rustls::{ClientConfig, RootCertStore};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use requeue_push::BrokerUrl;
use std::fmt::Display;
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a connection attempt may take, per server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a request may take that creates or looks up a stream or a consumer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the server is asked whether it lives. Two missing responses end the connection.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// What is needed to connect.
#[derive(Clone)]
pub(crate) struct Connector {
    addresses: Vec<ServerAddr>,
    user: Option<String>,
    password: Option<String>,
    /// The contents of a `.creds` file.
    credentials: Option<String>,
    tls: Option<ClientConfig>,
    origin: String,
}

/// A client, which connects again by itself, and what it reports.
pub(crate) struct Connected {
    pub(crate) client: Client,
    /// How often the connection was lost.
    pub(crate) losses: watch::Receiver<u64>,
    /// The latest error that the server reported, such as a missing permission. Such errors belong to no
    /// request: the request gets no response.
    pub(crate) server_error: watch::Receiver<Option<String>>,
}

impl Connector {
    /// Fails if a file of certificates or credentials cannot be read.
    pub(crate) fn new(url: &BrokerUrl, options: &BrokerOptions) -> Result<Self, BridgeError> {
        let setting = |reason: String| BridgeError::Setting { reason };
        let tls = url.is_tls().then(|| tls_config(options)).transpose()?;
        let credentials = options.nats_creds_file.as_ref().map(|file| {
            let read = fs::read_to_string(file);
            read.map_err(|error| setting(format!("credentials in {}: {error}", file.display())))
        });
        let scheme = if url.is_tls() { "tls" } else { "nats" };
        let addresses = url.hosts().iter().map(|(host, port)| {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            let address = format!("{scheme}://{host}:{port}").parse();
            address.map_err(|error: std::io::Error| setting(format!("{host}:{port}: {error}")))
        });
        Ok(Connector {
            addresses: addresses.collect::<Result<_, _>>()?,
            user: url.user().map(str::to_owned),
            password: url.password().map(str::to_owned),
            credentials: credentials.transpose()?,
            tls,
            origin: url.origin(),
        })
    }

    /// Fails with a text for people, without password or token.
    pub(crate) async fn connect(&self) -> Result<Connected, String> {
        let wrong =
            |error: &dyn std::fmt::Display| format!("no connection to {}: {error}", self.origin);
        let (lost, losses) = watch::channel(0);
        let (reported, server_error) = watch::channel(None);
        let (lost, reported) = (Arc::new(lost), Arc::new(reported));
        let mut options = ConnectOptions::new()
            .name("requeue")
            .connection_timeout(CONNECT_TIMEOUT)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .ping_interval(PING_INTERVAL)
            .event_callback(move |event| {
                match event {
                    Event::Disconnected | Event::Closed => lost.send_modify(|losses| *losses += 1),
                    Event::ServerError(error) => {
                        reported.send_replace(Some(error.to_string()));
                    }
                    _ => {}
                }
                std::future::ready(())
            });
        options = match (&self.user, &self.password) {
            (Some(user), Some(password)) => {
                options.user_and_password(user.clone(), password.clone())
            }
            (Some(token), None) => options.token(token.clone()),
            _ => options,
        };
        if let Some(credentials) = &self.credentials {
            options = options.credentials(credentials).map_err(|error| wrong(&error))?;
        }
        if let Some(tls) = &self.tls {
            options = options.require_tls(true).tls_client_config(tls.clone());
        }
        match options.connect(self.addresses.clone()).await {
            Ok(client) => Ok(Connected { client, losses, server_error }),
            Err(error) => Err(wrong(&error)),
        }
    }
}

fn tls_config(options: &BrokerOptions) -> Result<ClientConfig, BridgeError> {
    let setting = |reason: String| BridgeError::Setting { reason };
    let pem = trusted_authorities(options)?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
    for certificate in certificates {
        let certificate =
            certificate.map_err(|error| setting(format!("the file of certificates: {error}")))?;
        roots.add_parsable_certificates([certificate]);
    }
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().expect("ring supports TLS 1.3");
    let builder = builder.with_root_certificates(roots);
    let Some(client) = client_certificate(options)? else {
        return Ok(builder.with_no_client_auth());
    };
    let wrong = |error: &dyn Display| setting(format!("client certificate: {error}"));
    let chain = CertificateDer::pem_slice_iter(client.certificate.as_bytes());
    let chain = chain.collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
    let key =
        PrivateKeyDer::from_pem_slice(client.key.as_bytes()).map_err(|error| wrong(&error))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| wrong(&error))
}
