//! Requests that examine many jobs: filtered counts and lists, groups of errors, counts by due time, changes
//! by filter.
//!
//! Each takes up to a second of processor time. They must not delay puts and claims, so they run beside them:
//!
//! ```text
//!   request ──▶ at most 8 of a node, and a share per token ──▶ thread ──▶ a page of 100 jobs, in turn
//!               otherwise it waits for 5 s, then 503                       with the other scans
//! ```
//!
//! - Their work is done on threads for blocking work, never on those that serve requests.
//! - One page is examined at a time per four processors, so most processors are left to others. Scans
//!   take turns with each page: a short one does not wait for the end of a long one. A count by due time is
//!   one page, because the store does all of it.
//! - Memory for a page is reserved before its turn. Whoever has a turn waits for no memory: those that hold
//!   the memory may wait for the turn.
//! - A scan whose client has gone ends with the page.

use crate::app::App;
use crate::auth::{Caller, Right};
use crate::response_memory::{ResponseMemory, ResponseRoom};
use crate::shares::{SharedLimit, Slot};
use futures_executor::block_on;
use requeue_http::{Problem, ProblemType};
use requeue_jobs::{
    Kind, Layered, Page, Query, Spans, Store, StoreError, StoreFuture, TimePage, TimeQuery,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// How many scans a node runs concurrently.
const MAX_SCANS: usize = 8;

/// How long a scan waits until it may begin.
const WAIT: Duration = Duration::from_secs(5);

/// The scans of a node.
pub(crate) struct Scans {
    limit: SharedLimit,
    /// Permission to examine a page.
    turns: Arc<Semaphore>,
}

impl Default for Scans {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Scans {
            limit: SharedLimit::new("scans", MAX_SCANS, Right::Read),
            turns: Arc::new(Semaphore::new(processors.div_ceil(4))),
        }
    }
}

/// Permission for one scan.
pub(crate) struct ScanSlot {
    app: App,
    _slot: Slot,
    /// Memory is reserved for each page. Otherwise the caller has reserved enough.
    reserves: bool,
}

impl App {
    /// Waits for permission to examine many jobs. Fails with `busy` if too many scans run.
    pub(crate) async fn scan_slot(&self, caller: &Caller) -> Result<ScanSlot, Problem> {
        let slot = self.scans().limit.wait(caller, 1, WAIT).await?;
        Ok(ScanSlot { app: self.clone(), _slot: slot, reserves: true })
    }
}

impl ScanSlot {
    /// Reserves no memory, because the caller has done so.
    pub(crate) fn with_own_memory(self) -> Self {
        ScanSlot { reserves: false, ..self }
    }

    /// Runs `work` with a store whose lists wait for their turns.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl AsyncFnOnce(&dyn Store) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let abandoned = CancellationToken::new();
        let store = PacedStore {
            store: Arc::clone(self.app.store()),
            turns: Arc::clone(&self.app.scans().turns),
            turn: Mutex::default(),
            memory: self.reserves.then(|| self.app.response_memory().clone()),
            abandoned: abandoned.clone(),
        };
        let _abandoned_on_drop = abandoned.drop_guard();
        let tasks = self.app.tasks().clone();
        let scanned = tasks.spawn_blocking(move || {
            let _slot = self;
            block_on(work(&store))
        });
        let panicked =
            |_| Problem::new(ProblemType::Bug, "the request panicked; see the log of the server");
        scanned.await.map_err(panicked)?
    }
}

/// A store whose lists wait for their turns. A turn lasts until the next list: what is done with the jobs
/// of a page belongs to it.
struct PacedStore {
    store: Arc<dyn Store>,
    turns: Arc<Semaphore>,
    turn: Mutex<Option<Turn>>,
    memory: Option<ResponseMemory>,
    /// The client has gone.
    abandoned: CancellationToken,
}

/// Permission to examine a page, and the memory for it.
struct Turn {
    _permit: OwnedSemaphorePermit,
    _room: Option<ResponseRoom>,
}

impl PacedStore {
    fn set_turn(&self, turn: Option<Turn>) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = turn;
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.turns).acquire_owned().await;
        permit.expect("this semaphore is never closed")
    }

    /// Waits for the next turn, and for memory for a page of jobs if there is `memory`.
    async fn next_turn(&self, memory: Option<&ResponseMemory>) -> Result<(), StoreError> {
        // Given back first: others wait for it.
        self.set_turn(None);
        let mut permit = self.permit().await;
        let room = match memory.map(|memory| (memory, memory.try_for_page())) {
            None => None,
            Some((_, Some(room))) => Some(room),
            // Others may hold it and wait for this turn.
            Some((memory, None)) => {
                drop(permit);
                let room = memory.for_page().await.map_err(unavailable)?;
                permit = self.permit().await;
                Some(room)
            }
        };
        if self.abandoned.is_cancelled() {
            return Err(StoreError::Unavailable { reason: "the client has gone".to_owned() });
        }
        self.set_turn(Some(Turn { _permit: permit, _room: room }));
        Ok(())
    }
}

