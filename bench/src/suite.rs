//! The workloads of each suite, and the systems that are measured on them.

use crate::system::System::{self, *};

pub(crate) struct Workload {
    pub(crate) name: String,
    /// requeue first, then the other systems: the order within a round.
    pub(crate) systems: Vec<System>,
    /// Whether it is measured once, because the result is always the same or takes minutes.
    pub(crate) once: bool,
    /// The number of pending jobs before it begins, in a queue that is kept.
    pub(crate) pending: Option<usize>,
}

const BY_KEY: &[System] = &[Requeue, RequeueString, ClientGo];
const READY: &[System] = &[Requeue, ClientGo];
const DELAYED: &[System] = &[Requeue, ClientGo, TokioUtil, TokioUtilKeyed, Java];
const LATE: &[System] = &[Requeue, ClientGo, TokioUtil, Java];
const PRIORITY: &[System] = &[Requeue, ControllerRuntime];
const FAIR: &[System] = &[Requeue, RequeueFifo];
const WORKER: &[System] = &[Requeue, ControllerRuntime];
const WORKER_TASKS: &[System] = &[Requeue, ControllerRuntime, KubeRuntime];
const PUT: &[System] = &[Requeue, Fdatasync, Beanstalkd, Fjall];
const MIXED: &[System] = &[Requeue, Beanstalkd, Fjall];
const COMMIT: &[System] = &[Requeue, Fdatasync];
const ALONE: &[System] = &[Requeue];
const REDIS: &[System] = &[Requeue, Asynq, BullMq, Apalis];
const REDIS_PUT: &[System] = &[Requeue, Asynq, BullMq, Apalis, RedisSet, RedisZadd];
const REDIS_PROCESS: &[System] = &[Requeue, Asynq, BullMq, Apalis, ApalisUnlocked];
const POSTGRES: &[System] = &[Requeue, Pgmq, GraphileWorker, River, PgBoss];
const POSTGRES_LATE: &[System] = &[Requeue, RequeuePolling, Pgmq, GraphileWorker, River, PgBoss];
const HTTP: &[System] = &[Requeue, RequeueInProcess, Beanstalkd, Faktory];
const HTTP_WAIT: &[System] = &[Requeue, Beanstalkd];
const BROKERS: &[System] =
    &[RequeueRabbitMq, RabbitMqTtl, RequeueNats, NatsSchedule, RequeueKafka, RocketMq];

const CORE: &[(&str, &[System])] = &[
    ("cycle-1", BY_KEY),
    ("cycle-1k", BY_KEY),
    ("cycle-100k", BY_KEY),
    ("cycle-1k-fused", BY_KEY),
    ("cycle-1k-metrics", BY_KEY),
    ("dedupe-hot", BY_KEY),
    ("dedupe-cold", BY_KEY),
    ("contended-2x2", READY),
    ("contended-8x8", READY),
    ("contended-tokio", READY),
    ("add-after-1m", DELAYED),
    ("reschedule-1m", DELAYED),
    ("timer-bytes", DELAYED),
    ("lateness", LATE),
    ("retry-loop", READY),
    ("wake", READY),
    ("priority-cycle", PRIORITY),
    ("priority-contended", PRIORITY),
    ("priority-add-after", PRIORITY),
    ("fair-1", FAIR),
    ("fair-100", FAIR),
    ("fair-100k", FAIR),
    ("worker-threads", WORKER),
    ("worker-threads-4", WORKER),
    ("worker-tokio", WORKER_TASKS),
    ("worker-tokio-4", WORKER_TASKS),
];

/// Name, systems, and whether it is measured once.
const DISK: &[(&str, &[System], bool)] = &[
    ("put-1", PUT, false),
    ("put-32", PUT, false),
    ("put-256", PUT, false),
    ("put-1000", PUT, false),
    ("mixed-1m", MIXED, false),
    ("mixed-1m-256", MIXED, false),
    ("commit-p99", COMMIT, false),
    ("claim-1k", ALONE, true),
    ("claim-1m", ALONE, true),
    ("claim-10m", ALONE, true),
    ("churn-1m", ALONE, true),
    ("churn-10m", ALONE, true),
    ("reopen-1m", ALONE, true),
    ("reopen-10m", ALONE, true),
];

/// Columns as in `DISK`.
const ON_REDIS: &[(&str, &[System], bool)] = &[
    ("bulk-put", REDIS_PUT, false),
    ("put-50", REDIS_PUT, false),
    ("process-50", REDIS_PROCESS, false),
    ("lateness", REDIS, false),
    ("idle", REDIS, true),
    ("memory", REDIS, true),
];

/// Columns as in `DISK`.
const ON_POSTGRES: &[(&str, &[System], bool)] = &[
    ("cpu-bulk", POSTGRES, false),
    ("process-50", POSTGRES, false),
    ("lateness", POSTGRES_LATE, false),
    ("bytes", POSTGRES, true),
    // Ten minutes each.
    ("held-snapshot", &[Requeue, Pgmq, River], true),
    ("pending-10m", &[Requeue, Pgmq], true),
];

/// Columns as in `DISK`.
const OVER_HTTP: &[(&str, &[System], bool)] = &[
    ("put-1", HTTP, false),
    ("put-1-c16", HTTP, false),
    ("put-100", HTTP, false),
    ("cycle-1", HTTP, false),
    ("cycle-1-c16", HTTP, false),
    ("cycle-100", HTTP, false),
    ("waiting-10k", HTTP_WAIT, true),
];

