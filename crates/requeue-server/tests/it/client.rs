//! The HTTP client against the server: unusual ids, tokens, TLS, export and import, and network
//! failures.

use crate::api::access::{FULL, READ, TokenFile};
use crate::support::{Server, client};
use requeue_http::client::{CallError, Options, Secret};
use requeue_http::{HttpStore, ProblemType};
use requeue_jobs::{
    Body, Change, ChangeKind, Changed, JobId, Jobs, Kind, MemoryStore, Missed, Put, Query,
    SCHEDULE_TIMERS, ScheduleError, ScheduleSpec, Spans, Store, StoreError, Tick, Timestamp,
    WallClock,
};
use requeue_server::auth::{Access, Right};
use requeue_server::listen::Tls;
use requeue_server::{App, BackedUp, Limits};
use requeue_testkit::{Concurrent, Direction, Proxy, Random, block_on, check_seeds};
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, process};

fn kind() -> Kind {
    Kind::new("mail").expect("a valid kind")
}

fn id(id: &str) -> JobId {
    JobId::new(id).expect("a valid id")
}

/// Ids with a special meaning in paths, queries or JSON.
const ODD: [&str; 18] = [
    ".",
    "..",
    "...",
    "/",
    "a/b",
    "//",
    "%2F",
    "%",
    "a?b",
    "a#b",
    "a&b=c+d",
    " ",
    "\n",
    "\0",
    "\"\\",
    "ü/日本",
    "../../kinds",
    "restore",
];

#[test]
fn the_stream_of_a_revoked_token_ends_with_the_reason() {
    let file = TokenFile::new("client", &format!("full {FULL}\nread {READ}\n"));
    let access = file.access();
    let store = Arc::new(MemoryStore::new());
    let app = App::new(store, WallClock::system(), Limits::default());
    let server = Server::start(&app, &access, None);
    let mut options = Options::default();
    options.token = Some(Secret::from(READ));
    let url = format!("http://{}", server.address);
    let store = HttpStore::connect_with(&url, options).expect("a valid address");
    block_on(async {
        let mut events = store.events(&[]).await.expect("the token is valid");
        file.replace(&access, &format!("full {FULL}\n"));
        match events.next().await {
            Err(CallError::Problem(problem)) => {
                assert_eq!(problem.problem_type(), ProblemType::Unauthorized);
            }
            other => panic!("no problem: {other:?}"),
        }
    });
}

#[test]
fn any_text_is_an_id() {
    let server = Server::of(MemoryStore::new());
    let store = server.client();
    block_on(async {
        let long = "\u{10FFFF}".repeat(128);
        let mut ids: Vec<&str> = ODD.into_iter().chain([&*long]).collect();
        ids.sort_unstable();
        let puts = ids.iter().map(|name| Put::new(kind(), id(name), Body::default())).collect();
        assert!(store.put(puts).await.unwrap().iter().all(Result::is_ok));
        for &name in &ids {
            let job = store.get(kind(), id(name)).await.unwrap();
            assert_eq!(job.expect(name).id, id(name));
            let (prefix, state) = (name.to_owned(), None);
            let query = Query { prefix, state, limit: 1, ..Query::new(kind()) };
            assert_eq!(store.list(query).await.unwrap().jobs[0].id, id(name));
        }
        let mut query = Query { limit: 1, ..Query::new(kind()) };
        for &name in &ids {
            let page = store.list(query.clone()).await.unwrap();
            assert_eq!(page.jobs[0].id, id(name));
            query.after = page.cursor;
        }
        assert_eq!(query.after, None);
        let cancel =
            |name: &&str| Change { kind: kind(), id: id(name), action: ChangeKind::Cancel };
        let gone = store.change(ids.iter().map(cancel).collect()).await.unwrap();
        assert!(gone.iter().all(|gone| *gone == Ok(Changed::Removed)));
        for name in ids {
            assert_eq!(store.get(kind(), id(name)).await.unwrap(), None);
        }
    });
}

