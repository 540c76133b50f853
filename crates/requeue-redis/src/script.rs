//! The Lua scripts, assembled from `lua/*.lua` and `lua/parts/*.lua`.

use redis::Cmd;
use std::sync::LazyLock;

/// A Lua script, which the server runs atomically.
pub(crate) struct Script {
    /// The source, for `SCRIPT LOAD`.
    pub(crate) text: String,
    /// The SHA-1 of the source, for `EVALSHA`.
    pub(crate) sha: String,
    /// Whether the script only reads.
    pub(crate) only_reads: bool,
    /// Whether a server whose memory is full rejects it.
    pub(crate) adds: bool,
}

impl Script {
    /// Builds the `EVALSHA` command with its keys. The caller adds the arguments.
    pub(crate) fn begin(&self, keys: &[String]) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.sha).arg(keys.len()).arg(keys);
        cmd
    }

    fn new(flags: &str, parts: &[&str]) -> Script {
        let text = format!("#!lua{flags}\n{}", parts.concat());
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Script { text, sha, only_reads: flags == READ_ONLY, adds: flags == REFUSED_WHEN_FULL }
    }
}

/// Flags of a script that adds data: a server whose memory is full rejects it.
const REFUSED_WHEN_FULL: &str = "";
/// Flags of a script that also runs when memory is full, so that the backlog can drain.
const ALLOWED_WHEN_FULL: &str = " flags=allow-oom";
/// Flags of a script that only reads.
const READ_ONLY: &str = " flags=no-writes,allow-oom";

const BURY: &str = include_str!("lua/parts/bury.lua");
const DONE: &str = include_str!("lua/parts/done.lua");
const FAIL: &str = include_str!("lua/parts/fail.lua");
const FIND: &str = include_str!("lua/parts/find.lua");
const MADE: &str = include_str!("lua/parts/made.lua");
const GROW: &str = include_str!("lua/parts/grow.lua");
const KEYS: &str = include_str!("lua/parts/keys.lua");
const EXPIRY: &str = include_str!("lua/parts/expiry.lua");
const NO_EXPIRY: &str = include_str!("lua/parts/no_expiry.lua");
const LEASE: &str = include_str!("lua/parts/lease.lua");
const LISTS: &str = include_str!("lua/parts/lists.lua");
const MERGE: &str = concat!(
    include_str!("lua/parts/merge_begin.lua"),
    include_str!("lua/parts/grow.lua"),
    include_str!("lua/parts/past.lua"),
    include_str!("lua/parts/merge.lua"),
    include_str!("lua/parts/merge_end.lua"),
);
const NOW: &str = include_str!("lua/parts/now.lua");
const PAST: &str = include_str!("lua/parts/past.lua");
const OPEN_LISTS: &str = include_str!("lua/parts/open_lists.lua");
const RATE: &str = include_str!("lua/parts/rate.lua");
const SHOW: &str = include_str!("lua/parts/show.lua");
const SOONEST: &str = include_str!("lua/parts/soonest.lua");
const WAKE: &str = include_str!("lua/parts/wake.lua");

/// All scripts.
pub(crate) struct Scripts {
    pub(crate) put: Script,
    /// Claims due jobs of a kind in layout 1. If leases have expired, or the kind has layout 2, does
    /// nothing: `claim_any` must be called.
    pub(crate) claim: Script,
    pub(crate) claim_any: Script,
    pub(crate) ack: Script,
    pub(crate) settle: Script,
    pub(crate) change: Script,
    pub(crate) reschedule: Script,
    pub(crate) restore: Script,
    pub(crate) reap: Script,
    pub(crate) peek: Script,
    pub(crate) view: Script,
    pub(crate) list_by_time: Script,
    pub(crate) facts: Script,
    pub(crate) upcoming: Script,
    pub(crate) set: Script,
    pub(crate) schedule: Script,
    pub(crate) schedules: Script,
    pub(crate) tick: Script,
    pub(crate) begin: Script,
    pub(crate) register: Script,
    pub(crate) raise: Script,
    pub(crate) forget: Script,
    pub(crate) unregister: Script,
}

pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let new = Script::new;
    let claim = include_str!("lua/claim.lua");
    Scripts {
        put: new(REFUSED_WHEN_FULL, &[KEYS, NOW, LISTS, WAKE, MERGE, include_str!("lua/put.lua")]),
        claim: new(ALLOWED_WHEN_FULL, &[KEYS, NOW, LISTS, NO_EXPIRY, RATE, SOONEST, claim]),
        claim_any: new(
            ALLOWED_WHEN_FULL,
            &[KEYS, NOW, LISTS, PAST, FAIL, BURY, LEASE, EXPIRY, RATE, SOONEST, claim],
        ),
        ack: new(ALLOWED_WHEN_FULL, &[KEYS, LISTS, include_str!("lua/ack.lua")]),
        settle: new(
            ALLOWED_WHEN_FULL,
            &[
                KEYS,
                NOW,
                LISTS,
                WAKE,
                PAST,
                FAIL,
                BURY,
                LEASE,
                DONE,
                RATE,
                include_str!("lua/settle.lua"),
            ],
        ),
        change: new(
            ALLOWED_WHEN_FULL,
            &[KEYS, NOW, LISTS, OPEN_LISTS, FIND, WAKE, PAST, BURY, include_str!("lua/change.lua")],
        ),
        reschedule: new(
            REFUSED_WHEN_FULL,
            &[KEYS, NOW, LISTS, OPEN_LISTS, FIND, WAKE, MERGE, include_str!("lua/reschedule.lua")],
        ),
        restore: new(
            REFUSED_WHEN_FULL,
            &[KEYS, NOW, LISTS, MADE, GROW, WAKE, include_str!("lua/restore.lua")],
        ),
        reap: new(
            ALLOWED_WHEN_FULL,
            &[
                KEYS,
                NOW,
                LISTS,
                OPEN_LISTS,
                WAKE,
                PAST,
                FAIL,
                BURY,
                LEASE,
                DONE,
                EXPIRY,
                include_str!("lua/reap.lua"),
            ],
        ),
        peek: new(READ_ONLY, &[KEYS, NOW, LISTS, RATE, SOONEST, include_str!("lua/peek.lua")]),
        view: new(
            READ_ONLY,
            &[KEYS, NOW, LISTS, OPEN_LISTS, FIND, SHOW, include_str!("lua/view.lua")],
        ),
        list_by_time: new(
            READ_ONLY,
            &[KEYS, NOW, LISTS, OPEN_LISTS, SHOW, include_str!("lua/list_by_time.lua")],
        ),
        facts: new(READ_ONLY, &[KEYS, NOW, LISTS, WAKE, RATE, include_str!("lua/facts.lua")]),
        upcoming: new(READ_ONLY, &[KEYS, LISTS, OPEN_LISTS, include_str!("lua/upcoming.lua")]),
        set: new(
            ALLOWED_WHEN_FULL,
            &[KEYS, NOW, LISTS, MADE, GROW, WAKE, include_str!("lua/set.lua")],
        ),
        schedule: new(REFUSED_WHEN_FULL, &[KEYS, MADE, include_str!("lua/schedule.lua")]),
        schedules: new(READ_ONLY, &[KEYS, include_str!("lua/schedules.lua")]),
        tick: new(
            REFUSED_WHEN_FULL,
            &[KEYS, NOW, LISTS, FIND, WAKE, MERGE, include_str!("lua/tick.lua")],
        ),
        begin: new(REFUSED_WHEN_FULL, &[KEYS, include_str!("lua/begin.lua")]),
        register: new(REFUSED_WHEN_FULL, &[include_str!("lua/register.lua")]),
        raise: new(ALLOWED_WHEN_FULL, &[include_str!("lua/raise.lua")]),
        forget: new(ALLOWED_WHEN_FULL, &[KEYS, include_str!("lua/forget.lua")]),
        unregister: new(ALLOWED_WHEN_FULL, &[include_str!("lua/unregister.lua")]),
    }
});

#[cfg(test)]
mod tests;
