//! The SQL statements, with the types of their parameters.
//!
//! They may run on connections with any `search_path`: that of an application, or of a database in which others can create
//! operators, functions and types. So nothing in them is looked up by it. Operators are written as `==`, built-in
//! functions and types with `pg_catalog`, and what needs more than a few of them is a function of the schema. A test
//! checks all of them.

use crate::columns::{array_types, with_columns};
use tokio_postgres::types::Type;

/// A statement.
pub(crate) struct Sql {
    pub(crate) text: String,
    pub(crate) types: Vec<Type>,
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident($($type:ident),*) = $text:expr;)*) => {
        /// All statements of a store, for its schema.
        pub(crate) struct Statements {
            $($(#[$doc])* pub(crate) $name: Sql,)*
        }

        impl Statements {
            pub(crate) fn new(schema: &str) -> Self {
                let sql = |text: &str, mut types: Vec<Type>| {
                    let with_columns = with_columns(text, types.len());
                    if text.contains("JOB_NUMBERS") {
                        types.extend(array_types());
                    }
                    let text = with_columns.replace("==", "operator(pg_catalog.=)");
                    Sql { text: in_schema(&text, schema), types }
                };
                Statements { $($name: sql($text, vec![$(Type::$type),*]),)* }
            }

            /// Returns all statements.
            pub(crate) fn all(&self) -> Vec<&Sql> {
                vec![$(&self.$name),*]
            }
        }
    };
}

statements! {
    /// The numbers of kinds, by name.
    find_kinds(TEXT_ARRAY) = "select name, kind_id from requeue.kind where name == any($1)";
    make_kinds(TEXT_ARRAY) = "select kind, kind_id from requeue._make_kinds($1)";
    kind_id(TEXT) = "select requeue._kind_id($1)";
    /// The number of a kind if the transaction sees it, and the isolation level.
    visible_kind(TEXT) =
        "select (select kind_id from requeue.kind where name == $1), \
         pg_catalog.current_setting('transaction_isolation')";
    now(INT8) = "select requeue._now($1)";
    put(
        INT8, INT4, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT2_ARRAY,
        INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, JSONB_ARRAY
    ) = "select job_id, outcome, generation from requeue._put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    put_soon(
        INT8, INT4, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT2_ARRAY,
        INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, JSONB_ARRAY
    ) = "select job_id, outcome, generation from requeue._put_soon($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, false)";
    /// The same for jobs that are probably new.
    put_new(
        INT8, INT4, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT2_ARRAY,
        INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, JSONB_ARRAY
    ) = "select job_id, outcome, generation from requeue._put_soon($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, true)";
    put_unlocked(
        INT8, INT4, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT2_ARRAY,
        INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, JSONB_ARRAY
    ) = "select job_id, outcome, generation from requeue._put_unlocked($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    reschedule(INT8, TEXT, TEXT, BYTEA, TEXT, INT8, INT8, INT2, INT8) =
        "select outcome, number from requeue._reschedule($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    cancel(TEXT, TEXT) = "select requeue.cancel($1, $2)";
    claim(
        INT8, INT4, INT4, INT8, INT8, TEXT, INT8, INT8, INT8, INT8, BOOL, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY
    ) = "select id, due, generation, attempts, created_at, fence, content_type, body, place, head \
         from requeue._claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    ack(INT4, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY) = "select requeue._ack($1, $2, $3, $4)";
    extend(INT8, INT4, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY) =
        "select id, ends_at from requeue._extend($1, $2, $3, $4, $5, $6)";
    settle(
        INT8, INT4, TEXT_ARRAY, INT8_ARRAY, INT8_ARRAY, INT2_ARRAY, INT8_ARRAY, INT4_ARRAY, TEXT_ARRAY
    ) = "select id, at, place, is_pending, settled_at, is_limited from requeue._settle($1, $2, $3, $4, $5, $6, $7, $8, $9)";

    // Calls that run the rules in this process.
    /// Locks the kind, and returns its settings.
    lock_kind(INT4) = "select requeue._lock_kind($1)";
    lock_jobs(INT4, TEXT_ARRAY) = "select JOB_COLUMNS from requeue._lock($1, $2)";
    locked_jobs(INT4, TEXT_ARRAY) = "select requeue._locked($1, $2)";
    lock_claimable(INT8, INT4, INT4, INT4, INT4, INT8) =
        "select JOB_COLUMNS from requeue._lock_claimable($1, $2, $3, $4, $5, $6)";
    lock_oldest(INT8, INT4) = "select JOB_COLUMNS from requeue._lock_oldest($1, $2)";
    lock_schedule(INT4, TEXT) =
        "select id, rule, time_zone, content_type, body, missed, next, head from requeue.schedule \
         where kind_id == $1 and id == $2 for update";
    context(INT8, INT4, INT4) =
        "select now, generation_offset, fence_offset, is_near_limit, settings, dead, done, leased, generation, fence, \
         rate_parts, rate_at, expired, numbers from requeue._context($1, $2, $3)";
    write(INT4, TEXT_ARRAY, BOOL_ARRAY) = "select requeue._write($1, $2, $3, JOB_NUMBERS)";
    add_delta(INT4, INT8, INT8, INT8, INT8, INT8, INT8, BOOL) =
        "insert into requeue.delta (kind_id, pending, leased, dead, done, generation, fence, removed) \
         values ($1, $2, $3, $4, $5, $6, $7, $8)";
    add_rate_use(INT4, INT8, INT8) = "insert into requeue.rate_use (kind_id, parts, at) values ($1, $2, $3)";
    move_schedule(INT4, TEXT, INT8) = "update requeue.schedule set next = $3 \
         where kind_id == $1 and id == $2";
    raise_offsets(INT4, INT8, INT8) =
        "select requeue._raise_offsets($1, $2, $3)";

    get(INT8, TEXT, TEXT) =
        "select requeue._now($1), JOB_COLUMNS from requeue.job \
         where kind_id == (select kind_id from requeue.kind where name == $2) and id == $3";
    /// Jobs of some lists and times, by id. One row more than fits by bytes.
    list(INT8, INT4, TEXT, TEXT, BOOL, INT4, INT4, INT8, INT8, INT4, INT8) =
        "select requeue._now($1), JOB_COLUMNS from requeue._page($2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    /// Jobs of some lists and times, by time.
    list_by_time(INT8, INT4, INT4, INT4, INT8, INT8, INT8, INT8, BOOL, INT4, INT8) =
        "select requeue._now($1), JOB_COLUMNS from requeue._page_by_time($2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    views(INT8, TEXT) =
        "select k.name, v.settings, v.pending, v.leased, v.dead, v.done, v.ready, v.oldest, v.generation, v.fence, \
         v.throttled_until, v.has_schedules from requeue.kind k cross join lateral requeue._view($1, k.kind_id) v \
         where $2 is null or k.name == $2 order by k.name";
    upcoming(INT4, INT8, INT8, INT8) =
        "select span, jobs from requeue._upcoming($1, $2, $3, $4)";
    /// Also returns those of the kinds in `$6` that exist.
    peek(INT8, INT4_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, TEXT_ARRAY) =
        "select kind, next, null from requeue._peek($1, $2, $3, $4, $5) \
         union all select kind_id, 0, name from requeue.kind where name == any($6)";
    reap(INT8, INT4, INT4, INT8) = "select dropped, expired from requeue._reap($1, $2, $3, $4)";
    idle_kinds(INT4, INT4) = "select requeue._idle_kinds($1, $2)";
    forget(INT4) = "select requeue._forget($1)";
    kind_names() = "select name, kind_id from requeue.kind order by name";

    settings(TEXT) =
        "select settings::pg_catalog.text from requeue.kind where name == $1";
    set(
        INT4, TEXT, BOOL, INT8, INT8, INT8, INT8, INT8, BOOL, INT8, INT8, INT8, INT8, INT8, INT8, INT8, INT4
    ) = "update requeue.kind set settings = $2::pg_catalog.json, paused = $3, lease = $4, concurrency = $5, rate_jobs = $6, rate_per = $7, \
         rate_burst = $8, keeps_done = $9, max_dead = $10, max_dead_age = $11, max_done = $12, max_done_age = $13, \
         max_attempts = $14, backoff_base = $15, backoff_max = $16, backoff_jitter = $17 \
         where kind_id == $1";
    reset_rate(INT4) = "delete from requeue.rate_use where kind_id == $1";
    schedules(TEXT) =
        "select id, rule, time_zone, content_type, body, missed, next, head from requeue.schedule \
         where kind_id == (select kind_id from requeue.kind where name == $1) order by id";
    schedule(TEXT, TEXT) =
        "select id, rule, time_zone, content_type, body, missed, next, head from requeue.schedule \
         where kind_id == (select kind_id from requeue.kind where name == $1) and id == $2";
    sum_schedules(INT4, TEXT) =
        "select pg_catalog.count(*), coalesce(pg_catalog.sum(pg_catalog.octet_length(body) operator(pg_catalog.+) requeue._head_len(head)), 0) from requeue.schedule \
         where kind_id == $1 and id operator(pg_catalog.<>) $2";
    set_schedule(INT4, TEXT, TEXT, TEXT, TEXT, BYTEA, INT2, INT8, JSONB) =
        "insert into requeue.schedule (kind_id, id, rule, time_zone, content_type, body, missed, next, head) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (kind_id, id) do update set rule = excluded.rule, \
         time_zone = excluded.time_zone, content_type = excluded.content_type, body = excluded.body, \
         missed = excluded.missed, next = excluded.next, head = excluded.head";
    remove_schedule(TEXT, TEXT) =
        "delete from requeue.schedule \
         where kind_id == (select kind_id from requeue.kind where name == $1) and id == $2 returning 1";
}

/// Replaces the name of the schema.
pub(crate) fn in_schema(text: &str, schema: &str) -> String {
    text.replace("requeue.", &format!("\"{schema}\".")).replace("SCHEMA", schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_has_a_type_for_each_parameter() {
        for sql in Statements::new("s").all() {
            let highest = (1..100).take_while(|n| sql.text.contains(&format!("${n}"))).count();
            assert_eq!(highest, sql.types.len(), "{}", sql.text);
            assert!(!sql.text.contains("requeue."), "{}", sql.text);
        }
    }
}
