//! Stores behind a server, reached by the HTTP client.

pub(crate) mod instrumented;
mod own_schedules;
mod wait_counter;

use own_schedules::OwnSchedules;
use requeue::ManualClock;
use requeue_disk::DiskStore;
use requeue_http::HttpStore;
use requeue_jobs::{MemoryStore, Store, Timestamp, WallClock};
use requeue_postgres::PostgresStore;
use requeue_redis::RedisStore;
use requeue_server::auth::Access;
use requeue_server::listen::{Listener, Options, Shutdown, Tls};
use requeue_server::{App, Limits};
use requeue_testkit::servers::{PostgresServer, PostgresVersion, RedisServer};
use requeue_testkit::{Fixture, block_on};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs, process};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use wait_counter::WaitCounter;

/// The runtime of all servers.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("there are threads"));

/// A store behind its own server, with a manual clock and without a reaper: tests call reap.
pub(crate) struct Served {
    client: HttpStore,
    /// The store behind the server.
    store: Arc<dyn Store>,
    /// How many waits have begun: at the client, and at the store.
    waits: [Arc<AtomicU64>; 2],
    clock: ManualClock,
    wall_clock: WallClock,
    check: Box<dyn Fn() + Send + Sync>,
    orders_ties: bool,
    directory: Option<PathBuf>,
    _server: Server,
}

/// A server. Dropping it stops the server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shutdown: Shutdown,
}

impl Server {
    /// Serves `app` on a free port.
    pub(crate) fn start(app: &App, access: &Access, tls: Option<Tls>) -> Self {
        let tcp = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = tcp.local_addr().expect("it is bound");
        let mut listener = Listener::new(tcp, Options::default());
        if let Some(tls) = tls {
            listener = listener.with_tls(tls);
        }
        let (app, access) = (app.clone(), access.clone());
        let shutdown = app.shutdown().clone();
        RUNTIME.spawn(async move {
            app.serve_without_reaper(listener, &access, Duration::from_secs(30)).await;
        });
        Server { address, shutdown }
    }

    /// Serves `app` on a free port, reaps, and starts the runs of schedules.
    pub(crate) fn in_full(app: &App) -> Self {
        let tcp = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = tcp.local_addr().expect("it is bound");
        let listener = Listener::new(tcp, Options::default());
        let (app, shutdown) = (app.clone(), app.shutdown().clone());
        RUNTIME.spawn(async move {
            app.serve(listener, &open(), Duration::from_secs(30)).await;
        });
        Server { address, shutdown }
    }

    /// Serves a store in real time, without tokens.
    pub(crate) fn of(store: impl Store) -> Self {
        let app = App::new(Arc::new(store), WallClock::system(), Limits::default());
        Server::start(&app, &open(), None)
    }

    pub(crate) fn client(&self) -> HttpStore {
        client(self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

/// Access without tokens.
pub(crate) fn open() -> Access {
    Access::new([], None).expect("there is no file")
}

pub(crate) fn client(address: SocketAddr) -> HttpStore {
    HttpStore::connect(&format!("http://{address}")).expect("a valid address")
}

impl Served {
    /// The store in memory.
    pub(crate) fn memory() -> Self {
        let (clock, wall_clock) = time();
        let store = MemoryStore::with(wall_clock.clone());
        let mut served = Served::new(Arc::new(store.clone()), clock, wall_clock);
        served.check = Box::new(move || store.check());
        served
    }

    /// The store on disk, with little memory.
    pub(crate) fn disk() -> Self {
        let (clock, wall_clock) = time();
        let directory = env::temp_dir().join(format!("requeue-served-{}", fresh()));
        let mut options = requeue_disk::Options::default();
        options.wall_clock = wall_clock.clone();
        (options.memory, options.segment, options.background) = (4 << 10, 8 << 10, false);
        let store = DiskStore::open_with(&directory, options).expect("it opens");
        let mut served = Served::new(Arc::new(store.clone()), clock, wall_clock);
        served.check = Box::new(move || store.check());
        served.directory = Some(directory);
        served
    }

    /// The store on Redis; all tests of the process share one server.
    pub(crate) fn redis() -> Self {
        static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
        let (clock, wall_clock) = time();
        let mut options = requeue_redis::Options::default();
        options.prefix = format!("served-{}", fresh());
        let (url, at) = (SERVER.url(), Some(wall_clock.clone()));
        let store = block_on(RedisStore::connect_at(&url, options, at)).expect("it answers");
        let mut served = Served::new(Arc::new(store), clock, wall_clock);
        served.orders_ties = false;
        served
    }

    /// The store on Postgres; all tests of the process share one server.
    pub(crate) fn postgres() -> Self {
        static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| {
            PostgresServer::with(&PostgresVersion::chosen(), &["-c", "max_connections=500"])
        });
        let (clock, wall_clock) = time();
        let mut options = requeue_postgres::Options::default();
        options.schema = format!("served_{}", fresh()).replace('-', "_");
        (options.max_connections, options.listen) = (4, false);
        options.poll_interval = Duration::from_millis(20);
        let (url, at) = (SERVER.url(), Some(wall_clock.clone()));
        let store = block_on(PostgresStore::connect_at(&url, options, at)).expect("it answers");
        Served::new(Arc::new(store), clock, wall_clock)
    }

    fn new(store: Arc<dyn Store>, clock: ManualClock, wall_clock: WallClock) -> Self {
        let waits = [Arc::default(), Arc::default()];
        let store = Arc::new(WaitCounter { store, waits: Arc::clone(&waits[1]) });
        let app = App::new(store.clone(), wall_clock.clone(), Limits::default());
        let server = Server::start(&app, &open(), None);
        let client = server.client();
        let check = Box::new(|| {});
        let (orders_ties, directory) = (true, None);
        Served {
            client,
            store,
            waits,
            clock,
            wall_clock,
            check,
            orders_ties,
            directory,
            _server: server,
        }
    }

    /// Waits until all waits have reached the store: a wait that is still on its way would begin at
    /// a later time. A wait that was given up may never arrive.
    fn settle_down(&self) {
        let [sent, arrived] = &self.waits;
        let end = Instant::now() + Duration::from_secs(2);
        while arrived.load(Ordering::SeqCst) < sent.load(Ordering::SeqCst) && Instant::now() < end {
            thread::yield_now();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            drop(fs::remove_dir_all(directory));
        }
    }
}

/// Returns a unique name.
fn fresh() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn time() -> (ManualClock, WallClock) {
    let clock = ManualClock::new();
    let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
    (clock, wall_clock)
}

impl Fixture for Served {
    fn store(&self) -> Arc<dyn Store> {
        let (client, store) = (Arc::new(self.client.clone()), Arc::clone(&self.store));
        let (store, waits) = (Arc::new(OwnSchedules { client, store }), Arc::clone(&self.waits[0]));
        Arc::new(WaitCounter { store, waits })
    }

    fn now(&self) -> Timestamp {
        self.wall_clock.now()
    }

    fn advance(&self, by: Duration) {
        self.settle_down();
        self.clock.advance(by);
    }

    fn check(&self) {
        (self.check)();
    }

    fn orders_ties(&self) -> bool {
        self.orders_ties
    }

    fn reports_expired_leases(&self) -> bool {
        false
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }
}