#[test]
fn schedules_with_any_id_are_set_changed_run_and_removed_by_a_client() {
    let server = Server::of(MemoryStore::new());
    let store = Arc::new(server.client());
    let jobs = Jobs::new(store.clone());
    block_on(async {
        for name in ODD {
            let mut spec = ScheduleSpec::cron("*/5 9-17 * * MON-FRI", "Europe/Berlin");
            spec.content.body = Body::new(*b"hello", "text/plain").unwrap();
            (spec.missed, spec.jitter) = (Missed::All, Duration::from_secs(30));
            (spec.catch_up, spec.allow_overlap) = (Some(Duration::from_secs(3600)), true);
            spec.ends_at = Some(Timestamp::from_millis(4_000_000_000_000));
            let set = jobs.set_schedule("mail", name, spec.clone()).await.unwrap();
            assert_eq!(jobs.schedule("mail", name).await.unwrap().as_ref(), Some(&set));
            assert_eq!((set.next, &set.spec), (Some(set.next_times[0]), &spec));
            assert_eq!(jobs.schedules("mail").await.unwrap(), [set]);

            let changed = jobs.change_schedule("mail", name, |spec| spec.paused = true).await;
            assert_eq!(changed.unwrap().next, None);
            let paused = store.schedule(kind(), id(name)).await.unwrap().unwrap();
            assert!(ScheduleSpec::from_schedule(&paused).unwrap().paused);
            let resumed = jobs.change_schedule("mail", name, |spec| {
                (spec.paused, spec.allow_overlap) = (false, false);
            });
            assert!(resumed.await.unwrap().next.is_some());

            jobs.run_schedule("mail", name).await.unwrap();
            let job = jobs.get("mail", name).await.unwrap().unwrap();
            assert_eq!(job.version.content.body, spec.content.body);
            assert!(jobs.remove_schedule("mail", name).await.unwrap());
            assert!(!jobs.remove_schedule("mail", name).await.unwrap());
            assert_eq!(jobs.schedule("mail", name).await.unwrap(), None);
            let absent = jobs.change_schedule("mail", name, |_| {}).await.unwrap_err();
            assert!(matches!(absent, ScheduleError::Absent { .. }), "{absent}");
        }
    });
}

#[test]
fn a_client_cannot_tick_or_use_the_kind_of_the_timers() {
    let server = Server::of(MemoryStore::new());
    let store = server.client();
    let at = Timestamp::from_millis;
    let tick = Tick { kind: kind(), id: id("a"), expected: at(1), next: at(2), put: None };
    block_on(async {
        let error = store.tick(tick).await.unwrap_err();
        assert!(error.to_string().contains("the service starts the runs"), "{error}");
        let put = Put::new(Kind::with_reserved(SCHEDULE_TIMERS).unwrap(), id("a"), Body::default());
        let error = store.put(vec![put]).await.unwrap().remove(0).unwrap_err();
        assert!(error.to_string().contains("is reserved"), "{error}");
    });
}

#[test]
fn extreme_times_are_rejected_or_handled() {
    let server = Server::of(MemoryStore::new());
    let store = server.client();
    block_on(async {
        let mut put = Put::new(kind(), id("a"), Body::default());
        put.due = requeue_jobs::Due::At(Timestamp::from_millis(u64::MAX));
        let far = store.put(vec![put.clone()]).await.unwrap().remove(0).unwrap_err();
        let invalid = |error: &StoreError| matches!(error, StoreError::Invalid(_));
        assert!(matches!(&far, requeue_jobs::PutError::Store(error) if invalid(error)), "{far:?}");
        put.due = requeue_jobs::Due::After(Duration::MAX);
        let long = store.put(vec![put]).await.unwrap().remove(0).unwrap_err();
        assert!(
            matches!(&long, requeue_jobs::PutError::Store(error) if invalid(error)),
            "{long:?}"
        );
        let from = Timestamp::from_millis(u64::MAX);
        let spans = Spans { from, length: Duration::MAX, count: 3 };
        assert_eq!(store.upcoming(kind(), spans).await.unwrap(), [0, 0, 0]);
    });
}

