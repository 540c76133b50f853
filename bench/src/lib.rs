//! What the programs that measure share: keys, timing, queues with delays, the answer.

pub mod delays;
pub mod keys;
pub mod meter;

use serde::{Deserialize, Serialize};

/// What a measuring program prints, as a line of JSON each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    /// Nanoseconds per operation, bytes per timer, calls per put, jobs per second, jobs.
    pub value: f64,
    /// Of the value.
    pub unit: Unit,
    /// What was measured besides what was asked for. `None`: just that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
}

/// What a value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// Calls of a store.
    Calls,
    /// Jobs per second.
    #[serde(rename = "jobs/s")]
    Rate,
    /// Jobs.
    Jobs,
}

impl Unit {
    /// Of rates, more is better; of all else, less.
    pub fn more_is_better(self) -> bool {
        self == Unit::Rate
    }
}

impl Measurement {
    fn new(value: f64, unit: Unit) -> Self {
        Measurement { value, unit, workload: None }
    }

    /// A time.
    pub fn ns(value: f64) -> Self {
        Measurement::new(value, Unit::Ns)
    }

    /// A number of calls.
    pub fn calls(value: f64) -> Self {
        Measurement::new(value, Unit::Calls)
    }

    /// A number of bytes.
    pub fn bytes(value: f64) -> Self {
        Measurement::new(value, Unit::Bytes)
    }

    /// Jobs per second.
    pub fn rate(value: f64) -> Self {
        Measurement::new(value, Unit::Rate)
    }

    /// A number of jobs.
    pub fn jobs(value: f64) -> Self {
        Measurement::new(value, Unit::Jobs)
    }

    /// The same, under a name of its own.
    #[must_use]
    pub fn of(self, workload: impl Into<String>) -> Self {
        Measurement { workload: Some(workload.into()), ..self }
    }

    /// Prints it for the driver to read.
    pub fn print(&self) {
        println!("{}", serde_json::to_string(self).expect("numbers and names are valid JSON"));
    }
}
