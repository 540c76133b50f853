//! The permissions of a Redis user, as listed in `docs/redis-keys.md`. With all of them everything
//! works; without any one of them something fails; and they allow nothing outside of the prefix.

use requeue::ManualClock;
use requeue_jobs::{
    Body, Change, ChangeKind, Claim, Condition, Due, Fence, Generation, JobId, JobState, JobView,
    Kind, Missed, Mode, Priority, Put, Query, Receipt, Restore, Retention, Schedule, Settings,
    Settle, Settlement, Spans, Store, Tick, TickJob, TimeQuery, Timestamp, Version, WallClock,
    WorkerName,
};
use requeue_redis::{Options, RedisConnectError, RedisStore};
use requeue_testkit::block_on;
use requeue_testkit::servers::{RedisCluster, RedisServer, until};
use std::collections::BTreeSet;
use std::time::Duration;

const PAGE: &str = include_str!("../../../../docs/redis-keys.md");

/// The permissions on the page: what follows the name and password of the user.
fn rights() -> Vec<&'static str> {
    let (_, rest) =
        PAGE.split_once("ACL SETUSER shop on >secret").expect("the page contains the command");
    let (rights, _) = rest.split_once("```").expect("the code block ends");
    rights.split_whitespace().filter(|word| *word != "\\").collect()
}

fn grant(server: &RedisServer, rights: &[&str]) {
    let user = ["ACL", "SETUSER", "shop", "reset", "on", ">secret"];
    assert_eq!(server.command(&[&user, rights].concat()), "OK");
}

/// Returns the commands, keys and channels that were denied, from the ACL log of the server.
fn refused(server: &RedisServer) -> Vec<String> {
    let log = server.command(&["ACL", "LOG"]);
    let lines: Vec<_> = log.lines().collect();
    let objects = lines.windows(2).filter(|pair| pair[0] == "object");
    objects.map(|pair| pair[1].to_owned()).collect()
}

fn connect(url: &str, prefix: &str) -> Result<(RedisStore, ManualClock), RedisConnectError> {
    let mut options = Options::default();
    options.prefix = prefix.to_owned();
    let clock = ManualClock::new();
    let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
    Ok((block_on(RedisStore::connect_at(url, options, Some(wall_clock)))?, clock))
}

/// The address with the login of that user.
fn url(server: &RedisServer) -> String {
    format!("redis://shop:secret@{}", server.address())
}

fn kind() -> Kind {
    Kind::new("order.close").expect("a valid kind")
}

fn id(id: &str) -> JobId {
    JobId::new(id).expect("a valid id")
}

/// Calls all operations of the store, and ignores their results.
struct AllOperations<'a> {
    store: &'a RedisStore,
    clock: &'a ManualClock,
}

