//! Messages with delays: requeue's bridge between brokers, compared with what the brokers offer themselves.
//!
//! Every broker and requeue's server sync a message to the disk before they confirm it.

mod brokers;
#[cfg(feature = "kafka")]
mod kafka;
mod load;
mod nats;
mod ours;
mod rabbitmq;
mod rocketmq;

pub(crate) use brokers::{Broker, Brokers};

use super::place::Place;
use super::{tokio_with_io, usage};
use crate::system::System::{self, *};
#[cfg(feature = "kafka")]
use kafka::Kafka;
use load::{Consumer, Delivered, Load, Publisher};
use nats::Nats;
use ours::Requeue;
use rabbitmq::Rabbit;
use requeue_bench::Measurement;
use rocketmq::Client;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The amount of work of a measurement.
struct Size {
    /// Before the measurement: connections are opened and code is compiled.
    warm_up: usize,
    /// The messages of `throughput`.
    messages: usize,
    /// The messages of the other workloads.
    late: usize,
}

const FULL: Size = Size { warm_up: 2_000, messages: 20_000, late: 1_600 };
const QUICK: Size = Size { warm_up: 500, messages: 5_000, late: 400 };

/// The delay of all messages in `throughput`.
const SHORT: Duration = Duration::from_millis(500);
/// The time between two messages, except in `throughput`: 200 per second.
const INTERVAL: Duration = Duration::from_millis(5);
/// The number of different delays, except in `throughput`: from one to three seconds, 100 ms apart.
const DELAYS: u32 = 21;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    Throughput,
    Lateness,
    /// Messages with different delays share a queue, if the system has queues for delays.
    MixedLateness,
}

impl Workload {
    fn named(name: &str) -> Option<Self> {
        match name {
            "throughput" => Some(Workload::Throughput),
            "lateness" => Some(Workload::Lateness),
            "mixed-lateness" => Some(Workload::MixedLateness),
            _ => None,
        }
    }

    /// Returns the load that is measured.
    fn load(self, size: &Size) -> Load {
        match self {
            Workload::Throughput => {
                Load { count: size.messages, interval: Duration::ZERO, delays: vec![SHORT] }
            }
            Workload::Lateness | Workload::MixedLateness => Load {
                count: size.late,
                interval: INTERVAL,
                // Long and short delays follow each other.
                delays: (0..DELAYS)
                    .map(|n| Duration::from_millis(1000 + 100 * u64::from(n * 8 % DELAYS)))
                    .collect(),
            },
        }
    }
}

/// What a system did with the load, without the warm-up.
struct Result {
    delivered: Delivered,
    broker_cpu: Duration,
    /// That of requeue's processes, if there are any.
    own_cpu: Option<Duration>,
}

/// `program` is that of requeue, or the folder of RocketMQ. Returns `None` if the system has no such
/// workload.
pub(crate) fn measure(
    system: System,
    workload: &str,
    budget: Duration,
    scratch: PathBuf,
    broker: Broker,
    program: Option<&Path>,
) -> Option<Vec<Measurement>> {
    let size = if budget < Duration::from_millis(500) { QUICK } else { FULL };
    let place = Place::new(Some(scratch));
    let kind = Workload::named(workload)?;
    let name = format!("orders-{}", std::process::id());
    let setup = Setup {
        place: &place,
        broker,
        program,
        name: &name,
        workload: kind,
        warm_up: Load { count: size.warm_up, interval: Duration::ZERO, ..kind.load(&size) },
        load: kind.load(&size),
    };
    let result = match system {
        RocketMq => setup.rocketmq()?,
        _ => tokio_with_io().block_on(setup.run(system))?,
    };
    Some(match kind {
        Workload::Throughput => throughput(workload, &result),
        _ => lateness(workload, &result),
    })
}

struct Setup<'a> {
    place: &'a Place,
    broker: Broker,
    program: Option<&'a Path>,
    /// A prefix for queues and topics, different for each measurement.
    name: &'a str,
    workload: Workload,
    warm_up: Load,
    load: Load,
}

