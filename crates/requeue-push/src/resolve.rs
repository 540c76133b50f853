//! Name lookups.

use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::thread;
use tokio::sync::{Semaphore, oneshot};

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

/// The stack of a thread that looks up a name, in bytes. Most of it is never touched.
const STACK: usize = 512 << 10;

static LOOKUPS: LookupThreads = LookupThreads { free: Semaphore::const_new(MAX_LOOKUPS) };

/// The resolver of the operating system, which reads `/etc/hosts` and asks the DNS.
///
/// It uses threads of its own, at most 128 in a process. On the threads of the runtime for blocking calls, a few
/// hundred names whose servers do not respond would delay everything else that blocks, such as large requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a> {
        let host = host.to_owned();
        Box::pin(LOOKUPS.run(move || {
            let found = (host.as_str(), 0).to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).collect())
        }))
    }
}

/// A bounded number of threads, each for one lookup.
struct LookupThreads {
    free: Semaphore,
}

impl LookupThreads {
    /// Runs `lookup` on a thread of its own, as soon as there may be another one. If the future is dropped, the thread
    /// still counts until its lookup has ended.
    async fn run<T: Send + 'static>(
        &'static self,
        lookup: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let permit = self.free.acquire().await.map_err(io::Error::other)?;
        let (send, receive) = oneshot::channel();
        let thread = thread::Builder::new().name("requeue-lookup".to_owned()).stack_size(STACK);
        thread.spawn(move || {
            let found = lookup();
            drop(permit);
            // The delivery that waits for it may have timed out.
            let _ = send.send(found);
        })?;
        receive.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn no_more_names_are_looked_up_at_the_same_time_than_there_are_threads() {
        static THREADS: LookupThreads = LookupThreads { free: Semaphore::const_new(2) };
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Arc::new(std::sync::Mutex::new(released));
        let slow = || {
            let released = std::sync::Arc::clone(&released);
            async move {
                let wait = move || released.lock().unwrap().recv().map_err(io::Error::other);
                THREADS.run(wait).await
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
