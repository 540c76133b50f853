//! The message brokers: started once for all measurements, each in its own directory.
//!
//! While one is measured, the others are suspended: a broker without any work takes up to an eighth of a core.

use super::rocketmq::{RocketServer, jar_version};
use crate::system::System::{self, *};
use requeue_testkit::servers::{KafkaServer, NatsServer, RabbitServer};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process::Command;

/// The brokers that are installed here.
#[derive(Debug, Default)]
pub(crate) struct Brokers {
    rabbitmq: Option<RabbitServer>,
    nats: Option<NatsServer>,
    kafka: Option<KafkaServer>,
    rocketmq: Option<RocketServer>,
}

/// A broker, as its clients and the measurement need it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Broker {
    pub(crate) port: u16,
    pub(crate) pid: u32,
}

impl Brokers {
    /// Starts those that `scripts/brokers` has installed, and RocketMQ if there is a folder with its jars.
    pub(crate) fn start(rocketmq: Option<&Path>) -> Self {
        let is_installed = |variable| env::var_os(variable).is_some_and(|path| !path.is_empty());
        let has_kafka = cfg!(feature = "kafka") && is_installed("REQUEUE_KAFKA");
        Brokers {
            rabbitmq: is_installed("REQUEUE_RABBITMQ").then(RabbitServer::start),
            nats: is_installed("REQUEUE_NATS").then(NatsServer::start),
            kafka: has_kafka.then(KafkaServer::start),
            rocketmq: rocketmq.map(RocketServer::start),
        }
    }

    /// Returns the broker of a system, or `None` if it is not installed.
    pub(crate) fn of(&self, system: System) -> Option<Broker> {
        match system {
            RequeueRabbitMq | RabbitMqTtl => {
                self.rabbitmq.as_ref().map(|it| Broker { port: it.port(), pid: it.pid() })
            }
            RequeueNats | NatsSchedule => {
                self.nats.as_ref().map(|it| Broker { port: it.port(), pid: it.pid() })
            }
            RequeueKafka => self.kafka.as_ref().map(|it| Broker { port: it.port(), pid: it.pid() }),
            RocketMq => self.rocketmq.as_ref().map(|it| Broker { port: it.port(), pid: it.pid() }),
            _ => None,
        }
    }

    /// Suspends all brokers except that of `system`.
    pub(crate) fn run_only(&self, system: System) {
        let wanted = self.of(system).map(|broker| broker.pid);
        for one in [RequeueRabbitMq, RequeueNats, RequeueKafka, RocketMq] {
            let Some(Broker { pid, .. }) = self.of(one) else { continue };
            let signal = if Some(pid) == wanted { Signal::CONT } else { Signal::STOP };
            let pid = Pid::from_raw(pid.cast_signed()).expect("it is not zero");
            kill_process(pid, signal).expect("the broker runs");
        }
    }

    /// The versions of the brokers.
    pub(crate) fn versions(&self, rocketmq: Option<&Path>) -> BTreeMap<&'static str, String> {
        let mut versions = BTreeMap::new();
        if let Some(server) = &self.rabbitmq {
            versions.insert("rabbitmq", server.ctl(&["version"]));
        }
        if let Some(program) = self.nats.as_ref().and_then(|_| env::var_os("REQUEUE_NATS")) {
            let output = Command::new(program).arg("-v").output();
            let output = output.expect("the program was started before").stdout;
            versions.insert("nats", String::from_utf8_lossy(&output).trim().to_owned());
        }
        let kafka = self.kafka.as_ref().and_then(|_| env::var_os("REQUEUE_KAFKA"));
        let kafka = kafka.and_then(|folder| jar_version(Path::new(&folder), "kafka_2.13-"));
        versions.extend(kafka.map(|version| ("kafka", version)));
        let jars = rocketmq.map(|folder| folder.join("jars"));
        let rocketmq = jars.and_then(|folder| jar_version(&folder, "rocketmq-broker-"));
        versions.extend(rocketmq.map(|version| ("rocketmq", version)));
        versions
    }
}
