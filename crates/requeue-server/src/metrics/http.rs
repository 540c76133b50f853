//! Metrics of HTTP requests and connections.

use super::registered;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};
use std::time::Duration;

/// Buckets in seconds, up to the longest wait of a claim.
const DURATIONS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// Values of the label `method`. Clients may send any other word: it becomes `other`.
const METHODS: [&str; 7] = ["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"];

pub(super) struct HttpMetrics {
    requests: IntCounterVec,
    durations: HistogramVec,
    connections: IntGauge,
    waiting_claims: IntGauge,
}

impl HttpMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let requests = IntCounterVec::new(
            Opts::new(
                "requeue_http_requests_total",
                "HTTP requests by route (template of the path), method and status class.",
            ),
            &["route", "method", "status"],
        );
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "requeue_http_request_duration_seconds",
                "Time from the head of a request to the head of its response, including the wait of claims.",
            )
            .buckets(DURATIONS.to_vec()),
            &["route"],
        );
        let connections = IntGauge::new("requeue_http_connections", "Open connections.");
        let waiting_claims = IntGauge::new("requeue_waiting_claims", "Claims that wait for jobs.");
        HttpMetrics {
            requests: registered(registry, requests),
            durations: registered(registry, durations),
            connections: registered(registry, connections),
            waiting_claims: registered(registry, waiting_claims),
        }
    }

    pub(super) fn request_finished(&self, route: &str, method: &str, status: u16, took: Duration) {
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

    pub(super) fn connection(&self) -> GaugeGuard {
        GaugeGuard::new(&self.connections)
    }

    pub(super) fn waiting_claim(&self) -> GaugeGuard {
        GaugeGuard::new(&self.waiting_claims)
    }
}

/// A guard that keeps a gauge incremented until it is dropped.
#[derive(Debug)]
#[must_use = "the gauge is decremented when this is dropped"]
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    pub(super) fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        GaugeGuard(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
