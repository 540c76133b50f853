//! Name lookups.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Looks up the IP addresses of host names. Tests and special networks replace it.
pub trait Resolve: Send + Sync + 'static {
    /// Returns all addresses of a host name. An error or an empty list means that there is no such host.
    ///
    /// IP addresses in URLs, in whatever form, are not looked up.
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a>;
}

/// The future that [`Resolve::resolve`] returns.
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// The largest number of names that are looked up at the same time. The system gives up on a name whose server does
/// not respond after 10 to 30 seconds, and nothing ends a lookup earlier: with fewer threads, names that work would
/// wait for those that do not.
const MAX_LOOKUPS: usize = 128;

/// How many of them are only for names that were found the last time: many names whose servers do not respond, of one
/// user, then do not delay the webhooks of others.
const RESERVED: usize = 32;

/// How many of the reserved ones a name can use: it may have been found once and not respond any more.
const RESERVED_PER_NAME: usize = 2;

/// How many names are remembered. Beyond that, all are forgotten.
const MAX_NAMES: usize = 10_000;

/// The stack of a thread that looks up a name, in bytes. Most of it is never touched.
const STACK: usize = 512 << 10;

static LOOKUPS: LazyLock<LookupThreads> =
    LazyLock::new(|| LookupThreads::new(MAX_LOOKUPS - RESERVED, RESERVED));

/// The resolver of the operating system, which reads `/etc/hosts` and asks the DNS.
///
/// It uses threads of its own, at most 128 in a process, of which 32 are for names that were found the last time. On the threads of the runtime for blocking calls, a few
/// hundred names whose servers do not respond would delay everything else that blocks, such as large requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a> {
        let name = host.to_owned();
        Box::pin(LOOKUPS.run(host, move || {
            let found = (name.as_str(), 0).to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).collect())
        }))
    }
}

/// A bounded number of threads, each for one lookup.
struct LookupThreads {
    free: Arc<Semaphore>,
    /// For names that were found the last time.
    reserved: Arc<Semaphore>,
    /// Those names, and for each as many as it may use of the reserved threads.
    found: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

/// Permits one lookup to use a thread.
struct Permit {
    _thread: OwnedSemaphorePermit,
    _of_name: Option<OwnedSemaphorePermit>,
}

impl LookupThreads {
    fn new(free: usize, reserved: usize) -> Self {
        let [free, reserved] = [free, reserved].map(|count| Arc::new(Semaphore::new(count)));
        LookupThreads { free, reserved, found: Arc::default() }
    }

    /// Runs the lookup of a name on a thread of its own, as soon as there may be another one. If the future is dropped,
    /// the thread still counts until its lookup has ended.
    async fn run<T: Send + 'static>(
        &self,
        name: &str,
        lookup: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let permit = self.permit(name).await?;
        let (send, receive) = oneshot::channel();
        let thread = thread::Builder::new().name("requeue-lookup".to_owned()).stack_size(STACK);
        let (found, name) = (Arc::clone(&self.found), name.to_owned());
        thread.spawn(move || {
            let result = lookup();
            note(&mut lock(&found), name, result.is_ok());
            drop(permit);
            // The delivery that waits for it may have timed out.
            let _ = send.send(result);
        })?;
        receive.await.map_err(io::Error::other)?
    }

    async fn permit(&self, name: &str) -> io::Result<Permit> {
        let free = Arc::clone(&self.free).acquire_owned();
        let of_name = lock(&self.found).get(name).cloned();
        let reserved = async {
            let Some(of_name) = of_name else { return pending().await };
            let of_name = of_name.acquire_owned().await?;
            Ok((Arc::clone(&self.reserved).acquire_owned().await?, of_name))
        };
        let permit = tokio::select! {
            biased;
            thread = free => thread.map(|thread| Permit { _thread: thread, _of_name: None }),
            both = reserved => both.map(|(thread, of_name)| Permit { _thread: thread, _of_name: Some(of_name) }),
        };
        permit.map_err(io::Error::other)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers whether a name was found.
fn note(names: &mut HashMap<String, Arc<Semaphore>>, name: String, is_found: bool) {
    if !is_found {
        names.remove(&name);
        return;
    }
    if names.len() >= MAX_NAMES && !names.contains_key(&name) {
        names.clear();
    }
    names.entry(name).or_insert_with(|| Arc::new(Semaphore::new(RESERVED_PER_NAME)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test]
    async fn no_more_names_are_looked_up_at_the_same_time_than_there_are_threads() {
        static THREADS: LazyLock<LookupThreads> = LazyLock::new(|| LookupThreads::new(2, 1));
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Arc::new(std::sync::Mutex::new(released));
        let slow = || {
            let released = std::sync::Arc::clone(&released);
            async move {
                let wait = move || released.lock().unwrap().recv().map_err(io::Error::other);
                THREADS.run("slow", wait).await
            }
        };
        let abandoned = tokio::spawn(slow());
        let second = tokio::spawn(slow());
        while THREADS.free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        // The delivery gave up. Its thread still runs, and still counts.
        abandoned.abort();
        assert!(abandoned.await.unwrap_err().is_cancelled());
        let third = tokio::spawn(slow());
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(THREADS.free.available_permits(), 0);
        assert!(!second.is_finished() && !third.is_finished());
        for _ in 0..3 {
            release.send(()).unwrap();
        }
        second.await.unwrap().unwrap();
        third.await.unwrap().unwrap();
        while THREADS.free.available_permits() < 2 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn names_that_were_found_do_not_wait_for_those_whose_servers_do_not_respond() {
        let threads = LookupThreads::new(4, 3);
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let hang = || {
            let released = Arc::clone(&released);
            move || lock(&released).recv().map_err(io::Error::other)
        };
        threads.run("good", || Ok(())).await.unwrap();
        threads.run("changing", || Ok(())).await.unwrap();
        threads.run("gone", || Ok(())).await.unwrap();
        threads.run::<()>("gone", || Err(io::Error::other("no such host"))).await.unwrap_err();
        {
            let names: Vec<String> = (0..10).map(|n| format!("hanging-{n}")).collect();
            let mut hanging: Vec<_> = names
                .iter()
                .map(String::as_str)
                // It was found the last time, and does not respond any more.
                .chain(["changing"; 10])
                .map(|name| Box::pin(threads.run(name, hang())))
                .collect();
            for lookup in &mut hanging {
                assert!(tokio::time::timeout(Duration::ZERO, lookup).await.is_err());
            }
            for _ in 0..5 {
                threads.run("good", || Ok(())).await.unwrap();
            }
            let gone = threads.run("gone", || Ok(()));
            assert!(tokio::time::timeout(Duration::from_millis(1), gone).await.is_err());
        }
        for _ in 0..10 {
            // Those that had no thread were given up.
            let _ = release.send(());
        }
    }

    #[test]
    fn a_lookup_does_not_wait_for_the_blocking_threads_of_the_runtime() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().max_blocking_threads(1).build().unwrap();
        let (release, released) = mpsc::channel::<()>();
        runtime.spawn_blocking(move || released.recv());
        let found = runtime.block_on(SystemResolver.resolve("localhost")).unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty(), "{found:?}");
        release.send(()).unwrap();
    }
}
