//! What the programs that measure share: keys, timing, queues with delays, the answer.

pub mod delays;
pub mod keys;
pub mod meter;

use serde::{Deserialize, Serialize};

/// What a measuring program prints, as one line of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    /// Nanoseconds per operation, bytes per timer, or calls per put.
    pub value: f64,
    /// Of the value.
    pub unit: Unit,
}

/// What a value counts. Of all, less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// Calls of a store.
    Calls,
}

impl Measurement {
    /// A time.
    pub fn ns(value: f64) -> Self {
        Measurement { value, unit: Unit::Ns }
    }

    /// A number of calls.
    pub fn calls(value: f64) -> Self {
        Measurement { value, unit: Unit::Calls }
    }

    /// Prints it for the driver to read.
    pub fn print(&self) {
        println!("{}", serde_json::to_string(self).expect("numbers and names are valid JSON"));
    }
}