/// A temporary folder that is deleted after the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("requeue-client-{name}-{}", process::id()));
        fs::create_dir_all(&path).expect("a folder for temporary files");
        Folder(path)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn certificate(folder: &Path) {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-days", "2", "-nodes", "-newkey", "ec"])
        .args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-config", "/dev/null"])
        .args(["-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "server.key", "-out", "server.crt"])
        .current_dir(folder)
        .output()
        .expect("no openssl: run scripts/test, which installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_client_works_with_tls_and_a_token() {
    let folder = Folder::new("tls");
    certificate(&folder.0);
    let tls = Tls::load(folder.path("server.crt"), folder.path("server.key")).unwrap();
    let tokens = [(Right::Full, "token-with-full-rights"), (Right::Read, "token-that-may-read")];
    let access = Access::new(tokens.map(|(right, text)| (right, text.to_owned())), None).unwrap();
    let app = App::new(Arc::new(MemoryStore::new()), WallClock::system(), Limits::default());
    let server = Server::start(&app, &access, Some(tls));
    let connect = |scheme: &str, token: Option<&str>, trusts: bool| {
        let mut options = Options::default();
        options.token = token.map(|token| token.into());
        options.ca_file = trusts.then(|| folder.path("server.crt"));
        HttpStore::connect_with(&format!("{scheme}://{}", server.address), options).unwrap()
    };
    let puts = || vec![Put::new(kind(), id("a"), Body::default())];
    block_on(async {
        let store = connect("https", Some("token-with-full-rights"), true);
        assert!(store.put(puts()).await.unwrap()[0].is_ok());
        assert!(store.get(kind(), id("a")).await.unwrap().is_some());

        let store = connect("https", Some("token-that-may-read"), true);
        assert!(store.get(kind(), id("a")).await.unwrap().is_some());
        for (store, what) in [
            (store, "the token was refused"),
            (connect("https", None, true), "the token was refused"),
            (connect("https", Some("hunter2"), true), "the token was refused"),
            (connect("https", Some("token-with-full-rights"), false), "certificate"),
        ] {
            let error = store.put(puts()).await.unwrap_err();
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
            assert!(error.to_string().contains(what), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(connect("http", Some("token-with-full-rights"), false).put(puts()).await.is_err());
    });
}

/// A reader that fails after its data.
struct Fails<'a>(&'a [u8]);

impl Read for Fails<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => Err(io::Error::other("the disk is broken")),
            count => Ok(count),
        }
    }
}

#[test]
fn a_whole_store_is_exported_and_imported() {
    let (old, new) = (Server::of(MemoryStore::new()), Server::of(MemoryStore::new()));
    let (old, new) = ((old.client(), old), (new.client(), new));
    block_on(async {
        // More than is in flight at a time.
        let body = Body::octets(vec![7; 100_000]).unwrap();
        let puts = (0..100).map(|n| Put::new(kind(), id(&n.to_string()), body.clone())).collect();
        assert!(old.0.put(puts).await.unwrap().iter().all(Result::is_ok));
        let mut file = Vec::new();
        let count = old.0.export(&mut file).await.unwrap();
        assert_eq!(count, file.len() as u64);

        let error = new.0.import(Fails(&file[..file.len() / 2])).await.unwrap_err();
        assert!(matches!(error, CallError::File(_)), "{error:?}");
        let error = new.0.import(&file[..file.len() / 2]).await.unwrap_err();
        assert!(matches!(error, CallError::Problem(_)), "{error:?}");
        let error = new.0.import(&b"nonsense\n"[..]).await.unwrap_err();
        assert!(matches!(error, CallError::Problem(_)), "{error:?}");

        let done = new.0.import(&file[..]).await.unwrap();
        assert_eq!(done["jobs"], 100);
        let job = new.0.get(kind(), id("99")).await.unwrap();
        assert_eq!(job.expect("the job was imported").version.content.body, body);
        assert_eq!(new.0.stats().await.unwrap()["pending"], 100);
    });
}

#[test]
fn a_backup_is_made_if_the_operator_enabled_backups() {
    let app = || App::new(Arc::new(MemoryStore::new()), WallClock::system(), Limits::default());
    let server = Server::start(&app(), &crate::support::open(), None);
    let error = block_on(server.client().backup(|_, _| {})).unwrap_err();
    assert!(error.to_string().contains("--backups"), "{error}");

    let made = |progress: &mut dyn FnMut(u64, u64)| {
        progress(5, 10);
        Ok(BackedUp { directory: "there".to_owned(), bytes: 10, files: 1 })
    };
    let server = Server::start(&app().with_backup(Arc::new(made)), &crate::support::open(), None);
    let mut progress = Vec::new();
    let done = block_on(server.client().backup(|bytes, of| progress.push((bytes, of)))).unwrap();
    assert_eq!((&*progress, &done["directory"]), (&[(5, 10)][..], &"there".into()));

    let failed = |_: &mut dyn FnMut(u64, u64)| Err("the disk is full".to_owned());
    let server = Server::start(&app().with_backup(Arc::new(failed)), &crate::support::open(), None);
    let error = block_on(server.client().backup(|_, _| {})).unwrap_err();
    assert_eq!(error.to_string(), "the disk is full");
}

#[test]
fn jobs_are_put_claimed_and_acked_through_a_server() {
    let server = Server::of(MemoryStore::new());
    let jobs = Jobs::new(Arc::new(server.client()));
    block_on(async {
        for n in 0..10 {
            jobs.put("mail", &n.to_string(), "hello").await.unwrap();
        }
        let mut done = 0;
        while done < 10 {
            let claim = jobs.claim(["mail"], "w").max(3).wait(Duration::from_secs(5));
            for job in claim.await.unwrap().jobs {
                assert_eq!(job.body().bytes(), b"hello");
                jobs.ack(&job.receipt).await.unwrap();
                done += 1;
            }
        }
        assert_eq!(jobs.store().kinds().await.unwrap(), []);
    });
}

fn as_stores(clients: &[HttpStore]) -> Vec<Arc<dyn Store>> {
    clients.iter().map(|client| Arc::new(client.clone()) as _).collect()
}

#[test]
fn concurrent_clients_see_the_guarantees() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let server = Server::of(MemoryStore::new());
        let clients: Vec<_> = (0..6).map(|_| server.client()).collect();
        Concurrent::default().check(&as_stores(&clients), seed, || ())
    });
}

