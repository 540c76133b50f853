//! Requests and connections.

use super::registered;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};
use std::time::Duration;

/// In seconds: up to a claim that waits.
const DURATIONS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// A client may send any word for a method: these are told apart.
const METHODS: [&str; 7] = ["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"];

pub(super) struct Http {
    requests: IntCounterVec,
    durations: HistogramVec,
    connections: IntGauge,
    waiting_claims: IntGauge,
}

impl Http {
    pub(super) fn new(registry: &Registry) -> Self {
        let requests = IntCounterVec::new(
            Opts::new(
                "requeue_http_requests_total",
                "Requests that were answered, by the template of their path.",
            ),
            &["route", "method", "status"],
        );
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "requeue_http_request_duration_seconds",
                "How long requests took, from the head to the answer's head; claims wait.",
            )
            .buckets(DURATIONS.to_vec()),
            &["route"],
        );
        let connections = IntGauge::new("requeue_http_connections", "Connections that are open.");
        let waiting_claims = IntGauge::new("requeue_waiting_claims", "Claims that wait for jobs.");
        Http {
            requests: registered(registry, requests),
            durations: registered(registry, durations),
            connections: registered(registry, connections),
            waiting_claims: registered(registry, waiting_claims),
        }
    }

    pub(super) fn answered(&self, route: &str, method: &str, status: u16, took: Duration) {
        let method = METHODS.into_iter().find(|known| *known == method).unwrap_or("other");
        let status = match status {
            100..200 => "1xx",
            200..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            _ => "5xx",
        };
        self.requests.with_label_values(&[route, method, status]).inc();
        self.durations.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    pub(super) fn connection(&self) -> Counted {
        Counted::new(&self.connections)
    }

    pub(super) fn waiting_claim(&self) -> Counted {
        Counted::new(&self.waiting_claims)
    }
}

/// Is counted until it is dropped.
#[derive(Debug)]
#[must_use = "it is counted until it is dropped"]
pub struct Counted(IntGauge);

impl Counted {
    pub(super) fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Counted(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
