//! The systems that are measured, and how each is started.

use crate::driver::Error;
use crate::workloads::bridge::Brokers;
use std::path::PathBuf;
use std::process::Command;

/// A system that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// requeue, with `Arc<str>` keys.
    Requeue,
    /// requeue, with `String` keys.
    RequeueString,
    /// requeue's plain queue, compared with its fair queue.
    RequeueFifo,
    /// The store of the server, called in the process.
    RequeueInProcess,
    /// The Python client, with handlers in threads.
    RequeueThreads,
    /// A client of a server on disk, compared with one on Redis.
    RequeueOnDisk,
    /// requeue's bridge, from RabbitMQ to RabbitMQ.
    RequeueRabbitMq,
    /// From NATS to NATS.
    RequeueNats,
    /// From Kafka to Kafka.
    RequeueKafka,
    ClientGo,
    ControllerRuntime,
    KubeRuntime,
    TokioUtil,
    /// With a map from key to timer, behind a lock.
    TokioUtilKeyed,
    Java,
    /// Synced appends to a plain file: the lower limit for a disk.
    Fdatasync,
    Beanstalkd,
    /// A queue on the `fjall` crate.
    Fjall,
    /// Its Redis syncs before the response.
    Faktory,
    Asynq,
    BullMq,
    Rq,
    Celery,
    Dramatiq,
    Apalis,
    /// Without locking each task, its largest cost.
    ApalisUnlocked,
    /// `redis-benchmark`: the upper limit of a server.
    RedisSet,
    RedisZadd,
    /// requeue on Postgres without LISTEN and NOTIFY.
    RequeuePolling,
    /// A queue in SQL, without a worker of its own.
    Pgmq,
    GraphileWorker,
    River,
    PgBoss,
    /// Queues whose messages expire and are dead-lettered to another queue.
    RabbitMqTtl,
    /// Messages with a schedule.
    NatsSchedule,
    /// Timer messages.
    RocketMq,
}

use System::*;

impl System {
    const NAMES: [(System, &str); 36] = [
        (Requeue, "requeue"),
        (RequeueString, "requeue-string"),
        (RequeueFifo, "requeue-fifo"),
        (RequeueInProcess, "requeue-inprocess"),
        (RequeueThreads, "requeue-threads"),
        (RequeueOnDisk, "requeue-disk"),
        (RequeueRabbitMq, "requeue-rabbitmq"),
        (RequeueNats, "requeue-nats"),
        (RequeueKafka, "requeue-kafka"),
        (ClientGo, "client-go"),
        (ControllerRuntime, "controller-runtime"),
        (KubeRuntime, "kube-runtime"),
        (TokioUtil, "tokio-util"),
        (TokioUtilKeyed, "tokio-util-keyed"),
        (Java, "java"),
        (Fdatasync, "fdatasync"),
        (Beanstalkd, "beanstalkd"),
        (Fjall, "fjall"),
        (Faktory, "faktory-synced"),
        (Asynq, "asynq"),
        (BullMq, "bullmq"),
        (Rq, "rq"),
        (Celery, "celery"),
        (Dramatiq, "dramatiq"),
        (Apalis, "apalis"),
        (ApalisUnlocked, "apalis-unlocked"),
        (RedisSet, "redis-set"),
        (RedisZadd, "redis-zadd"),
        (RequeuePolling, "requeue-polling"),
        (Pgmq, "pgmq"),
        (GraphileWorker, "graphile-worker"),
        (River, "river"),
        (PgBoss, "pg-boss"),
        (RabbitMqTtl, "rabbitmq-ttl"),
        (NatsSchedule, "nats-schedule"),
        (RocketMq, "rocketmq"),
    ];

