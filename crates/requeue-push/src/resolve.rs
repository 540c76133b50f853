//! Name lookups.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;

/// Looks up the IP addresses of host names. Tests and special networks replace it.
pub trait Resolve: Send + Sync + 'static {
    /// Returns all addresses of a host name. An error or an empty list means that there is no such host.
    ///
    /// IP addresses in URLs, in whatever form, are not looked up.
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a>;
}

/// The future that [`Resolve::resolve`] returns.
pub type ResolveFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// The resolver of the operating system, which reads `/etc/hosts` and asks the DNS.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}
