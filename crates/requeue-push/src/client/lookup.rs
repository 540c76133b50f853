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

/// How long a failed lookup counts. Deliveries that waited for it do not repeat it one after the other: that of a name
/// whose server does not respond takes a thread for 10 to 30 seconds.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);

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

struct Found {
    addresses: Result<Arc<[IpAddr]>, String>,
    /// When the addresses were looked up. The time of a failure is that of its end.
    at: Moment,
}

impl Found {
    fn is_current(&self, now: Moment) -> bool {
        let lifetime = if self.addresses.is_ok() { LOOKUP_LIFETIME } else { FAILURE_LIFETIME };
        now.saturating_since(self.at) < lifetime
    }
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
        if let Some(found) = found.as_ref().filter(|found| found.is_current(clock.now())) {
            return found.addresses.clone();
        }
        *found = None;
        let began = clock.now();
        let addresses = self.look_up(url).await;
        let at = if addresses.is_ok() { began } else { clock.now() };
        found.insert(Found { addresses, at }).addresses.clone()
    }

    async fn look_up(&self, url: &WebhookUrl) -> Result<Arc<[IpAddr]>, String> {
        let host = url.host();
        let mut addresses = match self.resolver.resolve(host).await {
            Ok(addresses) if addresses.is_empty() => return Err(format!("{host} has no address")),
            Ok(addresses) => addresses,
            Err(error) => return Err(format!("{host} was not found: {error}")),
        };
        self.check(url, &addresses)?;
        addresses.truncate(MAX_TRIED);
        Ok(addresses.into())
    }

    /// Checks all addresses of a host. If one is forbidden, none is used: an attacker could otherwise
    /// mix addresses until the forbidden one is tried. The error does not contain the address: whoever may
    /// set a URL could otherwise read the names of an internal network.
    pub(super) fn check(&self, url: &WebhookUrl, addresses: &[IpAddr]) -> Result<(), String> {
        for address in addresses {
            if let Err(reason) = self.allowed.check(url.host(), url.port(), *address) {
                return Err(format!("{} is not allowed: it is {reason}", url.host()));
            }
        }
        Ok(())
    }

    fn entry(&self, url: &WebhookUrl, now: Moment) -> Entry {
        let mut found = self.lock();
        if found.len() >= MAX_NAMES {
            // An entry that is locked is in use. Another lookup of the same name does no harm.
            found.retain(|_, entry| {
                let found = entry.try_lock();
                found.is_ok_and(|found| found.as_ref().is_some_and(|found| found.is_current(now)))
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
