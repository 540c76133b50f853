//! The socket that a server listens on, and how many connections the limit of open files allows.

use crate::error::{CliError, Exit, Result};
use crate::open_files;
use requeue_server::listen::{Listener, Options, Tls};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;

/// Number of open files of the process itself: standard streams, runtime, signals, the listening
/// socket, a connection that waits for its place, and a file that is being reloaded.
const OWN_FILES: usize = 12;

/// Minimum number of connections with which the server starts.
const MIN_CONNECTIONS: usize = 4;

/// A listening socket, its address and its maximum number of connections.
pub(crate) struct BoundSocket {
    pub(crate) socket: Listener,
    pub(crate) address: SocketAddr,
    pub(crate) connections: usize,
}

impl BoundSocket {
    /// Listens on `listen`. `max_connections` is reduced to what the limit of open files allows, of which
    /// `store_files` are left to the store. `drain` is how long running requests may take to finish at
    /// the end.
    pub(crate) async fn bind(
        listen: SocketAddr,
        max_connections: Option<usize>,
        store_files: usize,
        drain: Duration,
        tls: Option<Tls>,
    ) -> Result<Self> {
        let failed = |error: std::io::Error| {
            let message = format!("could not listen on {}: {error}", listen);
            let hint = match error.kind() {
                ErrorKind::AddrInUse => {
                    "another program uses this port; to use any free port: --listen 127.0.0.1:0"
                }
                ErrorKind::PermissionDenied => "ports below 1024 need root: use a higher port",
                _ => "use an address of this machine, such as --listen 127.0.0.1:7654",
            };
            CliError::new(Exit::Unavailable, message).hint(hint)
        };
        let tcp = TcpListener::bind(listen).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        let mut options = Options { drain, ..Options::default() };
        let wanted = max_connections.unwrap_or(options.max_connections);
        let needed = wanted.saturating_add(store_files + OWN_FILES);
        let files = open_files::raise_limit(needed as u64);
        let connections = connections_within(files, store_files, wanted)?;
        if connections < wanted {
            tracing::warn!(
                files,
                connections,
                wanted,
                "the limit of open files allows fewer connections than wanted: raise LimitNOFILE or \
             ulimit -n"
            );
        }
        options.max_connections = connections;
        let socket = Listener::new(tcp, options);
        let socket = match tls {
            Some(tls) => socket.with_tls(tls),
            None => socket,
        };
        Ok(BoundSocket { socket, address, connections })
    }
}

/// Returns how many connections there can be if the process may open this many files: each is an open
/// file, and the store comes first.
fn connections_within(files: u64, store_files: usize, wanted: usize) -> Result<usize> {
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let connections = wanted.min(files.saturating_sub(store_files + OWN_FILES));
    if connections >= wanted.min(MIN_CONNECTIONS) {
        return Ok(connections);
    }
    let needed = store_files + OWN_FILES + MIN_CONNECTIONS;
    let message = format!("the limit of open files is {files}; the server needs at least {needed}");
    let hint = "raise the limit: ulimit -n 1024, or LimitNOFILE= in the systemd unit";
    Err(CliError::new(Exit::Failed, message).hint(hint))
}

/// Parses the value of `--listen`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected an address and a port, such as 127.0.0.1:7654, [::1]:7654, or 0.0.0.0:7654 for \
         all interfaces"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_to_the_files_that_the_store_leaves() {
        for (files, wanted, expected) in [
            (u64::MAX, 20_000, Some(20_000)),
            (20_060, 20_000, Some(20_000)),
            (20_059, 20_000, Some(19_999)),
            (1024, 20_000, Some(964)),
            (64, 20_000, Some(4)),
            (63, 20_000, None),
            (0, 20_000, None),
            (61, 1, Some(1)),
            (60, 1, None),
        ] {
            assert_eq!(connections_within(files, 48, wanted).ok(), expected, "{files} files");
        }
        assert_eq!(connections_within(1024, 1016, 20_000).ok(), None);
    }
}