    pub(crate) fn name(self) -> &'static str {
        let named = System::NAMES.iter().find(|(system, _)| *system == self);
        named.map(|&(_, name)| name).expect("every system has a name")
    }

    pub(crate) fn named(name: &str) -> Option<System> {
        let named = System::NAMES.iter().find(|(_, known)| *known == name);
        named.map(|&(system, _)| system)
    }

    /// Returns whether the others are compared with it.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Requeue | RequeueString | RequeueRabbitMq | RequeueNats | RequeueKafka)
    }

    /// Returns whether a system of ours is compared with `peer` on the same workload. A bridge is not
    /// compared with the delays of another broker, unless one would change brokers for them.
    pub(crate) fn compares_with(self, peer: System) -> bool {
        match (self, peer) {
            _ if !self.is_ours() || peer.is_ours() => false,
            (_, RabbitMqTtl) => self == RequeueRabbitMq,
            (_, NatsSchedule) => self == RequeueNats,
            _ => true,
        }
    }
}

/// The programs of the other systems, as far as they could be built.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub(crate) go: Option<PathBuf>,
    pub(crate) kube: Option<PathBuf>,
    /// The folder with the classes.
    pub(crate) java: Option<PathBuf>,
    /// Whether it is installed.
    pub(crate) beanstalkd: bool,
    pub(crate) faktory: Option<PathBuf>,
    /// requeue's server.
    pub(crate) requeue: Option<PathBuf>,
    pub(crate) asynq: Option<PathBuf>,
    /// The script.
    pub(crate) bullmq: Option<PathBuf>,
    pub(crate) apalis: Option<PathBuf>,
    /// The folder with a program for each language that has a client.
    pub(crate) clients: Option<PathBuf>,
    /// The port of the Redis server.
    pub(crate) redis: Option<u16>,
    /// The folder with the programs of a Postgres server.
    pub(crate) postgres_bin: Option<PathBuf>,
    /// The port of the Postgres server.
    pub(crate) postgres: Option<u16>,
    /// The SQL file.
    pub(crate) pgmq: Option<PathBuf>,
    pub(crate) river: Option<PathBuf>,
    /// The folder with the scripts of graphile-worker and pg-boss.
    pub(crate) node_postgres: Option<PathBuf>,
    /// The folder with the jars of RocketMQ and the classes of its program.
    pub(crate) rocketmq: Option<PathBuf>,
    /// The message brokers that run.
    pub(crate) brokers: Brokers,
    /// The directory for files, until all is measured.
    pub(crate) scratch: Option<PathBuf>,
}

impl Programs {
    /// Returns whether `system` can be measured here.
    pub(crate) fn can_run(&self, system: System) -> bool {
        match system {
            ClientGo | ControllerRuntime => self.go.is_some(),
            KubeRuntime => self.kube.is_some(),
            Java => self.java.is_some(),
            Beanstalkd => self.beanstalkd,
            Faktory => self.faktory.is_some(),
            // The programs of the clients contain those of their language.
            Asynq => self.asynq.is_some() || self.clients.is_some(),
            BullMq => self.bullmq.is_some() || self.clients.is_some(),
            Apalis | ApalisUnlocked => self.apalis.is_some(),
            Pgmq => self.pgmq.is_some(),
            River => self.river.is_some(),
            GraphileWorker | PgBoss => self.node_postgres.is_some(),
            RequeueRabbitMq | RequeueNats | RequeueKafka | RabbitMqTtl | NatsSchedule
            | RocketMq => self.brokers.of(system).is_some(),
            _ => true,
        }
    }

    /// Returns whether there is a program for the language of this workload.
    pub(crate) fn has_client(&self, workload: &str) -> bool {
        let language = workload.split_once('-').map_or(workload, |(language, _)| language);
        self.clients.as_ref().is_some_and(|programs| programs.join(language).exists())
    }

    /// The program that fills a queue for later measurements.
    pub(crate) fn preparation(&self, system: System, pending: usize) -> Result<Command, Error> {
        let mut command = Command::new(std::env::current_exe().map_err(Error::OwnProgram)?);
        command.args(["prepare", system.name(), &pending.to_string()]);
        command.args(self.scratch.as_deref());
        Ok(command)
    }

