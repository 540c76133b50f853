//! The format of traces; `conformance/README.md` describes it.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub(crate) struct Trace {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) config: BTreeMap<String, serde_json::Value>,
    pub(crate) steps: Vec<Step>,
}

impl Trace {
    pub(crate) fn limiter(&self) -> Tree {
        let tree = self.config.get("limiter").expect("this kind has a limiter");
        serde_json::from_value(tree.clone()).expect("a limiter tree")
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) op: String,
    pub(crate) key: Option<String>,
    pub(crate) ns: Option<i64>,
    #[serde(default)]
    pub(crate) when_ns: Vec<i64>,
    pub(crate) n: Option<usize>,
    pub(crate) value: Option<bool>,
    #[serde(default)]
    pub(crate) shutdown: bool,
    #[serde(default)]
    pub(crate) blocked: bool,
    pub(crate) woke: Option<Got>,
    pub(crate) len: Option<usize>,
    #[serde(default)]
    pub(crate) drained: Vec<bool>,
    pub(crate) m: Option<Measured>,
    // Fields of the priority kind.
    #[serde(default)]
    pub(crate) keys: Vec<String>,
    pub(crate) priority: Option<i32>,
    #[serde(default)]
    pub(crate) rate_limited: bool,
}

/// The result of a `get`.
#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Got {
    pub(crate) key: Option<String>,
    #[serde(default)]
    pub(crate) shutdown: bool,
    pub(crate) priority: Option<i32>,
}

/// The metrics after a step, and the observations during it.
#[derive(Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measured {
    /// Negative after a stray `done`.
    pub(crate) depth: i64,
    pub(crate) adds: u64,
    pub(crate) retries: u64,
    pub(crate) unfinished: f64,
    pub(crate) longest: f64,
    #[serde(default)]
    pub(crate) latency: Vec<f64>,
    #[serde(default)]
    pub(crate) work: Vec<f64>,
}

/// A tree of limiters.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Tree {
    Exponential { preset: Option<String>, base_ns: u64, max_ns: u64 },
    FastSlow { fast_ns: u64, slow_ns: u64, max_fast_attempts: i64 },
    Bucket { qps: f64, burst: u32 },
    MaxOf { preset: Option<String>, limiters: Vec<Tree> },
    WithMaxWait { limiter: Box<Tree>, max_ns: u64 },
}
