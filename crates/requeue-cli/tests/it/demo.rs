//! `demo`: everything that its scenario promises can be seen through the API, and it leaves nothing
//! behind.

use crate::support::{Dir, Server, until};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::TcpListener;

/// A running demo on a free port, whose temporary directory is in `tmp` of the test's directory.
struct Demo {
    dir: Dir,
    server: Server,
}

impl Demo {
    fn start(args: &[&str]) -> Self {
        let dir = Dir::new();
        std::fs::create_dir(dir.path("tmp")).expect("a new directory");
        let fixed = ["demo", "--listen", "127.0.0.1:0", "--no-open", "--json", "--seed", "7"];
        let mut command = dir.command(&[&fixed, args].concat());
        command.env("TMPDIR", dir.path("tmp"));
        let server = Server::of(command);
        Demo { dir, server }
    }

    fn get(&self, path: &str) -> Value {
        let body = self.dir.http_body(&self.server.url, path);
        serde_json::from_str(&body).expect(&body)
    }

    fn kind(&self, kind: &str) -> Value {
        self.get(&format!("/v1/kinds/{kind}"))
    }

    /// The jobs of a kind in a state.
    fn jobs(&self, kind: &str, state: &str) -> Vec<Value> {
        let list = self.get(&format!("/v1/kinds/{kind}/jobs?state={state}&limit=200"));
        list["jobs"].as_array().expect("a list").clone()
    }

    /// The value of a metric, or 0 as long as it does not exist.
    fn metric(&self, name: &str) -> f64 {
        let metrics = self.dir.http_body(&self.server.url, "/metrics");
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value.map_or(0.0, |value| value.trim().parse().expect(value))
    }

    /// Polls the API until it shows something.
    fn shows(&self, what: &str, check: impl Fn(&Self) -> bool) {
        until(what, || check(self).then_some(()));
    }

    /// Names of what is in the directory for temporary files.
    fn temporary(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path("tmp")).expect("it exists");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into()).collect()
    }
}

#[test]
fn everything_that_the_scenario_promises_is_visible_and_nothing_is_left_behind() {
    // Faster than usual: the test waits for the same things.
    let demo = Demo::start(&["--speed", "3"]);
    assert_eq!(demo.temporary().len(), 1);
    assert!(demo.temporary()[0].starts_with("requeue-demo-"), "{:?}", demo.temporary());

    // A minute, an hour, a day and a week ahead.
    for (span, count, kind) in
        [("1m", 1, "order.remind"), ("30m", 2, "order.remind"), ("12h", 2, "order.close")]
    {
        let upcoming = demo.get(&format!("/v1/kinds/{kind}/upcoming?span={span}&count={count}"));
        let counts = upcoming["counts"].as_array().expect("counts");
        assert!(counts.iter().all(|count| count.as_u64() > Some(0)), "{kind}: {upcoming}");
    }
    let week = demo.get("/v1/kinds/order.close/upcoming?span=1d&count=7");
    let days: Vec<_> = week["counts"].as_array().expect("counts").iter().collect();
    assert!(days.iter().all(|count| count.as_u64() > Some(50)), "{week}");

    demo.shows("a leased job", |demo| demo.get("/v1/stats")["leased"].as_u64() > Some(0));
    demo.shows("a throttled kind with a backlog", |demo| {
        let sms = demo.kind("sms.send");
        sms["throttled_until"].is_string() && sms["ready"].as_u64() > Some(5)
    });
    demo.shows("dead jobs with different errors", |demo| {
        let of_job = |job: &Value| Some(job["failures"].as_array()?.last()?["error"].to_string());
        let errors: BTreeSet<_> = demo
            .jobs("invoice.send", "dead")
            .iter()
            .filter_map(of_job)
            // The numbers of customers do not make an error another one.
            .map(|error| error.replace(|c: char| c.is_ascii_digit(), ""))
            .collect();
        errors.len() >= 2
    });
    demo.shows("done jobs with results", |demo| {
        let done = demo.jobs("order.remind", "done");
        done.iter().any(|job| job["done"]["result"]["body"]["sent_to"].is_string())
    });
    demo.shows("a job with a priority", |demo| {
        demo.jobs("order.remind", "waiting").iter().any(|job| job["priority"].as_u64() > Some(0))
    });
    demo.shows("an event that waits for its parent", |demo| {
        let waiting = demo.jobs("feed.apply", "waiting");
        waiting.iter().any(|job| job["failures"].to_string().contains("has not arrived yet"))
    });
    demo.shows("a successor of a leased job", |demo| {
        demo.jobs("feed.apply", "leased").iter().any(|job| job["next"].is_object())
    });
    demo.shows("a lease that expired", |demo| {
        demo.metric("requeue_lapses_total{kind=\"invoice.send\"}") > 0.0
    });

    let reports = demo.get("/v1/kinds/report.daily/schedules");
    let reports = reports["schedules"].as_array().expect("a list").clone();
    assert!(reports.iter().any(|schedule| schedule["time_zone"] == "Europe/Berlin"), "{reports:?}");
    assert!(reports.iter().any(|schedule| schedule["paused"] == true), "{reports:?}");
    let cleanup = demo.get("/v1/kinds/cleanup/schedules");
    assert_eq!(cleanup["schedules"][0]["every"], "1m", "{cleanup}");
    let newsletter = demo.kind("newsletter.send");
    assert_eq!(newsletter["paused"], true, "{newsletter}");
    assert_eq!(newsletter["ready"], 12, "{newsletter}");

    demo.shows("the workers", |demo| {
        let workers = demo.get("/v1/workers");
        let workers = workers["workers"].as_array().expect("a list");
        ["worker-1", "worker-2", "mailer", "feed-a"].iter().all(|name| {
            workers
                .iter()
                .any(|worker| worker["name"] == *name && worker["acked"].as_u64() > Some(0))
        })
    });
    demo.shows("deliveries to the target that works", |demo| {
        let done = "requeue_push_deliveries_total{kind=\"crm.sync\",result=\"done\"}";
        demo.metric(done) > 0.0 && demo.kind("crm.sync")["push_state"]["circuit"] == "closed"
    });
    demo.shows("the circuit of the target that is down", |demo| {
        let partner = demo.kind("partner.notify");
        partner["push_state"]["circuit"] == "open" && partner["ready"].as_u64() > Some(0)
    });

    demo.server.signal(Signal::TERM);
    let Demo { dir, server } = demo;
    assert_eq!(server.end(), Some(0));
    let left = std::fs::read_dir(dir.path("tmp")).expect("it exists").count();
    assert_eq!(left, 0, "the temporary directory was not removed");
}

