//! Scenarios that the workers of all clients have to pass, and what runs them.
//!
//! ```text
//!   scenarios.json ──▶ Scenario ──▶ run ──┬──▶ requeue serve (killed and restarted) ◀── GET /v1/events
//!                                         ├──▶ proxy (connections cut, held)              │
//!                                         └──▶ worker programs (killed, frozen)           ▼
//!                                                   │ stdout: what handlers saw    what the server did
//!                                                   └──────────────▶ both compared with the scenario
//! ```
//!
//! A worker program uses the public API of one client. Its handler does what the body of each job
//! says, and prints what happens to it. README.md specifies the program, so that a client in another
//! language can be checked too.

mod events;
mod http;
mod process;
mod run;
mod scenario;
mod stage;
mod wait;

pub use scenario::Scenario;

use std::path::Path;
use std::sync::Mutex;
use std::thread;

/// How many scenarios run at the same time: they mostly wait.
const PARALLEL: usize = 4;

/// The store of the server.
#[derive(Debug, Clone)]
pub enum Store {
    /// A temporary directory.
    Disk,
    /// The Redis or Postgres of this URL.
    Url(String),
}

/// The program that runs the workers of a scenario.
#[derive(Debug, Clone)]
pub struct WorkerProgram {
    /// The client: scenarios can except it.
    pub client: String,
    /// The program and its first arguments.
    pub command: Vec<String>,
}

/// Runs the scenarios with one worker program on one store, and prints the result of each. Returns what
/// went wrong, with everything that was seen.
pub fn run_all(
    scenarios: &[Scenario],
    program: &WorkerProgram,
    server: &Path,
    store: &Store,
) -> Vec<String> {
    let applies = |scenario: &&Scenario| !scenario.except.contains(&program.client);
    let left: Vec<_> = scenarios.iter().filter(applies).collect();
    let (count, left, failed) = (left.len(), Mutex::new(left), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(scenario) = { left.lock().expect("no thread panics").pop() } {
                    match run::run(scenario, program, server, store) {
                        Ok(()) => println!("ok: {}", scenario.name),
                        Err(problem) => {
                            let problem = format!("FAILED: {}\n{problem}", scenario.name);
                            println!("{problem}");
                            failed.lock().expect("no thread panics").push(problem);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panics");
    println!("{} passed, {} failed", count - failed.len(), failed.len());
    failed
}
