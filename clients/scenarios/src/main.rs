//! Runs the scenarios with the worker program of one client.

use requeue_scenarios::{Scenario, Store, WorkerProgram, run_all};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: requeue-scenarios CLIENT SERVER [--store URL] [--only TEXT] -- PROGRAM…

CLIENT is the name of the client (rust, python, typescript, go or another one), SERVER the path of
the requeue binary, and PROGRAM the worker program, which clients/scenarios/README.md specifies.
--only runs the scenarios whose name contains TEXT.";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(client), Some(server)) = (arguments.next(), arguments.next()) else {
        return usage();
    };
    let (mut store, mut scenarios) = (Store::Disk, Scenario::all());
    while let Some(option) = arguments.next() {
        match (option.as_str(), arguments.next()) {
            ("--store", Some(url)) => store = Store::Url(url),
            ("--only", Some(text)) => scenarios.retain(|scenario| scenario.name.contains(&text)),
            ("--", Some(program)) => {
                let command = [vec![program], arguments.collect()].concat();
                let program = WorkerProgram { client, command };
                let failed = run_all(&scenarios, &program, Path::new(&server), &store);
                return if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
            _ => return usage(),
        }
    }
    usage()
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