    /// The program that executes commands on a Redis, or `None` if there is none.
    pub(crate) fn client(&self, system: System) -> Result<Option<Vec<PathBuf>>, Error> {
        let this = || std::env::current_exe().map_err(Error::OwnProgram);
        Ok(match system {
            Requeue => Some(vec![this()?, "obey".into()]),
            Asynq => self.asynq.clone().map(|program| vec![program]),
            BullMq => self.bullmq.clone().map(|script| vec!["node".into(), script]),
            Apalis => self.apalis.clone().map(|program| vec![program]),
            ApalisUnlocked => self.apalis.clone().map(|program| vec![program, "--unlocked".into()]),
            _ => None,
        })
    }

    /// The program that executes commands on a Postgres, or `None` if there is none.
    pub(crate) fn postgres_client(&self, system: System) -> Result<Option<Vec<PathBuf>>, Error> {
        let this = std::env::current_exe().map_err(Error::OwnProgram)?;
        let ours = |more: Vec<PathBuf>| {
            [vec![this, "obey-postgres".into(), system.name().into()], more].concat()
        };
        let script =
            |folder: &PathBuf| vec!["node".into(), folder.join(format!("{}.js", system.name()))];
        Ok(match system {
            Requeue | RequeuePolling => Some(ours(Vec::new())),
            Pgmq => self.pgmq.clone().map(|sql| ours(vec![sql])),
            River => self.river.clone().map(|program| vec![program]),
            GraphileWorker | PgBoss => self.node_postgres.as_ref().map(script),
            _ => None,
        })
    }

    /// The program that measures once and prints the result.
    pub(crate) fn command(
        &self,
        suite: &str,
        system: System,
        workload: &str,
        seconds: f64,
    ) -> Result<Command, Error> {
        let this = std::env::current_exe().map_err(Error::OwnProgram)?;
        let own = |program: PathBuf| {
            let mut command = Command::new(program);
            command.args(["measure", suite, system.name(), workload, &seconds.to_string()]);
            command
        };
        let scratch = self.scratch.as_deref();
        if let Some(port) = self.redis {
            let mut command = own(this);
            command.arg(port.to_string()).args(self.client(system)?.unwrap_or_default());
            return Ok(command);
        }
        if let Some(port) = self.postgres {
            let mut command = own(this);
            command.arg(port.to_string()).args(self.postgres_client(system)?.unwrap_or_default());
            return Ok(command);
        }
        if let Some(broker) = self.brokers.of(system) {
            let program = if system == RocketMq { &self.rocketmq } else { &self.requeue };
            let mut command = own(this);
            command.args(scratch).args([broker.port.to_string(), broker.pid.to_string()]);
            command.args(program.as_deref());
            return Ok(command);
        }
        let mut command = match (system, self) {
            (ClientGo | ControllerRuntime, Programs { go: Some(program), .. }) => {
                let mut command = Command::new(program);
                command.arg(system.name());
                command
            }
            (KubeRuntime, Programs { kube: Some(program), .. }) => Command::new(program),
            (Java, Programs { java: Some(classes), .. }) => {
                let mut command = Command::new("java");
                command.arg("-Xmx4g").arg("-cp").arg(classes).arg("DelayBench");
                command
            }
            _ => {
                // Counting every allocation slows the other workloads down, so it is a separate program.
                let program = match workload {
                    "timer-bytes" => this.with_file_name("requeue-bench-bytes"),
                    _ => this,
                };
                let mut command = own(program);
                command.args(scratch);
                match (suite, system) {
                    ("clients", _) => {
                        command.args(self.requeue.as_deref()).args(self.clients.as_deref());
                    }
                    ("http" | "push", Requeue) => _ = command.args(self.requeue.as_deref()),
                    ("http", Faktory) => _ = command.args(self.faktory.as_deref()),
                    _ => {}
                }
                return Ok(command);
            }
        };
        command.arg(workload).arg(seconds.to_string());
        command.args(scratch);
        Ok(command)
    }
}
