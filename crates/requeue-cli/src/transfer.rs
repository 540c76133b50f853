//! `export` and `import`: copy a whole store to a JSON Lines file, and back.

use crate::error::{CliError, Result};
use crate::output::{Output, count, print_json_note, print_note};
use crate::progress::Bar;
use crate::store_args::{IfMissing, StoreArgs};
use requeue_jobs::Store;
use requeue_jobs::transfer::{self, TransferProgress};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Buffer size for reading and writing, in bytes.
const BUFFER: usize = 1 << 16;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The format is JSON Lines, documented in docs/transfer.md. An existing file is
replaced only when the export is complete.

Examples:
  requeue export jobs.jsonl
  requeue export --data requeue-data | gzip > jobs.jsonl.gz")]
pub(crate) struct ExportArgs {
    /// File to write; - for stdout
    #[arg(default_value = "-")]
    file: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
An import only adds. Jobs and schedules whose id already exists are kept as they
are, and so are settings that differ from the default.

If an import fails, run it again. Do so before workers start: jobs that were
imported and finished would be imported again.

Examples:
  requeue import jobs.jsonl
  requeue import jobs.jsonl --store redis://127.0.0.1:6379/")]
pub(crate) struct ImportArgs {
    /// File to read; - for stdin
    #[arg(default_value = "-")]
    file: String,
}

pub(crate) async fn export(args: ExportArgs, store_args: &StoreArgs, out: Output) -> Result<()> {
    let store = store_args.open(IfMissing::Fail).await?;
    if args.file == "-" {
        let mut stdout = BufWriter::with_capacity(BUFFER, io::stdout().lock());
        let done = write(&*store, &mut stdout).await?;
        // To stderr, because stdout contains the export.
        if out.json {
            print_json_note(&json(done));
        } else {
            print_note(&summary("exported", done));
        }
        return Ok(());
    }
    let done = match std::fs::metadata(&args.file) {
        // A pipe or a device is written to, and not replaced.
        Ok(found) if !found.is_file() => {
            let failed = |error: io::Error| CliError::io("write", &args.file, &error);
            let file = OpenOptions::new().write(true).open(&args.file).map_err(failed)?;
            write(&*store, &mut BufWriter::with_capacity(BUFFER, file)).await?
        }
        // Replaces the file that a symbolic link points to, and not the link.
        Ok(_) => {
            let file = std::fs::canonicalize(&args.file);
            replace(&*store, &file.map_err(|error| CliError::io("find", &args.file, &error))?)
                .await?
        }
        Err(_) => replace(&*store, Path::new(&args.file)).await?,
    };
    out.print(|| json(done), || summary("exported", done))
}

/// Writes to a temporary file, which replaces the file when the export is complete.
async fn replace(store: &dyn Store, file: &Path) -> Result<TransferProgress> {
    let mut half = file.as_os_str().to_owned();
    half.push(".part");
    let half = PathBuf::from(half);
    let done = write_file(store, &half, file).await;
    if done.is_err() {
        // Best effort: the name `.part` shows that the file is incomplete.
        let _ = std::fs::remove_file(&half);
    }
    done
}

async fn write_file(store: &dyn Store, half: &Path, whole: &Path) -> Result<TransferProgress> {
    let name = half.display().to_string();
    let failed = |error: io::Error| CliError::io("write", &name, &error);
    let mut buffered = BufWriter::with_capacity(BUFFER, File::create(half).map_err(failed)?);
    let done = write(store, &mut buffered).await?;
    let file = buffered.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(half, whole)
        .map_err(|error| CliError::io("rename to", &whole.display().to_string(), &error))?;
    sync_directory_of(whole).map_err(failed)?;
    Ok(done)
}

/// Syncs the directory, so that the renamed file survives a power cut.
fn sync_directory_of(file: &Path) -> io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

async fn write(store: &dyn Store, to: &mut dyn Write) -> Result<TransferProgress> {
    let bar = Bar::jobs();
    let done = transfer::export(store, to, |done| bar.at(done.jobs, done.jobs_in_all)).await;
    bar.end();
    Ok(done?)
}

pub(crate) async fn import(args: ImportArgs, store_args: &StoreArgs, out: Output) -> Result<()> {
    let mut input: Box<dyn BufRead> = if args.file == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&args.file);
        let file = file.map_err(|error| CliError::io("open", &args.file, &error))?;
        Box::new(BufReader::with_capacity(BUFFER, file))
    };
    let store = store_args.open(IfMissing::Create).await?;
    let bar = Bar::jobs();
    let progress = |done: TransferProgress| bar.at(done.jobs, done.jobs_in_all);
    let done = transfer::import(&*store, &mut *input, progress).await;
    bar.end();
    let done = done?;
    out.print(|| json(done), || summary("imported", done))
}

fn json(done: TransferProgress) -> serde_json::Value {
    serde_json::json!({
        "kinds": done.kinds,
        "schedules": done.schedules,
        "jobs": done.jobs,
        "kept": done.kept,
        "ended": done.ended,
        "bytes": done.bytes,
    })
}

fn summary(verb: &str, done: TransferProgress) -> String {
    let TransferProgress { jobs, kinds, schedules, kept, ended, bytes, .. } = done;
    let mut text = format!(
        "{verb} {} of {}, {} ({})",
        count(jobs, "job"),
        count(kinds, "kind"),
        count(schedules, "schedule"),
        count(bytes, "byte"),
    );
    if kept > 0 {
        text += &format!("; {kept} existed already");
    }
    if ended > 0 {
        text += &format!("; {ended} were cancelled and not imported");
    }
    text
}
