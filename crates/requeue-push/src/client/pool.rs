//! Idle connections, kept for the next request to the same origin.

use super::Connection;
use requeue::Moment;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an idle connection is kept: shorter than receivers do. Node closes connections after five
/// seconds, and a request that is sent at that moment fails.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);

/// The largest number of idle connections to one origin, and to all. Each is a file descriptor here and a
/// connection at the receiver.
const MAX_IDLE_PER_ORIGIN: usize = 256;
const MAX_IDLE: usize = 1024;

#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Idle connections by origin, the one used last at the end.
    /// Invariant: no list is empty, and together they have `count` entries.
    idle: HashMap<Arc<str>, Vec<Idle>>,
    count: usize,
    /// When connections that were idle for too long were last closed.
    swept_at: Moment,
}

struct Idle {
    connection: Connection,
    address: IpAddr,
    since: Moment,
}

impl Idle {
    fn is_usable(&self, now: Moment) -> bool {
        now.saturating_since(self.since) < MAX_IDLE_TIME && !self.connection.is_closed()
    }
}

impl Pool {
    /// Returns an idle connection to one of these addresses.
    pub(super) fn take(
        &self,
        origin: &Arc<str>,
        addresses: &[IpAddr],
        now: Moment,
    ) -> Option<(Connection, IpAddr)> {
        let mut state = self.lock();
        state.sweep(now);
        let list = state.idle.get_mut(origin)?;
        let usable = |idle: &Idle| {
            idle.is_usable(now) && idle.connection.is_ready() && addresses.contains(&idle.address)
        };
        let at = list.iter().rposition(usable)?;
        let idle = list.remove(at);
        if list.is_empty() {
            state.idle.remove(origin);
        }
        state.count -= 1;
        Some((idle.connection, idle.address))
    }

    /// Keeps a connection, unless it is closed or there are enough.
    pub(super) fn keep(
        &self,
        origin: Arc<str>,
        connection: Connection,
        address: IpAddr,
        now: Moment,
    ) {
        let mut state = self.lock();
        state.sweep(now);
        if connection.is_closed() || state.count >= MAX_IDLE {
            return;
        }
        let list = state.idle.entry(origin).or_default();
        if list.len() < MAX_IDLE_PER_ORIGIN {
            list.push(Idle { connection, address, since: now });
            state.count += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    /// Closes connections that were idle for too long, at most once a second.
    fn sweep(&mut self, now: Moment) {
        if now.saturating_since(self.swept_at) < Duration::from_secs(1) && self.count < MAX_IDLE {
            return;
        }
        self.swept_at = now;
        self.idle.retain(|_, list| {
            list.retain(|idle| idle.is_usable(now));
            !list.is_empty()
        });
        self.count = self.idle.values().map(Vec::len).sum();
    }
}
