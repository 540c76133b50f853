//! Who is measured, and how each is started.

use crate::driver::Error;
use std::path::PathBuf;
use std::process::Command;

/// A queue under measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// Ours, with `Arc<str>` keys.
    Requeue,
    /// Ours, with `String` keys.
    RequeueString,
    /// Ours, first in first out, where ours is something dearer.
    RequeueFifo,
    /// Ours, each put a call of the store, where ours joins them.
    RequeueSingle,
    /// Our store, called in the process, where ours is a server.
    RequeueInProcess,
    ClientGo,
    ControllerRuntime,
    KubeRuntime,
    TokioUtil,
    /// With a map from key to timer, behind a lock.
    TokioUtilKeyed,
    Java,
    /// std's `BinaryHeap` and `HashMap`.
    StdHeap,
    /// A bare append to a file, synced: what a disk takes at least.
    Fdatasync,
    Beanstalkd,
    /// The `fjall` crate, made a queue.
    Fjall,
    /// Its Redis writes what it has twice a minute.
    Faktory,
    /// Its Redis syncs before it answers.
    FaktorySynced,
    Asynq,
    BullMq,
    Apalis,
    /// Without what costs it most: to lock each task.
    ApalisUnlocked,
    /// `redis-benchmark`: what a server does at most.
    RedisSet,
    RedisZadd,
}

use System::*;

impl System {
    const ALL: [System; 23] = [
        Requeue,
        RequeueString,
        RequeueFifo,
        RequeueSingle,
        RequeueInProcess,
        ClientGo,
        ControllerRuntime,
        KubeRuntime,
        TokioUtil,
        TokioUtilKeyed,
        Java,
        StdHeap,
        Fdatasync,
        Beanstalkd,
        Fjall,
        Faktory,
        FaktorySynced,
        Asynq,
        BullMq,
        Apalis,
        ApalisUnlocked,
        RedisSet,
        RedisZadd,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Requeue => "requeue",
            RequeueString => "requeue-string",
            RequeueFifo => "requeue-fifo",
            RequeueSingle => "requeue-single",
            RequeueInProcess => "requeue-inprocess",
            ClientGo => "client-go",
            ControllerRuntime => "controller-runtime",
            KubeRuntime => "kube-runtime",
            TokioUtil => "tokio-util",
            TokioUtilKeyed => "tokio-util-keyed",
            Java => "java",
            StdHeap => "std-heap",
            Fdatasync => "fdatasync",
            Beanstalkd => "beanstalkd",
            Fjall => "fjall",
            Faktory => "faktory",
            FaktorySynced => "faktory-synced",
            Asynq => "asynq",
            BullMq => "bullmq",
            Apalis => "apalis",
            ApalisUnlocked => "apalis-unlocked",
            RedisSet => "redis-set",
            RedisZadd => "redis-zadd",
        }
    }

    pub(crate) fn named(name: &str) -> Option<System> {
        System::ALL.into_iter().find(|system| system.name() == name)
    }

    /// Whether it is what the others are compared with.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Requeue | RequeueString)
    }
}

/// The programs of peers, as far as they could be built.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub(crate) go: Option<PathBuf>,
    pub(crate) kube: Option<PathBuf>,
    /// The folder with the classes.
    pub(crate) java: Option<PathBuf>,
    /// Whether it is installed.
    pub(crate) beanstalkd: bool,
    pub(crate) faktory: Option<PathBuf>,
    /// Our server.
    pub(crate) requeue: Option<PathBuf>,
    pub(crate) asynq: Option<PathBuf>,
    /// The script.
    pub(crate) bullmq: Option<PathBuf>,
    pub(crate) apalis: Option<PathBuf>,
    /// Of the server that those are measured on.
    pub(crate) redis: Option<u16>,
    /// Where what is on disk may be, until all is measured.
    pub(crate) scratch: Option<PathBuf>,
}

impl Programs {
    /// Whether `system` can be measured here.
    pub(crate) fn can_run(&self, system: System) -> bool {
        match system {
            ClientGo | ControllerRuntime => self.go.is_some(),
            KubeRuntime => self.kube.is_some(),
            Java => self.java.is_some(),
            Beanstalkd => self.beanstalkd,
            Faktory | FaktorySynced => self.faktory.is_some(),
            Asynq => self.asynq.is_some(),
            BullMq => self.bullmq.is_some(),
            Apalis | ApalisUnlocked => self.apalis.is_some(),
            _ => true,
        }
    }

    /// The program that fills a queue, for measurements to come.
    pub(crate) fn preparation(&self, system: System, pending: usize) -> Result<Command, Error> {
        let mut command = Command::new(std::env::current_exe().map_err(Error::OwnProgram)?);
        command.args(["prepare", system.name(), &pending.to_string()]);
        command.args(self.scratch.as_deref());
        Ok(command)
    }

    /// The program that does what it is told to with a Redis. `None`: there is none.
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

    /// The program that measures once and prints the answer.
    pub(crate) fn command(
        &self,
        suite: &str,
        system: System,
        workload: &str,
        seconds: f64,
    ) -> Result<Command, Error> {
        if let Some(port) = self.redis {
            let mut command = Command::new(std::env::current_exe().map_err(Error::OwnProgram)?);
            command.args(["redis", system.name(), workload, &seconds.to_string()]);
            command.arg(port.to_string()).args(self.client(system)?.unwrap_or_default());
            return Ok(command);
        }
        if suite == "http" {
            let mut command = Command::new(std::env::current_exe().map_err(Error::OwnProgram)?);
            command.args(["http", system.name(), workload, &seconds.to_string()]);
            let program = match system {
                Requeue => self.requeue.as_deref(),
                Faktory | FaktorySynced => self.faktory.as_deref(),
                _ => None,
            };
            command.args(self.scratch.as_deref()).args(program);
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
                let this = std::env::current_exe().map_err(Error::OwnProgram)?;
                // Counting every allocation slows the others down, so it is a program of its own.
                let mut command = match workload {
                    "timer-bytes" => Command::new(this.with_file_name("requeue-bench-bytes")),
                    _ => Command::new(this),
                };
                command.arg("measure").arg(suite).arg(system.name());
                command
            }
        };
        command.arg(workload).arg(seconds.to_string());
        command.args(self.scratch.as_deref());
        Ok(command)
    }
}
