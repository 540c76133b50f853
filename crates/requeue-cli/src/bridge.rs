//! `bridge`: puts the messages of a broker as jobs.

use crate::bulk::BulkStore;
use crate::error::{CliError, Exit, Result};
use crate::kind;
use crate::logs;
use crate::output::Output;
use crate::signals::Signals;
use crate::store_args::StoreArgs;
use requeue_bridge::{Bridge, BridgeOptions, DEFAULT_GROUP};
use requeue_http::wire::{PushJson, SettingsPatch};
use requeue_jobs::{Jobs, Kind};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Where messages come from, and where --to publishes them when they are due:
  amqp://USER:PASSWORD@HOST/VHOST/EXCHANGE      RabbitMQ; with TLS amqps://
  nats://USER:PASSWORD@HOST/SUBJECT             NATS JetStream; nats+tls://
  kafka://USER:PASSWORD@HOST,HOST/TOPIC         Kafka; kafka+tls://
  redis://USER:PASSWORD@HOST/STREAM             Redis Streams; rediss://

Headers of a message:
  x-delay           Delay in milliseconds, as for the delayed-message plugin
  requeue-delay     Delay, such as 5m
  requeue-due       Due time in RFC 3339
  requeue-key       Id of the job; a message with the same key replaces the job
                    [default: the id of the message]
  requeue-cancel    true: remove the job with this key

A message is acknowledged when its job is durable. Invalid messages are moved to
the place that --rejected names, with the reason in the header requeue-error.
The password in a URL is visible to other users of this machine: set
REQUEUE_BRIDGE_FROM and REQUEUE_BRIDGE_TO instead.

Examples:
  requeue bridge orders --from amqp://rabbit/orders.delayed \\
    --to amqp://rabbit/orders
  requeue bridge events --from kafka://kafka/events.delayed \\
    --to kafka://kafka/events
  requeue bridge mail --from nats://nats/mail.delayed")]
pub(crate) struct Args {
    /// Kind of the jobs
    #[arg(value_name = "KIND")]
    kind: String,
    /// Consume the messages of this broker
    #[arg(long, value_name = "URL", env = "REQUEUE_BRIDGE_FROM", hide_env_values = true)]
    from: String,
    /// Publish the jobs to this broker when they are due: changes the push setting of the kind
    #[arg(long, value_name = "URL", env = "REQUEUE_BRIDGE_TO", hide_env_values = true)]
    to: Option<String>,
    /// Consumer group, or prefix of the queue that is created; bridges with the same one share the messages
    #[arg(long, value_name = "NAME", default_value = DEFAULT_GROUP)]
    group: String,
    /// Queue, subject, topic or stream for invalid messages [default: made from what is consumed]
    #[arg(long, value_name = "NAME")]
    rejected: Option<String>,
    /// PEM file of the certificate to present to the broker
    #[arg(long, value_name = "FILE", requires = "broker_key")]
    broker_cert: Option<PathBuf>,
    /// PEM file of the private key of that certificate
    #[arg(long, value_name = "FILE", requires = "broker_cert")]
    broker_key: Option<PathBuf>,
    /// `.creds` file with which to connect to NATS
    #[arg(long, value_name = "FILE")]
    nats_creds: Option<PathBuf>,
    #[command(flatten)]
    logs: logs::LogArgs,
}

/// What was done, for `--json`.
#[derive(Serialize)]
struct Summary {
    put: u64,
    cancelled: u64,
    rejected: u64,
    connections: u64,
}

pub(crate) async fn bridge(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    let mut signals = Signals::with_hangup()?;
    let _logs = logs::start(&args.logs)?;
    let kind =
        Kind::new(args.kind.as_str()).map_err(|error| CliError::from_error(Exit::Usage, &error))?;
    let mut options = BridgeOptions::default();
    options.group.clone_from(&args.group);
    options.rejected.clone_from(&args.rejected);
    options.broker.ca_file.clone_from(&store_args.ca_file());
    options.broker.client_cert.clone_from(&args.broker_cert);
    options.broker.client_key.clone_from(&args.broker_key);
    options.broker.nats_creds_file.clone_from(&args.nats_creds);
    // Once: only one process, and in it one store, can have a data directory open.
    let store = BulkStore::open(store_args).await?;
    let jobs = Jobs::new(store.shared());
    let bridge = Bridge::new(&jobs, kind.clone(), &args.from, options);
    let bridge = bridge.map_err(|error| CliError::usage(format!("--from: {error}")))?;
    if let Some(url) = args.to {
        let push = PushJson { url: Some(url), ..PushJson::default() };
        let patch = SettingsPatch { push: Some(Some(push)), ..SettingsPatch::default() };
        kind::change(&store, &kind, patch).await?;
    }
    let counts = bridge.run(signals.next()).await;
    out.print(
        || Summary {
            put: counts.put,
            cancelled: counts.cancelled,
            rejected: counts.rejected,
            connections: counts.connections,
        },
        || {
            format!(
                "{} messages put, {} jobs cancelled, {} messages rejected",
                counts.put, counts.cancelled, counts.rejected
            )
        },
    )
}
