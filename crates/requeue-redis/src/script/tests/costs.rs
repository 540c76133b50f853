//! The number of Redis commands per call.

use super::*;
use std::collections::BTreeMap;

/// Returns the commands that a call runs, from the statistics of the server. Nothing else may use
/// the server.
fn commands(
    server: &RedisServer,
    runner: &mut ScriptRunner,
    script: &Script,
    args: impl ToRedisArgs,
) -> String {
    server.command(&["CONFIG", "RESETSTAT"]);
    runner.call(script, args);
    let stats = server.command(&["INFO", "commandstats"]);
    let mut counts = BTreeMap::new();
    for line in stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")) {
        let (name, rest) = line.split_once(":calls=").expect("a number of calls");
        let (calls, _) = rest.split_once(',').expect("more fields");
        counts.insert(name, calls);
    }
    // Leaves out the call of the script and the commands of this test.
    counts.retain(|name, _| !name.contains('|') && !["eval", "info", "hello"].contains(name));
    let counts: Vec<_> = counts.iter().map(|(name, calls)| format!("{name} {calls}")).collect();
    counts.join(", ")
}

#[test]
fn a_batch_of_fifty_jobs_runs_few_more_commands_than_one_job() {
    let server = RedisServer::start();
    let mut runner = ScriptRunner::new(&server, "costs");
    runner.put(NOW, &["first"]);
    for (count, from) in [(50_u64, 0), (1, 50)] {
        let ids: Vec<_> = (from..from + count).map(|number| format!("job-{number:02}")).collect();
        let puts: Vec<_> = ids.iter().map(|id| (id, of("body"))).collect();
        let put = commands(&server, &mut runner, &SCRIPTS.put, ("", MADE, 0, "", "", puts));
        let reads = "exists 1, hmget 1";
        assert_eq!(put, format!("{reads}, hset 2, time 1, zadd 1, zmscore 1, zrange 1"));

        runner.call(&SCRIPTS.change, (NOW, "first", "c"));
        let claim = ("", count, "", NONCE, "worker", 1000, MAX_RESULT_BYTES);
        let claim = commands(&server, &mut runner, &SCRIPTS.claim, claim);
        // Records are read sixteen at a time, because they may be large.
        let reads = 1 + count.div_ceil(16);
        // In a large claim, an entry that makes the keys of leases tables is removed again.
        let (hdel, zrem) = if count == 50 { ("hdel 1, ", 2) } else { ("", 1) };
        let writes = format!("hset 2, time 1, zadd 1, zrange 2, zrem {zrem}");
        assert_eq!(claim, format!("exists 1, {hdel}hmget {reads}, {writes}"));
        if count == 50 {
            let encoding = |key: &str| {
                let key = format!("{{desk:costs}}:{key}");
                server.command(&["OBJECT", "ENCODING", &key])
            };
            assert_eq!(encoding("lease"), "hashtable");
            assert_eq!(encoding("leased"), "skiplist");
        }

        let fence: u64 = runner.ask("HGET", "meta", &["fence"]).parse().expect("a number");
        let first = fence + 1 - count;
        let acks: Vec<_> = ids.iter().zip(first..).map(|(id, n)| (id, proof(n))).collect();
        let ack = commands(&server, &mut runner, &SCRIPTS.ack, ("", acks));
        assert_eq!(ack, "exists 2, hdel 2, hmget 2, zrem 1");
        assert_eq!(runner.ask("EXISTS", "job", &[]), "0", "all jobs are removed");
        runner.put(NOW, &["first"]);
    }
}

#[test]
fn a_page_by_time_does_not_cost_more_if_there_are_more_jobs() {
    let server = RedisServer::start();
    for (kind, jobs) in [("few", 500), ("many", 20_000)] {
        let mut runner = ScriptRunner::new(&server, kind);
        // All in one millisecond: a cursor can be anywhere among them.
        let ids: Vec<String> = (0..jobs).map(|number| format!("{number:05}")).collect();
        for ids in ids.chunks(500) {
            runner.put(NOW, &ids.iter().map(String::as_str).collect::<Vec<_>>());
        }
        for newest in [0, 1] {
            let page = (NOW, "r", newest, NOW, &ids[jobs / 3], 50, 1 << 20);
            let list = commands(&server, &mut runner, &SCRIPTS.list_by_time, page);
            // The levels; then the record and the past of each job.
            let (reads, ranges) = list.rsplit_once(' ').expect("a number of calls");
            assert_eq!(reads, "hget 101, zcount 4, zrange");
            // The entries of the page, and a binary search among those of the same time.
            let ranges: u32 = ranges.parse().expect("a number of calls");
            assert!(ranges <= 2 + jobs.ilog2(), "{ranges} calls of ZRANGE for {jobs} jobs");
        }
    }
}

#[test]
fn the_largest_batches_fit_into_a_script() {
    let mut runner = ScriptRunner::of("large");
    // As many as one call can put or claim, and more than Lua can unpack by default.
    for half in 0..2 {
        let ids: Vec<_> = (0..500).map(|number| format!("job-{half}-{number:03}")).collect();
        let refused = ids.iter().map(|id| (id, 0, "ra", of("body"))).collect::<Vec<_>>();
        runner.call(&SCRIPTS.put, (NOW, MADE, "", "", "", &refused));
        let exists = runner.call(&SCRIPTS.put, (NOW, MADE, "", "", "", &refused));
        assert_eq!(exists.matches('E').count(), 500, "{exists}");
    }
    runner.claim(NOW, 1000);
    assert_eq!(runner.ask("HLEN", "lease", &[]), "1000");
    let expired = runner.claim(NOW + 5000, 1000);
    let ids: Vec<_> = (0..2).flat_map(|half| (0..500).map(move |n| (half, n))).collect();
    for (half, number) in ids.chunks(500).zip([0, 500]) {
        let acks: Vec<_> = half
            .iter()
            .zip(expired + number..)
            .map(|((half, n), fence)| (format!("job-{half}-{n:03}"), proof(fence)))
            .collect();
        assert_eq!(runner.call(&SCRIPTS.ack, (NOW + 5000, acks)), "A".repeat(500));
    }
    assert_eq!(runner.ask("EXISTS", "past", &[]), "0");
}
