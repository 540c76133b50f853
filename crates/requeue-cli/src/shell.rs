//! `completions` and `man`: for shells and for readers.

use crate::args::Cli;
use crate::failure::{Failure, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
For one user:
  bash  requeue completions bash > ~/.local/share/bash-completion/completions/requeue
  zsh   requeue completions zsh > ~/.zfunc/_requeue
  fish  requeue completions fish > ~/.config/fish/completions/requeue.fish")]
pub(crate) struct CompletionsArgs {
    /// For this shell
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write a page for each verb to this directory
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
            rendered.map_err(|error| Failure::file("write", "the manual", &error))?;
            print(&page)
        }
        Some(directory) => {
            let name = directory.display().to_string();
            let made = std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
            made.map_err(|error| Failure::file("write to", &name, &error))
        }
    }
}

fn print(bytes: &[u8]) -> Result<()> {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::file("write to", "stdout", &error))
        }
        _ => Ok(()),
    }
}