/// Columns as in `DISK`. There is no peer that can be installed everywhere.
const PUSH: &[(&str, &[System], bool)] = &[
    ("schedules", ALONE, false),
    ("push", ALONE, false),
    ("push-lateness", ALONE, false),
    ("push-10k", ALONE, true),
];

/// Columns as in `DISK`. The name is that of a language, with the number of concurrent handlers.
const CLIENTS: &[(&str, &[System], bool)] = &[
    ("python-10", &[Requeue, RequeueThreads, RequeueOnDisk, Rq, Celery, Dramatiq], false),
    ("python-50", &[Requeue, RequeueThreads, RequeueOnDisk, Dramatiq], false),
    ("node-10", &[Requeue, RequeueOnDisk, BullMq], false),
    ("node-50", &[Requeue, RequeueOnDisk, BullMq], false),
    ("go-10", &[Requeue, RequeueOnDisk, Asynq], false),
    ("go-50", &[Requeue, RequeueOnDisk, Asynq], false),
];

/// Columns as in `DISK`.
const BRIDGE: &[(&str, &[System], bool)] = &[
    ("throughput", BROKERS, false),
    ("lateness", BROKERS, false),
    ("mixed-lateness", &[RequeueRabbitMq, RabbitMqTtl], false),
];

/// The numbers of pending jobs, by the names that workloads have for them.
pub(crate) const POPULATIONS: [(&str, usize); 3] =
    [("1k", 1_000), ("1m", 1_000_000), ("10m", 10_000_000)];

/// Returns the workloads of a suite, or `None` if it does not exist.
pub(crate) fn workloads(suite: &str, quick: bool) -> Option<Vec<Workload>> {
    match suite {
        "core" => Some(core(quick)),
        "wheel" => Some(wheel(quick)),
        "disk" => Some(disk(quick)),
        "redis" => Some(each(ON_REDIS)),
        "postgres" => Some(postgres(quick)),
        "http" => Some(each(OVER_HTTP)),
        "push" => Some(each(PUSH)),
        "clients" => Some(each(CLIENTS)),
        "bridge" => Some(each(BRIDGE)),
        _ => None,
    }
}

fn core(quick: bool) -> Vec<Workload> {
    // A quick run has no time for a peer that takes as long as client-go, nor for workers
    // that differ little from those with one runner.
    let in_time = |system: &System| !quick || *system != TokioUtilKeyed;
    let of_interest = |name: &str| !quick || !matches!(name, "worker-threads-4" | "worker-tokio-4");
    let workload = |&(name, systems): &(&str, &[System])| Workload {
        name: name.to_owned(),
        systems: systems.iter().copied().filter(in_time).collect(),
        once: name == "timer-bytes",
        pending: None,
    };
    CORE.iter().filter(|(name, _)| of_interest(name)).map(workload).collect()
}

fn wheel(quick: bool) -> Vec<Workload> {
    let workload = |name: &str| Workload {
        name: name.to_owned(),
        systems: ALONE.to_vec(),
        once: false,
        pending: None,
    };
    let names = ["reschedule-1k", "reschedule-10m"];
    names.into_iter().filter(|name| !quick || !name.ends_with("-10m")).map(workload).collect()
}

fn disk(quick: bool) -> Vec<Workload> {
    let in_time = |name: &str| !quick || !(name.ends_with("-10m") || name == "mixed-1m-256");
    let pending = |name: &str| match name {
        "mixed-1m" | "mixed-1m-256" | "reopen-1m" => Some(1_000_000),
        "reopen-10m" => Some(10_000_000),
        _ => None,
    };
    let workload = |&(name, systems, once): &(&str, &[System], bool)| Workload {
        name: name.to_owned(),
        systems: systems.to_vec(),
        once,
        pending: pending(name),
    };
    DISK.iter().filter(|(name, ..)| in_time(name)).map(workload).collect()
}

fn each(workloads: &[(&str, &[System], bool)]) -> Vec<Workload> {
    let workload = |&(name, systems, once): &(&str, &[System], bool)| Workload {
        name: name.to_owned(),
        systems: systems.to_vec(),
        once,
        pending: None,
    };
    workloads.iter().map(workload).collect()
}

fn postgres(quick: bool) -> Vec<Workload> {
    let mut workloads = each(ON_POSTGRES);
    // It takes minutes to insert ten million jobs.
    workloads.retain(|workload| !quick || workload.name != "pending-10m");
    workloads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_suites_are_part_of_the_whole_ones() {
        for suite in
            ["core", "wheel", "disk", "redis", "postgres", "http", "push", "clients", "bridge"]
        {
            let names = |quick| -> Vec<String> {
                let workloads = workloads(suite, quick).expect("there is such a suite");
                workloads.into_iter().map(|workload| workload.name).collect()
            };
            assert!(names(true).iter().all(|name| names(false).contains(name)));
        }
        assert!(workloads("disc", true).is_none());
    }

    #[test]
    fn each_workload_begins_with_ours() {
        for suite in ["core", "wheel", "disk", "redis", "http", "push", "clients", "bridge"] {
            let workloads = workloads(suite, false).expect("there is such a suite");
            assert!(workloads.iter().all(|workload| workload.systems[0].is_ours()));
        }
    }
}