impl Setup<'_> {
    async fn run(&self, system: System) -> Option<Result> {
        match system {
            RequeueRabbitMq | RabbitMqTtl => self.rabbitmq(system).await,
            RequeueNats | NatsSchedule => self.nats(system).await,
            #[cfg(feature = "kafka")]
            RequeueKafka => self.kafka().await,
            _ => None,
        }
    }

    async fn rabbitmq(&self, system: System) -> Option<Result> {
        let delay = match (system, self.workload) {
            (RequeueRabbitMq, _) => rabbitmq::Delay::Header,
            (_, Workload::MixedLateness) => rabbitmq::Delay::MessageTtl,
            _ => rabbitmq::Delay::QueueTtl,
        };
        let mut client = Rabbit::connect(self.broker.port, self.name).await;
        let consumer = client.consume().await;
        let requeue = match delay {
            rabbitmq::Delay::Header => {
                Some(self.requeue("amqp", &client.delayed_exchange(), &client.exchange())?)
            }
            _ => None,
        };
        let publisher = client.publisher(delay, &self.load.delays).await;
        let result = self.measured(requeue, publisher, consumer).await;
        client.clean_up().await;
        Some(result)
    }

    async fn nats(&self, system: System) -> Option<Result> {
        let delay = match system {
            RequeueNats => nats::Delay::Header,
            _ => nats::Delay::Schedule,
        };
        let client = Nats::connect(self.broker.port, self.name).await;
        let consumer = client.consume(delay).await;
        let requeue = match delay {
            nats::Delay::Header => {
                Some(self.requeue("nats", &client.delayed_subject(), &client.due_subject())?)
            }
            nats::Delay::Schedule => None,
        };
        let result = self.measured(requeue, client.publisher(delay), consumer).await;
        client.clean_up().await;
        Some(result)
    }

    #[cfg(feature = "kafka")]
    async fn kafka(&self) -> Option<Result> {
        let client = Kafka::connect(self.broker.port, self.name).await;
        let requeue = self.requeue("kafka", &client.delayed_topic(), &client.due_topic())?;
        Some(self.measured(Some(requeue), client.publisher(), client.consume()).await)
    }

    /// Starts requeue between two places of the broker.
    fn requeue(&self, scheme: &str, from: &str, to: &str) -> Option<Requeue> {
        let address = format!("127.0.0.1:{}", self.broker.port);
        let url = |place: &str| format!("{scheme}://{address}/{place}");
        Some(Requeue::start(self.program?, self.place, &address, &url(from), &url(to)))
    }

    /// Runs the warm-up and the load. Stops requeue afterwards.
    async fn measured(
        &self,
        requeue: Option<Requeue>,
        mut publisher: impl Publisher,
        consumer: impl Consumer,
    ) -> Result {
        let (_, consumer) = self.warm_up.run("warm", &mut publisher, consumer).await;
        let broker_before = usage::cpu_time(self.broker.pid);
        let own_before = requeue.as_ref().map(Requeue::cpu_time);
        let (delivered, _) = self.load.run("load", &mut publisher, consumer).await;
        let own_after = requeue.as_ref().map(Requeue::cpu_time);
        Result {
            delivered,
            broker_cpu: usage::cpu_time(self.broker.pid) - broker_before,
            own_cpu: own_after.zip(own_before).map(|(after, before)| after - before),
        }
    }

    fn rocketmq(&self) -> Option<Result> {
        let dir = self.place.fresh("rocketmq-client");
        let mut client = Client::start(self.program?, &dir, self.broker.port, self.name);
        client.run(&self.warm_up, "warm");
        let before = usage::cpu_time(self.broker.pid);
        let delivered = client.run(&self.load, "load");
        let broker_cpu = usage::cpu_time(self.broker.pid) - before;
        Some(Result { delivered, broker_cpu, own_cpu: None })
    }
}

fn throughput(name: &str, result: &Result) -> Vec<Measurement> {
    let count = result.delivered.late_ns.len() as f64;
    let per_message = |time: Duration| Measurement::ns(time.as_nanos() as f64 / count);
    let rate = Measurement::rate(count / result.delivered.took.as_secs_f64());
    let own = result.own_cpu.map(|cpu| per_message(cpu).of(format!("{name}-cpu")));
    let broker = per_message(result.broker_cpu).of("broker-cpu");
    [rate].into_iter().chain(own).chain([broker]).collect()
}

/// Early messages count as not late.
fn lateness(name: &str, result: &Result) -> Vec<Measurement> {
    let mut late = result.delivered.late_ns.clone();
    late.sort_unstable();
    let ns = |at: usize, part: &str| {
        Measurement::ns(late[at].max(0) as f64).of(format!("{name}-{part}"))
    };
    let early = late.iter().filter(|&&late| late < 0).count();
    vec![
        ns(late.len() / 2, "p50"),
        ns(late.len() * 99 / 100, "p99"),
        ns(late.len() - 1, "max"),
        Measurement::jobs(early as f64).of(format!("{name}-early")),
    ]
}
