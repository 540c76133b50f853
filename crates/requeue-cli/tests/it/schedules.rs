//! `requeue schedule`, on a server, a data directory, Redis and Postgres.

use crate::support::{Dir, until};
use requeue_testkit::servers::{PostgresServer, RedisServer};
use serde_json::json;

#[test]
fn a_schedule_is_set_shown_paused_run_and_removed_on_every_store() {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    let [redis_url, postgres_url] = [redis.url(), postgres.url()];
    let (served, plain) = (Dir::served(), Dir::new());
    let places = [
        (&served, served.place()),
        (&plain, plain.place()),
        (&plain, ["--store", &redis_url]),
        (&plain, ["--store", &postgres_url]),
    ];
    for (dir, place) in places {
        let ask = |args: &[&str]| dir.run(&[&["schedule"], args, &place].concat());
        let set =
            ["set", "report", "daily", "{\"at\":\"{{scheduled_at}}\"}", "--cron", "0 9 1 1 *"];
        let set = [&set[..], &["--time-zone", "Europe/Berlin", "--priority", "3"]].concat();
        ask(&set).ok().says("set report/daily, next run 20");
        let every = ["set", "poll", "inbox", "--every", "90s", "--missed", "all"];
        let every = [&every[..], &["--catch-up", "2h", "--overlap", "allow", "--json"]].concat();
        let every = ask(&every).ok().json();
        assert_eq!((&every["every"], &every["overlap"]), (&json!("1m30s"), &json!("allow")));
        assert_eq!((&every["missed"], &every["catch_up"]), (&json!("all"), &json!("2h")));

        let listed = ask(&["ls"]).ok().says("KIND    ID     TIMES        ZONE           NEXT");
        listed.says("report  daily  0 9 1 1 *    Europe/Berlin  in ").says("every 1m30s");
        let listed = ask(&["ls", "report", "--json"]).ok().lines();
        let shown = ask(&["show", "report", "daily", "--json"]).ok().json();
        assert_eq!(listed, std::slice::from_ref(&shown));
        assert_eq!(shown["next"], shown["next_times"][0]);
        let shown = ask(&["show", "report", "daily"]).ok().says("times         0 9 1 1 *");
        shown.says("priority      3").says("body          {\"at\":\"{{scheduled_at}}\"}");

        ask(&["pause", "report", "daily"]).ok().says("paused report/daily");
        ask(&["show", "report", "daily"]).ok().says("next          paused");
        let next = ask(&["next", "report", "daily", "-n", "2"]).ok().complains("is paused");
        assert_eq!(next.out.lines().count(), 3, "{}", next.out);
        ask(&["resume", "report", "daily"]).ok().says("resumed report/daily, next run");
        let run = ask(&["run", "report", "daily", "--json"]).ok().json();
        // In Postgres, kinds share a sequence of generations.
        let generation = run["generation"].as_u64();
        assert!(generation.is_some_and(|generation| generation >= 1), "{run}");
        let created = json!({
            "kind": "report", "id": "daily", "outcome": "created", "generation": generation,
        });
        assert_eq!(run, created);
        let job =
            dir.run(&[&["get", "report", "daily", "--json"], &place[..]].concat()).ok().json();
        assert!(job["body"]["at"].as_str().is_some_and(|at| at.starts_with("20")), "{job}");

        ask(&["rm", "report", "daily"]).ok().says("removed report/daily");
        let absent = "there is no schedule \"daily\" of kind report";
        for verb in ["rm", "show", "pause", "resume", "run", "next"] {
            ask(&[verb, "report", "daily"]).code(3).complains(absent);
        }
        let never = ["set", "report", "daily", "--cron", "0 0 31 2 *"];
        ask(&never).code(2).complains("\"0 0 31 2 *\" never fires");
        ask(&["rm", "poll", "inbox"]).ok();
        ask(&["ls"]).ok().complains("there are no schedules");
    }
}

#[test]
fn the_next_times_of_an_expression_need_no_store() {
    let dir = Dir::new();
    let berlin = ["schedule", "next", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin"];
    let next = dir.run(&[&berlin[..], &["-n", "7"]].concat()).ok();
    let next = next.says("UTC                  Europe/Berlin").says(" 02:30:00 CE");
    assert_eq!(next.out.lines().count(), 8, "{}", next.out);
    let next = dir.run(&[&berlin[..], &["--json"]].concat()).ok().lines();
    assert_eq!(next.len(), 5);
    assert!(next[0]["local"].as_str().is_some_and(|at| at.contains(":00+0")), "{}", next[0]);
    let next = dir.run(&["schedule", "next", "--every", "1d", "-n", "1", "--json"]).ok().json();
    assert!(next["time"].as_str().is_some_and(|at| at.ends_with("T00:00:00.000Z")), "{next}");
    assert_eq!(next.get("local"), None);
}

#[test]
fn a_served_schedule_runs() {
    let dir = Dir::served();
    dir.ask(&["schedule", "set", "poll", "inbox", "hello", "--every", "1s"]).ok();
    let job = until("a run", || {
        let claimed = dir.ask(&["claim", "poll", "--json"]);
        (claimed.code == Some(0)).then(|| claimed.json())
    });
    assert_eq!((&job["id"], &job["body_text"]), (&json!("inbox"), &json!("hello")));
}
