//! Waiting for other processes.

use std::thread;
use std::time::{Duration, Instant};

/// The time limit of everything that a scenario waits for. Only a broken worker takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two looks at another process.
const LOOK: Duration = Duration::from_millis(5);

/// Polls until there is a value, since other processes cannot notify us.
pub(crate) fn until<T>(mut poll: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let end = Instant::now() + PATIENCE;
    loop {
        match poll() {
            Err(problem) if Instant::now() > end => return Err(format!("timed out: {problem}")),
            Err(_) => thread::park_timeout(LOOK),
            Ok(value) => return Ok(value),
        }
    }
}
