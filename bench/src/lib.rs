//! Shared code of the programs that measure: keys, timing, queues with delays, results.

pub mod delays;
pub mod keys;
pub mod meter;

use serde::{Deserialize, Serialize};

/// A result that a measuring program prints, as a line of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    /// Nanoseconds per operation, bytes per timer, commands per job, jobs per second, jobs.
    pub value: f64,
    /// The unit of the value.
    pub unit: Unit,
    /// The name of an additional result. `None` for the result of the workload itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
}

/// The unit of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// In bytes.
    Bytes,
    /// Commands of a store, or a ratio.
    Calls,
    /// Jobs per second.
    #[serde(rename = "jobs/s")]
    Rate,
    /// Jobs.
    Jobs,
}

impl Unit {
    /// Returns whether higher is better: for rates it is, for all else it is not.
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

    /// Returns the same result with a name of its own.
    #[must_use]
    pub fn of(self, workload: impl Into<String>) -> Self {
        Measurement { workload: Some(workload.into()), ..self }
    }

    /// Prints the result for the driver.
    pub fn print(&self) {
        println!("{}", serde_json::to_string(self).expect("numbers and names are valid JSON"));
    }
}