fn unavailable(busy: Problem) -> StoreError {
    StoreError::Unavailable { reason: busy.detail }
}

impl Layered for PacedStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            self.next_turn(self.memory.as_ref()).await?;
            self.store.list(query).await
        })
    }

    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        Box::pin(async move {
            self.next_turn(self.memory.as_ref()).await?;
            self.store.list_by_time(query).await
        })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Box::pin(async move {
            // It returns numbers only.
            self.next_turn(None).await?;
            self.store.upcoming(kind, spans).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Limits;
    use crate::auth::Access;
    use crate::listen::Delivery;
    use axum::body::Body;
    use axum::http::Request;
    use axum::response::Response;
    use requeue_jobs::{JobId, Kind, MemoryStore, Put, WallClock};
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    const LONG: Duration = Duration::from_secs(20);

    /// A store with a thousand jobs whose lists block their thread until they are let go.
    struct SlowLists {
        store: MemoryStore,
        is_open: std::sync::Mutex<bool>,
        opened: Condvar,
        /// How many lists have begun, and how many run.
        begun: AtomicUsize,
        running: AtomicUsize,
    }

    impl SlowLists {
        async fn new() -> Arc<Self> {
            let store = MemoryStore::new();
            let job = |n| {
                let id = JobId::new(format!("{n:04}")).expect("an id");
                Put::new(Kind::new("mail").expect("a kind"), id, requeue_jobs::Body::default())
            };
            store.put((0..1000).map(job).collect()).await.expect("the store works");
            let (is_open, opened) = (std::sync::Mutex::default(), Condvar::new());
            let (begun, running) = (AtomicUsize::new(0), AtomicUsize::new(0));
            Arc::new(SlowLists { store, is_open, opened, begun, running })
        }

        fn open(&self) {
            *self.is_open.lock().unwrap() = true;
            self.opened.notify_all();
        }

        /// Waits until this many lists have begun.
        async fn until_begun(&self, count: usize) {
            while self.begun.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Opens the lists when a test fails, too: the runtime waits for its threads.
    struct OpenOnDrop(Arc<SlowLists>);

    impl Drop for OpenOnDrop {
        fn drop(&mut self) {
            self.0.open();
        }
    }

    impl Layered for SlowLists {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        fn list(&self, query: Query) -> StoreFuture<'_, Page> {
            self.begun.fetch_add(1, Ordering::SeqCst);
            self.running.fetch_add(1, Ordering::SeqCst);
            let open = self.is_open.lock().unwrap();
            drop(self.opened.wait_while(open, |open| !*open).unwrap());
            self.running.fetch_sub(1, Ordering::SeqCst);
            self.store.list(query)
        }
    }

    fn app(store: &Arc<SlowLists>) -> App {
        App::new(store.clone(), WallClock::system(), Limits::default())
    }

    fn access(tokens: usize) -> Access {
        let tokens = (0..tokens).map(|n| (Right::Full, format!("full-token-{n:020}")));
        Access::new(tokens, None).expect("the tokens are valid")
    }

    /// Sends a request of the token with this number.
    fn call(
        app: &App,
        access: &Access,
        n: usize,
        method: &str,
        path: &str,
    ) -> JoinHandle<Response> {
        let endpoint = app.endpoint(access);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer full-token-{n:020}"))
            .header("content-type", "application/json")
            .extension(Delivery::new())
            .body(Body::from(if method == "POST" { r#"{"all":{}}"# } else { "{}" }))
            .expect("a valid request");
        tokio::spawn(async move { endpoint.call(request).await })
    }

    fn count(app: &App, access: &Access, n: usize) -> JoinHandle<Response> {
        call(app, access, n, "GET", "/v1/kinds/mail/count?error=refused")
    }

    async fn status(response: JoinHandle<Response>) -> u16 {
        let response = timeout(LONG, response).await.expect("it does not hang");
        response.expect("no panic").status().as_u16()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn puts_go_on_while_scans_keep_threads_busy() {
        let store = SlowLists::new().await;
        let _open = OpenOnDrop(store.clone());
        let (app, access) = (app(&store), access(0));
        let counts: Vec<_> = (0..MAX_SCANS).map(|_| count(&app, &access, 0)).collect();
        store.until_begun(1).await;
        for n in 0..100 {
            let path = format!("/v1/kinds/mail/jobs/new-{n}");
            assert_eq!(status(call(&app, &access, 0, "PUT", &path)).await, 200);
        }
        let turns = Scans::default().turns.available_permits();
        assert_eq!(store.running.load(Ordering::SeqCst), turns, "one page per four processors");
        store.open();
        for count in counts {
            assert_eq!(status(count).await, 200);
        }
    }

    /// Lets all tasks run that can.
    async fn run_tasks() {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_leaves_scans_to_others() {
        let store = SlowLists::new().await;
        let open = OpenOnDrop(store.clone());
        let (app, access) = (app(&store), access(4));
        let first: Vec<_> = (0..2).map(|_| count(&app, &access, 0)).collect();
        store.until_begun(1).await;
        run_tasks().await;
        assert_eq!(app.scans().limit.used(), 2);
        let third = count(&app, &access, 0);
        run_tasks().await;
        assert!(!third.is_finished(), "it waits");
        tokio::time::advance(WAIT).await;
        let third = third.await.expect("no panic");
        assert_eq!(third.status(), 503);
        assert_eq!(third.headers()["retry-after"], "1");
        let text = axum::body::to_bytes(third.into_body(), 10_000).await.expect("it is short");
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("scans: this token uses 2, and its share is 2 of the 8"), "{text}");
        let other = count(&app, &access, 1);
        drop(open);
        assert_eq!(status(other).await, 200);
        for count in first {
            assert_eq!(status(count).await, 200);
        }
        assert_eq!(app.scans().limit.used(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_scan_that_waits_for_memory_keeps_no_turn() {
        let store = SlowLists::new().await;
        store.open();
        let (app, access) = (app(&store), access(0));
        let all = app.response_memory().reserve(usize::MAX).await.expect("all of it is free");
        let counted = count(&app, &access, 0);
        while app.response_memory().waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let turns = Scans::default().turns.available_permits();
        assert_eq!(app.scans().turns.available_permits(), turns);
        // As a list does, which holds its memory when it waits for its turn.
        let permit = timeout(LONG, Arc::clone(&app.scans().turns).acquire_owned()).await;
        drop((permit, all));
        assert_eq!(status(counted).await, 200);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_scan_ends_with_the_page_if_its_client_has_gone() {
        let store = SlowLists::new().await;
        let _open = OpenOnDrop(store.clone());
        let (app, access) = (app(&store), access(0));
        let counted = count(&app, &access, 0);
        store.until_begun(1).await;
        counted.abort();
        drop(counted.await);
        store.open();
        app.tasks().close();
        timeout(LONG, app.tasks().wait()).await.expect("the scan ends");
        assert_eq!(store.begun.load(Ordering::SeqCst), 1, "of ten pages");
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_examines_many_jobs_is_a_scan() {
        let store = SlowLists::new().await;
        store.open();
        let (app, access) = (app(&store), access(1));
        // All permissions are taken: whatever needs one waits.
        let caller = access.caller_with(Some(b"full-token-00000000000000000000"));
        let caller = caller.expect("the token is valid");
        let Ok(all) = app.scans().limit.take(&caller, MAX_SCANS) else {
            panic!("nothing is in use");
        };
        let mut waiting = Vec::new();
        for (method, path, is_scan) in [
            ("GET", "count?error=x", true),
            ("GET", "count?prefix=x", true),
            ("GET", "count?state=dead", false),
            ("GET", "count", false),
            ("GET", "errors", true),
            ("GET", "jobs", false),
            ("GET", "jobs?limit=100&prefix=x", false),
            ("GET", "jobs?limit=101", true),
            ("GET", "jobs?state=dead", true),
            ("GET", "jobs?error=x", true),
            ("GET", "upcoming?span=1m&count=3", true),
            ("POST", "cancel", true),
            ("POST", "run-now", true),
            ("POST", "revive", true),
        ] {
            let response = call(&app, &access, 0, method, &format!("/v1/kinds/mail/{path}"));
            run_tasks().await;
            assert_eq!(!response.is_finished(), is_scan, "{method} {path}");
            waiting.push(response);
        }
        for (method, path) in [
            ("DELETE", "/v1/kinds/mail"),
            ("GET", "/v1/schedules"),
            ("GET", "/v1/upcoming"),
            ("GET", "/v1/upcoming?kind=mail"),
            ("GET", "/go?q=none"),
        ] {
            let response = call(&app, &access, 0, method, path);
            run_tasks().await;
            assert!(!response.is_finished(), "{method} {path}");
            waiting.push(response);
        }
        drop(all);
        for response in waiting {
            assert_eq!(status(response).await, 200);
        }
    }
}