#[test]
fn cut_connections_lose_nothing() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let server = Server::of(MemoryStore::new());
        let proxy = Proxy::to(server.address).unwrap();
        let clients: Vec<_> = (0..4).map(|_| client(proxy.address())).collect();
        let (mut random, mut cuts) = (Random::new(seed), 0);
        Concurrent::default().check(&as_stores(&clients), seed, || {
            cuts += 1;
            match random.below(4) {
                0 => proxy.cut(),
                1 => proxy.cut_after(Direction::ToServer, random.below(3000)),
                _ => proxy.cut_after(Direction::ToClient, random.below(3000)),
            }
        })?;
        assert!(cuts > 0);
        Ok(())
    });
}

#[test]
fn requests_that_arrive_after_their_timeout_break_no_guarantee() {
    check_seeds(&[], "REQUEUE_CONCURRENT", 1, |seed| {
        let server = Server::of(MemoryStore::new());
        let proxy = Proxy::to(server.address).unwrap();
        let mut options = Options::default();
        options.response_timeout = Duration::from_millis(100);
        let url = format!("http://{}", proxy.address());
        let connect = || HttpStore::connect_with(&url, options.clone()).unwrap();
        let clients: Vec<_> = (0..4).map(|_| connect()).collect();
        let mut times = 0;
        Concurrent::default().check(&as_stores(&clients), seed, || {
            proxy.hold();
            // This call times out, and so do the calls in flight.
            times += u32::from(block_on(clients[0].kinds()).is_err());
            proxy.release();
        })?;
        assert!(times > 0);
        Ok(())
    });
}