#[test]
fn it_prints_what_to_do_next_and_ends_by_itself() {
    let dir = Dir::new();
    let args = ["demo", "--listen", "127.0.0.1:0", "--for", "100ms", "--data", "kept"];
    let done = dir.run(&args).ok();
    let url = done.out.split([' ', ',']).find(|word| word.starts_with("http://"));
    let url = url.expect("it prints its address").to_owned();
    let done = done.says("jobs in kept, seed ").says(&format!("\n  {url}/\n"));
    let done = done.says(&format!("requeue top --server {url}\n"));
    let done = done.says(&format!("requeue stats --server {url}\n"));
    let done = done.says("requeue ls invoice.send --state dead").says("Ctrl-C");
    done.complains("requeue serve --data kept");
    dir.run(&["stats", "--data", "kept"]).ok().says("newsletter.send");
    // A demo never uses jobs that exist.
    let again = dir.run(&args).code(1).complains("kept is not empty");
    again.complains("hint: to serve the jobs in it: requeue serve --data kept");
}

#[test]
fn invalid_options_are_rejected() {
    let dir = Dir::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("an address").to_string();
    let done = dir.run(&["demo", "--listen", &taken]).code(4);
    done.complains(&format!("could not listen on {taken}")).complains("--listen 127.0.0.1:0");
    let cases: &[(&[&str], &str)] = &[
        (&["demo", "--listen", "here"], "--listen <ADDR>"),
        (&["demo", "--listen", "0.0.0.0:0"], "0.0.0.0:0 is not a loopback address"),
        (&["demo", "--speed", "0"], "expected a number from 0.1 to 10"),
        (&["demo", "--speed", "11"], "expected a number from 0.1 to 10"),
        (&["demo", "--for", "5"], "write 5s or 5m"),
        (&["demo", "--seed", "x"], "--seed <N>"),
        (&["demo", "--server", "http://h"], "does not accept --server and --store"),
        (&["demo", "--store", "redis://h"], "does not accept --server and --store"),
    ];
    for (args, message) in cases {
        dir.run(args).code(2).complains(message);
    }
}
