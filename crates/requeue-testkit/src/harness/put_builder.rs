//! Puts of conformance cases.

use super::{id, kind, mail, text};
use requeue_jobs::{Condition, Content, Due, Generation, Mode, Priority, Put, Timestamp};
use std::time::Duration;

/// Builds a put. By default it is of kind `mail`, due now, and its body is its id.
pub(crate) struct PutBuilder(pub(super) Put);

pub(crate) fn job(name: &str) -> PutBuilder {
    PutBuilder(Put::new(mail(), id(name), text(name)))
}

impl PutBuilder {
    pub(crate) fn of(mut self, name: &str) -> Self {
        self.0.kind = kind(name);
        self
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        self.0.content = text(body).into();
        self
    }

    pub(crate) fn carrying(mut self, content: impl Into<Content>) -> Self {
        self.0.content = content.into();
        self
    }

    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.0.due = Due::After(delay);
        self
    }

    pub(crate) fn at(mut self, at: Timestamp) -> Self {
        self.0.due = Due::At(at);
        self
    }

    pub(crate) fn mode(mut self, mode: Mode) -> Self {
        self.0.mode = mode;
        self
    }

    pub(crate) fn debounce(self, max_wait: Duration) -> Self {
        self.mode(Mode::Debounce { max_wait })
    }

    pub(crate) fn priority(mut self, level: u8) -> Self {
        self.0.priority = Priority::new(level).expect("a valid priority");
        self
    }

    pub(crate) fn if_new(mut self) -> Self {
        self.0.condition = Some(Condition::IfNew);
        self
    }

    pub(crate) fn if_absent(mut self) -> Self {
        self.0.condition = Some(Condition::IfAbsent);
        self
    }

    pub(crate) fn if_generation(mut self, generation: Generation) -> Self {
        self.0.condition = Some(Condition::IfGeneration(generation));
        self
    }
}

impl From<&str> for PutBuilder {
    fn from(name: &str) -> Self {
        job(name)
    }
}