impl AllOperations<'_> {
    fn all(&self) {
        self.jobs();
        self.kinds();
        // The kind now keeps done jobs.
        self.jobs();
        self.reads();
    }

    fn put(&self, job: &str, mode: Mode, condition: Option<Condition>) {
        let put = Put { mode, condition, ..Put::new(kind(), id(job), Body::default()) };
        drop(block_on(self.store.put(vec![put])));
    }

    fn claim(&self) -> Vec<Receipt> {
        let worker = WorkerName::new("worker").expect("a valid name");
        let claim = Claim { kinds: vec![kind()], max: 10, lease: None, worker, nonce: 7 };
        let claimed = block_on(self.store.claim(claim)).unwrap_or_default();
        claimed.jobs.into_iter().map(|job| job.receipt).collect()
    }

    fn settle(&self, action: &Settlement) {
        self.put("job", Mode::Replace, None);
        for receipt in self.claim() {
            drop(block_on(self.store.settle(vec![Settle { receipt, action: action.clone() }])));
        }
    }

    fn change(&self, job: &str, action: ChangeKind) {
        drop(block_on(self.store.change(vec![Change { kind: kind(), id: id(job), action }])));
    }

    fn jobs(&self) {
        self.put("job", Mode::Replace, Some(Condition::IfAbsent));
        self.put("job", Mode::Earliest, None);
        let receipts = self.claim();
        self.put("job", Mode::Keep, None);
        self.change("job", ChangeKind::RunNow);
        self.change("job", ChangeKind::Cancel);
        for receipt in receipts {
            let extend = Settle { receipt: receipt.clone(), action: Settlement::Extend(None) };
            drop(block_on(self.store.settle(vec![extend])));
            drop(block_on(self.store.settle(vec![Settle { receipt, action: Settlement::Ack }])));
        }
        let error = String::from("why");
        for action in [
            Settlement::RequeueAfter(Duration::ZERO),
            Settlement::Release,
            Settlement::Retry { delay: Some(Duration::ZERO), error: error.clone() },
            Settlement::Retry { delay: None, error: error.clone() },
            Settlement::Bury { error },
        ] {
            self.settle(&action);
        }
        self.change("job", ChangeKind::Revive);
        self.claim();
        self.clock.advance(Duration::from_secs(60));
        drop(block_on(self.store.reap(10)));
        let job = JobView::new(
            kind(),
            id("new"),
            Version { generation: Generation(5), ..Version::default() },
        );
        let (generation, fence) = (Generation(5), Fence(5));
        let restore = Restore { kind: kind(), generation, fence, jobs: vec![job] };
        drop(block_on(self.store.restore(restore)));
    }

    fn kinds(&self) {
        let mut settings = Settings::default();
        settings.concurrency = Some(3);
        settings.keep_done = Some(Retention { age: Duration::from_secs(60), count: 1 });
        drop(block_on(self.store.set(kind(), settings)));
        drop(block_on(self.store.settings(kind())));
        let next = Timestamp::from_millis(1_700_000_000_000);
        let (when, time_zone, body) = (String::new(), String::new(), Body::default());
        let schedule = Schedule {
            id: id("s"),
            when,
            time_zone,
            content: body.into(),
            missed: Missed::One,
            next,
        };
        drop(block_on(self.store.set_schedule(kind(), schedule, Default::default())));
        let (body, priority) = (Body::default(), Priority::default());
        let put = Some(TickJob { id: id("s"), content: body.into(), priority });
        let tick = Tick { kind: kind(), id: id("s"), expected: next, next, put };
        drop(block_on(self.store.tick(tick)));
        drop(block_on(self.store.schedules(kind())));
        drop(block_on(self.store.remove_schedule(kind(), id("s"))));
    }

    fn reads(&self) {
        drop(block_on(self.store.get(kind(), id("job"))));
        drop(block_on(self.store.list(Query::new(kind()))));
        let by_time = TimeQuery::new(kind(), JobState::Ready);
        drop(block_on(self.store.list_by_time(by_time)));
        drop(block_on(self.store.kinds()));
        let spans = Spans { from: Timestamp::default(), length: Duration::from_secs(1), count: 1 };
        drop(block_on(self.store.upcoming(kind(), spans)));
        drop(block_on(self.store.check()));
    }
}

/// Calls all operations with these permissions.
fn call_all(server: &RedisServer, rights: &[&str]) -> Result<(), RedisConnectError> {
    for words in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"], &["ACL", "LOG", "RESET"]] {
        assert_eq!(server.command(words), "OK");
    }
    grant(server, rights);
    let (store, clock) = connect(&url(server), "shop")?;
    AllOperations { store: &store, clock: &clock }.all();
    // One put that uses the clock of the server.
    let mut options = Options::default();
    options.prefix = "shop".to_owned();
    let other = block_on(RedisStore::connect_with(&url(server), options))?;
    let mut put = Put::new(kind(), id("now"), Body::default());
    put.due = Due::After(Duration::from_secs(1));
    drop(block_on(other.put(vec![put])));
    // One put of a new kind when the number of kinds has reached its limit.
    let fill = "for i = 1, 10000 do redis.call('SADD', KEYS[1], i) end return 'OK'";
    assert_eq!(server.command(&["EVAL", fill, "1", "{shop}:kinds"]), "OK");
    let one_more = Kind::new("one-more").expect("a valid kind");
    drop(block_on(other.put(vec![Put::new(one_more, id("job"), Body::default())])));
    // It removes some that have nothing.
    drop(block_on(other.reap(10)));
    drop(block_on(other.wait(vec![kind()], Duration::from_millis(1))));
    let channel = "{shop:order.close}:wake";
    until("it listens, or is refused", || {
        let listens = server.command(&["PUBSUB", "NUMSUB", channel]).ends_with("\n1");
        listens || refused(server).iter().any(|what| what == "subscribe" || what == channel)
    });
    Ok(())
}

