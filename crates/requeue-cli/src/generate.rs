//! `completions` and `man`: files that are generated from the command line's definition.

use crate::args::Cli;
use crate::error::{CliError, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Where to install the script for one user:
  bash  ~/.local/share/bash-completion/completions/requeue
  zsh   ~/.zfunc/_requeue
  fish  ~/.config/fish/completions/requeue.fish

Examples:
  requeue completions bash > ~/.local/share/bash-completion/completions/requeue
  requeue completions fish > ~/.config/fish/completions/requeue.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for
    shell: Shell,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  requeue man | man -l -
  requeue man --out ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory to write one page per command to; created if missing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "requeue", &mut script);
    print(&script)
}

pub(crate) fn man(args: &ManArgs) -> Result<()> {
    match &args.out {
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
            rendered.map_err(|error| CliError::io("write", "the manual page", &error))?;
            print(&page)
        }
        Some(directory) => {
            let name = directory.display().to_string();
            let made = std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
            made.map_err(|error| CliError::io("write to", &name, &error))
        }
    }
}

fn print(bytes: &[u8]) -> Result<()> {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::io("write to", "stdout", &error))
        }
        _ => Ok(()),
    }
}
