//! Looks up names and checks all their addresses.

use crate::allowed::AllowedTargets;
use crate::config::WebhookUrl;
use crate::resolve::Resolve;
use requeue::{Clock, Moment};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;

/// How long the addresses of a name are used. Receivers that move to another address are found after this
/// time.
pub(crate) const LOOKUP_LIFETIME: Duration = Duration::from_secs(30);

/// The largest number of names whose addresses are remembered. Beyond that, old ones are dropped.
const MAX_NAMES: usize = 1000;

/// The largest number of addresses of a name that are tried. All are checked.
const MAX_TRIED: usize = 8;

/// The addresses of names that were looked up lately, each of them allowed.
pub(super) struct Lookups {
    allowed: AllowedTargets,
    resolver: Arc<dyn Resolve>,
    /// By host and port, because what is allowed depends on both.
    found: Mutex<HashMap<(String, u16), Entry>>,
}

/// Concurrent deliveries wait for the one that looks the name up.
type Entry = Arc<AsyncMutex<Option<Found>>>;

#[derive(Clone)]
struct Found {
    addresses: Arc<[IpAddr]>,
    at: Moment,
}

impl Lookups {
    pub(super) fn new(allowed: AllowedTargets, resolver: Arc<dyn Resolve>) -> Self {
        Lookups { allowed, resolver, found: Mutex::default() }
    }

    /// Returns the addresses of the host of a URL. Fails if there is none, or if one of them is forbidden.
    pub(super) async fn addresses(
        &self,
        clock: &Clock,
        url: &WebhookUrl,
    ) -> Result<Arc<[IpAddr]>, String> {
        let entry = self.entry(url, clock.now());
        let mut found = entry.lock().await;
        if let Some(found) = &*found
            && clock.now().saturating_since(found.at) < LOOKUP_LIFETIME
        {
            return Ok(Arc::clone(&found.addresses));
        }
        *found = None;
        let at = clock.now();
        let host = url.host();
        let mut addresses = match self.resolver.resolve(host).await {
            Ok(addresses) if addresses.is_empty() => return Err(format!("{host} has no address")),
            Ok(addresses) => addresses,
            Err(error) => return Err(format!("{host} was not found: {error}")),
        };
        self.check(url, &addresses)?;
        addresses.truncate(MAX_TRIED);
        let addresses: Arc<[IpAddr]> = addresses.into();
        *found = Some(Found { addresses: Arc::clone(&addresses), at });
        Ok(addresses)
    }

    /// Checks all addresses of a host. If one is forbidden, none is used: an attacker could otherwise
    /// mix addresses until the forbidden one is tried.
    pub(super) fn check(&self, url: &WebhookUrl, addresses: &[IpAddr]) -> Result<(), String> {
        for address in addresses {
            if let Err(reason) = self.allowed.check(url.host(), url.port(), *address) {
                return Err(format!("{} is not allowed: {address} is {reason}", url.host()));
            }
        }
        Ok(())
    }

    fn entry(&self, url: &WebhookUrl, now: Moment) -> Entry {
        let mut found = self.lock();
        if found.len() >= MAX_NAMES {
            // An entry that is locked is in use. Another lookup of the same name does no harm.
            found.retain(|_, entry| {
                entry.try_lock().is_ok_and(|found| {
                    let age = |found: &Found| now.saturating_since(found.at);
                    found.as_ref().is_some_and(|found| age(found) < LOOKUP_LIFETIME)
                })
            });
            if found.len() >= MAX_NAMES {
                found.clear();
            }
        }
        Arc::clone(found.entry((url.host().to_owned(), url.port())).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, u16), Entry>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