#[test]
fn the_documented_permissions_are_sufficient() {
    let server = RedisServer::start();
    call_all(&server, &rights()).expect("the user may connect");
    assert_eq!(refused(&server), Vec::<String>::new());
}

#[test]
fn each_documented_permission_is_needed() {
    let server = RedisServer::start();
    let all = rights();
    for right in &all {
        let rest: Vec<_> = all.iter().copied().filter(|other| other != right).collect();
        let what = match right.strip_prefix('+') {
            // Used only after a connection was idle for a quarter of a minute.
            Some("ping") => continue,
            Some(command) => command,
            None if right.starts_with('&') => "{shop:order.close}:wake",
            None if right.contains("}:*") && right.contains("shop:") => "{shop:order.close}:due",
            None => "{shop}:",
        };
        // A failure to connect proves the need as well.
        drop(call_all(&server, &rest));
        let refused = refused(&server);
        assert!(refused.iter().any(|refused| refused.starts_with(what)), "{right}: {refused:?}");
    }
}

#[test]
fn a_cluster_needs_two_more_permissions() {
    let cluster = RedisCluster::start(3, 0);
    let url = cluster.url().replace("://", "://shop:secret@");
    let (slot, asked) = (cluster.slot("shop:order.close"), "+asking");
    assert!(PAGE.contains("on a Cluster `+cluster|slots +asking`"));
    for (more, missing) in [
        (&["+cluster|slots", asked][..], None),
        (&["+cluster|slots"], Some("asking")),
        (&[asked], Some("cluster|slots")),
    ] {
        let rights = [&rights()[..], more].concat();
        for node in cluster.nodes() {
            node.command(&["FLUSHALL"]);
            node.command(&["ACL", "LOG", "RESET"]);
            grant(node, &rights);
        }
        let connected = connect(&url, "shop");
        assert_eq!(connected.is_err(), missing == Some("cluster|slots"));
        if let Ok((store, clock)) = connected {
            let everything = AllOperations { store: &store, clock: &clock };
            everything.all();
            // A migrating slot: keys on the target node need ASKING.
            let to = (cluster.owner(slot) + 1) % 3;
            cluster.begin_move(slot, to);
            cluster.move_keys(slot, to);
            everything.put("job", Mode::Replace, None);
            cluster.end_move(slot, to);
        }
        let refused: BTreeSet<_> = cluster.nodes().iter().flat_map(refused).collect();
        let expected = missing.into_iter().map(str::to_owned).collect();
        assert_eq!(refused, expected);
    }
}

#[test]
fn the_documented_permissions_are_limited_to_the_prefix() {
    let server = RedisServer::start();
    grant(&server, &rights());
    for prefix in ["other", "shop2", "sho", "shop.x"] {
        let error =
            connect(&url(&server), prefix).err().expect("the prefix belongs to another user");
        assert!(matches!(error, RedisConnectError::Refused { .. }), "{prefix}: {error}");
        assert!(error.to_string().contains("NOPERM"), "{prefix}: {error}");
    }
    let as_shop = ["--user", "shop", "--pass", "secret"];
    for words in [
        &["GET", "other"][..],
        &["KEYS", "*"],
        &["FLUSHALL"],
        &["CONFIG", "GET", "*"],
        &["SUBSCRIBE", "{other:k}:wake"],
        &["EVAL", "return redis.call('GET', 'other')", "0"],
    ] {
        let reply = server.command(&[&as_shop, words].concat());
        assert!(reply.contains("NOPERM"), "{words:?}: {reply}");
    }
}
