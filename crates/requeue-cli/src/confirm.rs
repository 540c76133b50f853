//! Asks before a change of many jobs.
//!
//! Such a change needs a yes: of the person at the terminal, or the option `--yes` of a script. A script
//! without it fails before it changes anything, on its first run, and not on the day when a variable is
//! empty and everything matches.

use crate::error::{CliError, Exit, Result};
use crate::output::print_prompt;
use std::io::{self, BufRead, IsTerminal};

/// The options of a change of many jobs.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Confirmation {
    /// Do not ask for confirmation; required if there is no terminal
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Print what would be changed, and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

impl Confirmation {
    /// Whether the number of jobs must be known before the change.
    pub(crate) fn needs_count(self) -> bool {
        !self.yes
    }

    /// Fails if nobody can be asked. Commands check it before they connect to a store.
    pub(crate) fn check(self, what: &str) -> Result<()> {
        let can_ask = || io::stdin().is_terminal() && io::stderr().is_terminal();
        if self.yes || self.dry_run || can_ask() {
            return Ok(());
        }
        let message = format!("{what}, and there is no terminal to ask for confirmation");
        Err(CliError::usage(message)
            .hint("add --yes; to see first what would be changed: --dry-run"))
    }

    /// Asks a question, unless `--yes` is given. Fails if the answer is not yes.
    pub(crate) fn ask(self, question: &str) -> Result<()> {
        if self.yes {
            return Ok(());
        }
        print_prompt(&format!("{question} [y/N] "));
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        read.map_err(|error| CliError::io("read", "stdin", &error))?;
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(CliError::new(Exit::Failed, "not confirmed: nothing was changed")),
        }
    }
}
