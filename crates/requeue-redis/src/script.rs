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

const ADD_LEVELS: &str = include_str!("lua/parts/add_levels.lua");
const BASES: &str = include_str!("lua/parts/bases.lua");
const CONTENT_BYTES: &str = include_str!("lua/parts/content_bytes.lua");
const BURY: &str = include_str!("lua/parts/bury.lua");
const CHOOSE: &str = include_str!("lua/parts/choose.lua");
const DONE: &str = include_str!("lua/parts/done.lua");
const EXTEND: &str = include_str!("lua/parts/extend.lua");
const EXPIRY: &str = include_str!("lua/parts/expiry.lua");
const FAIL: &str = include_str!("lua/parts/fail.lua");
const FAILURE: &str = include_str!("lua/parts/failure.lua");
const FIND: &str = include_str!("lua/parts/find.lua");
const KEYS: &str = include_str!("lua/parts/keys.lua");
const LEASE: &str = include_str!("lua/parts/lease.lua");
const LEVEL: &str = include_str!("lua/parts/level.lua");
const LIMITS: &str = include_str!("lua/parts/limits.lua");
const MADE: &str = include_str!("lua/parts/made.lua");
const MAX_DELAY: &str = include_str!("lua/parts/max_delay.lua");
const MERGE: &str = include_str!("lua/parts/merge.lua");
const NOW: &str = include_str!("lua/parts/now.lua");
const NUMBERS: &str = include_str!("lua/parts/numbers.lua");
const PAST: &str = include_str!("lua/parts/past.lua");
const RELEASE: &str = include_str!("lua/parts/release.lua");
const SCORE: &str = include_str!("lua/parts/score.lua");
const SHOW: &str = include_str!("lua/parts/show.lua");
const SOONEST: &str = include_str!("lua/parts/soonest.lua");
const WAKE: &str = include_str!("lua/parts/wake.lua");

/// Wraps parts that most calls do not need into a function `NAME(now)`. Every function that a script defines makes
/// every call slower, and more so if it refers to local variables of the script: these parts have their own.
fn loader(name: &str, parts: &[&str], returns: &str) -> String {
    format!("local function {name}(now)\n{}return {returns}\nend\n", parts.concat())
}

/// All scripts.
pub(crate) struct Scripts {
    pub(crate) put: Script,
    pub(crate) claim: Script,
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
    let merge = &*loader("load_merge", &[KEYS, LEVEL, SCORE, PAST, MERGE], "merge");
    let limits = &*loader("load_limits", &[KEYS, NUMBERS, LEVEL, BASES, LIMITS], "limits");
    let ends = [KEYS, NUMBERS, LEVEL, SCORE, BASES, PAST, FAIL, BURY, LEASE, EXPIRY];
    let choose = [&ends[..], &[CONTENT_BYTES, CHOOSE]].concat();
    let choose = &*loader("load_choose", &choose, "choose");
    let done =
        &*loader("load_done", &[KEYS, NUMBERS, LEVEL, SCORE, PAST, BURY, LEASE, DONE], "keep_done");
    let ended = [KEYS, NOW, NUMBERS, LEVEL, SCORE, WAKE, PAST, FAIL, BURY, LEASE];
    let new = |flags, parts: &[&str], script| Script::new(flags, &[parts, &[script]].concat());
    Scripts {
        put: new(
            REFUSED_WHEN_FULL,
            &[KEYS, NOW, NUMBERS, LEVEL, SCORE, ADD_LEVELS, WAKE, MAX_DELAY, merge],
            include_str!("lua/put.lua"),
        ),
        claim: new(
            ALLOWED_WHEN_FULL,
            &[KEYS, NOW, NUMBERS, LEVEL, limits, SOONEST, CONTENT_BYTES, choose],
            include_str!("lua/claim.lua"),
        ),
        ack: new(ALLOWED_WHEN_FULL, &[KEYS], include_str!("lua/ack.lua")),
        settle: new(
            ALLOWED_WHEN_FULL,
            &[&ended[..], &[EXTEND, RELEASE, FAILURE, limits, done]].concat(),
            include_str!("lua/settle.lua"),
        ),
        change: new(
            ALLOWED_WHEN_FULL,
            &[KEYS, NOW, NUMBERS, LEVEL, SCORE, FIND, WAKE, PAST, BURY],
            include_str!("lua/change.lua"),
        ),
        reschedule: new(
            REFUSED_WHEN_FULL,
            &[KEYS, NOW, NUMBERS, LEVEL, SCORE, ADD_LEVELS, FIND, WAKE, MAX_DELAY, merge],
            include_str!("lua/reschedule.lua"),
        ),
        restore: new(
            REFUSED_WHEN_FULL,
            &[KEYS, NOW, NUMBERS, LEVEL, SCORE, ADD_LEVELS, MADE, WAKE],
            include_str!("lua/restore.lua"),
        ),
        reap: new(
            ALLOWED_WHEN_FULL,
            &[&ended[..], &[DONE, BASES, EXPIRY]].concat(),
            include_str!("lua/reap.lua"),
        ),
        peek: new(
            READ_ONLY,
            &[KEYS, NOW, NUMBERS, LEVEL, limits, SOONEST],
            include_str!("lua/peek.lua"),
        ),
        view: new(
            READ_ONLY,
            &[KEYS, NOW, NUMBERS, LEVEL, FIND, SHOW],
            include_str!("lua/view.lua"),
        ),
        list_by_time: new(
            READ_ONLY,
            &[KEYS, NOW, NUMBERS, LEVEL, BASES, SHOW],
            include_str!("lua/list_by_time.lua"),
        ),
        facts: new(
            READ_ONLY,
            &[KEYS, NOW, NUMBERS, LEVEL, SCORE, BASES, WAKE, limits],
            include_str!("lua/facts.lua"),
        ),
        upcoming: new(READ_ONLY, &[KEYS, NUMBERS, LEVEL, BASES], include_str!("lua/upcoming.lua")),
        set: new(ALLOWED_WHEN_FULL, &[KEYS, NOW, NUMBERS, MADE, WAKE], include_str!("lua/set.lua")),
        schedule: new(REFUSED_WHEN_FULL, &[KEYS, MADE], include_str!("lua/schedule.lua")),
        schedules: new(READ_ONLY, &[KEYS], include_str!("lua/schedules.lua")),
        tick: new(
            REFUSED_WHEN_FULL,
            &[KEYS, NOW, NUMBERS, LEVEL, SCORE, ADD_LEVELS, FIND, WAKE, MAX_DELAY, merge],
            include_str!("lua/tick.lua"),
        ),
        begin: new(REFUSED_WHEN_FULL, &[KEYS], include_str!("lua/begin.lua")),
        register: new(REFUSED_WHEN_FULL, &[], include_str!("lua/register.lua")),
        raise: new(ALLOWED_WHEN_FULL, &[], include_str!("lua/raise.lua")),
        forget: new(ALLOWED_WHEN_FULL, &[KEYS], include_str!("lua/forget.lua")),
        unregister: new(ALLOWED_WHEN_FULL, &[], include_str!("lua/unregister.lua")),
    }
});

#[cfg(test)]
mod tests;
