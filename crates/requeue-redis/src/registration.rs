//! Creates and removes kinds. On a Cluster a kind and the set of kinds are in different slots, so several scripts do so:
//! `docs/redis-keys.md` explains how.

use crate::deployment::Deployment;
use crate::keys;
use crate::kinds::FoundKind;
use crate::reply::{self, Reply};
use crate::script::{SCRIPTS, Script};
use futures_util::future::join_all;
use redis::{Cmd, Value};
use requeue_jobs::limits::MAX_KINDS;
use requeue_jobs::{Invalid, Kind, KindView, StoreError};
use std::hash::{BuildHasher, RandomState};

/// How often a kind is registered, if others create it concurrently.
const MAKE_TRIES: usize = 20;

impl Deployment {
    /// Calls a script that creates the kind, with what it needs to do so as its first argument if the kind is
    /// registered. If it returns 0, the kind is not: registers it and calls again.
    pub(crate) async fn make(
        &self,
        script: &'static Script,
        kind: &Kind,
        add: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let mut registered = String::new();
        for _ in 0..MAKE_TRIES {
            let reply = self.run(script, kind, |cmd| {
                cmd.arg(&registered);
                add(cmd);
            });
            let reply = reply.await?;
            if reply != Value::Int(0) {
                return Ok(reply);
            }
            // Again, if others create the kind concurrently.
            registered = self.register(kind).await?;
        }
        let reason = format!("kind {kind} is created by too many others");
        Err(StoreError::Unavailable { reason })
    }

    /// Adds a kind to the kinds of the deployment. On a Cluster these are in another slot
    /// than the kind, so one script cannot do both. The name is added before the kind is created:
    /// an interruption leaves a name without a kind, which no call returns. Returns what the script that
    /// creates the kind needs.
    async fn register(&self, kind: &Kind) -> Result<String, StoreError> {
        let text = format!("{:016x}", RandomState::new().hash_one(kind.as_str()));
        let begin = |text: &str| {
            let text = text.to_owned();
            self.run(&SCRIPTS.begin, kind, move |cmd| {
                cmd.arg(text);
            })
        };
        begin(&text).await?;
        let prefix = &self.prefix;
        let keys = [keys::kinds(prefix), keys::registered(prefix), keys::removed(prefix)];
        let reply = self.of_deployment(&SCRIPTS.register, &keys, |cmd| {
            cmd.arg(kind.as_str()).arg(MAX_KINDS);
        });
        let mut reply = Reply::of(reply.await?)?;
        let count = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        if count > 0 {
            begin("").await?;
            return Err(Invalid::TooMany { what: "kinds", count, limit: MAX_KINDS }.into());
        }
        Ok(format!("{text} {} {}", reply.text()?, reply.text()?))
    }

    /// Removes those of these kinds that have no jobs, settings and schedules. New kinds begin with higher numbers than
    /// theirs.
    pub(crate) async fn forget(&self, kinds: &[Kind]) -> Result<(), StoreError> {
        let prefix = &self.prefix;
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(keys::registered(prefix));
        for kind in kinds {
            cmd.arg(kind.as_str());
        }
        let mut registrations = Reply::of(self.read(prefix, cmd).await?)?;
        let found = join_all(kinds.iter().map(|kind| self.facts(kind))).await;
        let mut idle = Vec::new();
        for (kind, found) in kinds.iter().zip(found) {
            let registration = match registrations.next()? {
                Value::Nil => String::new(),
                number => reply::text(number)?,
            };
            let FoundKind { view, is_shown } = found?;
            idle.extend((!is_shown).then_some((kind, registration, view)));
        }
        let highest = |of: fn(&KindView) -> u64| idle.iter().map(|(.., view)| of(view)).max();
        let (Some(generation), Some(fence)) =
            (highest(|view| view.generation.0), highest(|view| view.fence.0))
        else {
            return Ok(());
        };
        self.of_deployment(&SCRIPTS.raise, &[keys::removed(prefix)], |cmd| {
            cmd.arg(generation).arg(fence);
        })
        .await?;
        let forget = |kind| {
            self.run(&SCRIPTS.forget, kind, |cmd| {
                cmd.arg(generation).arg(fence);
            })
        };
        let replies = join_all(idle.iter().map(|(kind, ..)| forget(kind))).await;
        let mut removed = Vec::new();
        for ((kind, registration, _), reply) in idle.into_iter().zip(replies) {
            removed.extend((reply? == Value::Int(1)).then_some((kind, registration)));
        }
        let keys = [keys::kinds(prefix), keys::registered(prefix)];
        self.of_deployment(&SCRIPTS.unregister, &keys, |cmd| {
            for (kind, registration) in removed {
                cmd.arg(kind.as_str()).arg(registration);
            }
        })
        .await?;
        Ok(())
    }
}
