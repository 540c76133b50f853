//! Statements that are run with `psql`.

use crate::servers::PATIENCE;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// What separates the results of two statements in the output.
const SEPARATOR: &str = "-- end of result --";

/// Runs statements with these environment variables, and returns what `psql` prints: a line for each
/// row, with `|` between the columns. If one fails, it returns the error message.
pub(super) fn psql(url: &str, environment: &[(&str, String)], sql: &str) -> Result<String, String> {
    let output = command(url, environment).args(["-c", sql]).output();
    let output = output.expect("no psql: run scripts/test, which installs it");
    let text = |bytes| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// A connection for several statements.
#[derive(Debug)]
pub(super) struct Session {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Session {
    pub(super) fn open(url: &str, environment: &[(&str, String)]) -> Self {
        let mut command = command(url, environment);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("no psql: run scripts/test, which installs it");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        Session { process, output }
    }

    /// Runs a statement, and returns what `psql` prints.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub(super) fn query(&mut self, sql: &str) -> String {
        let input = self.process.stdin.as_mut().expect("it is piped");
        writeln!(input, "{sql};\n\\echo '{SEPARATOR}'").expect("psql runs");
        let mut result = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).expect("psql prints text") == 0 {
                let mut error = String::new();
                let errors = self.process.stderr.as_mut().expect("it is piped");
                errors.read_to_string(&mut error).expect("psql prints text");
                panic!("{sql}: {error}");
            }
            if line.trim_end() == SEPARATOR {
                return result;
            }
            result.push_str(&line);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        drop(self.process.wait());
    }
}

fn command(url: &str, environment: &[(&str, String)]) -> Command {
    let mut command = Command::new(program());
    command
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", url])
        .env("PGCONNECT_TIMEOUT", PATIENCE.as_secs().to_string())
        .envs(environment.iter().map(|(name, value)| (name, value)));
    command
}

/// Returns the path of `psql`: not Debian's wrapper, which takes longer to start.
fn program() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut programs = versions.map(|version| version.path().join("bin/psql"));
    programs.find(|program| program.exists()).unwrap_or_else(|| "psql".into())
}
