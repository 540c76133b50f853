//! The scripts, and how they are called.

use redis::Cmd;
use std::sync::LazyLock;

/// A script that a server runs as one step.
pub(crate) struct Script {
    /// Its text, as it is loaded.
    pub(crate) text: String,
    /// What it is called by.
    pub(crate) sha: String,
    /// Whether it changes nothing.
    pub(crate) only_reads: bool,
}

impl Script {
    /// Begins a call of it: arguments follow.
    pub(crate) fn begin(&self, keys: &[String]) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.sha).arg(keys.len()).arg(keys);
        cmd
    }

    fn new(flags: &str, parts: &[&str]) -> Script {
        let text = format!("#!lua{flags}\n{}", parts.concat());
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Script { text, sha, only_reads: flags == LOOKS }
    }
}

/// A full server refuses it: it needs room for what is new.
const ADDS: &str = "";
/// It works on a full server too, so that the backlog drains.
const DRAINS: &str = " flags=allow-oom";
const LOOKS: &str = " flags=no-writes,allow-oom";

const BURY: &str = include_str!("lua/parts/bury.lua");
const FAIL: &str = include_str!("lua/parts/fail.lua");
const FREED: &str = include_str!("lua/parts/freed.lua");
const KEYS: &str = include_str!("lua/parts/keys.lua");
const EXPIRY: &str = include_str!("lua/parts/expiry.lua");
const LEAVES_EXPIRED: &str = include_str!("lua/parts/leaves_expired.lua");
const LEASE: &str = include_str!("lua/parts/lease.lua");
const MERGE: &str = include_str!("lua/parts/merge.lua");
const NOW: &str = include_str!("lua/parts/now.lua");
const PAST: &str = include_str!("lua/parts/past.lua");
const SOONEST: &str = include_str!("lua/parts/soonest.lua");
const WAKE: &str = include_str!("lua/parts/wake.lua");

/// All scripts.
pub(crate) struct Scripts {
    pub(crate) put: Script,
    /// Of what is due; it leaves leases that expired to the other.
    pub(crate) claim: Script,
    pub(crate) claim_expired: Script,
    pub(crate) ack: Script,
    pub(crate) settle: Script,
    pub(crate) change: Script,
    pub(crate) restore: Script,
    pub(crate) reap: Script,
    pub(crate) peek: Script,
    pub(crate) view: Script,
    pub(crate) facts: Script,
    pub(crate) upcoming: Script,
    pub(crate) set: Script,
    pub(crate) schedule: Script,
    pub(crate) tick: Script,
    pub(crate) register: Script,
}

pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let new = Script::new;
    let claim = include_str!("lua/claim.lua");
    Scripts {
        put: new(ADDS, &[KEYS, NOW, WAKE, PAST, MERGE, include_str!("lua/put.lua")]),
        claim: new(DRAINS, &[KEYS, NOW, LEAVES_EXPIRED, SOONEST, claim]),
        claim_expired: new(DRAINS, &[KEYS, NOW, PAST, FAIL, BURY, LEASE, EXPIRY, SOONEST, claim]),
        ack: new(DRAINS, &[KEYS, FREED, include_str!("lua/ack.lua")]),
        settle: new(
            DRAINS,
            &[KEYS, NOW, WAKE, FREED, PAST, FAIL, BURY, LEASE, include_str!("lua/settle.lua")],
        ),
        change: new(DRAINS, &[KEYS, NOW, WAKE, PAST, BURY, include_str!("lua/change.lua")]),
        restore: new(ADDS, &[KEYS, NOW, WAKE, include_str!("lua/restore.lua")]),
        reap: new(
            DRAINS,
            &[KEYS, NOW, WAKE, PAST, FAIL, BURY, LEASE, EXPIRY, include_str!("lua/reap.lua")],
        ),
        peek: new(LOOKS, &[KEYS, NOW, SOONEST, include_str!("lua/peek.lua")]),
        view: new(LOOKS, &[KEYS, NOW, include_str!("lua/view.lua")]),
        facts: new(LOOKS, &[KEYS, NOW, WAKE, include_str!("lua/facts.lua")]),
        upcoming: new(LOOKS, &[KEYS, include_str!("lua/upcoming.lua")]),
        set: new(DRAINS, &[KEYS, NOW, WAKE, include_str!("lua/set.lua")]),
        schedule: new(ADDS, &[KEYS, include_str!("lua/schedule.lua")]),
        tick: new(ADDS, &[KEYS, NOW, WAKE, PAST, MERGE, include_str!("lua/tick.lua")]),
        register: new(ADDS, &[include_str!("lua/register.lua")]),
    }
});

#[cfg(test)]
mod tests;
