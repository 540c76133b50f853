//! `export` and `import`: a whole store as JSON Lines, and back.

use crate::failure::{Failure, Result};
use crate::out::{Out, note};
use crate::progress::Bar;
use crate::store_args::{IfMissing, StoreArgs};
use requeue_jobs::Store;
use requeue_jobs::transfer::{self, Progress};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes that are read or written at once.
const BUFFER: usize = 1 << 16;

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// To where; - for stdout
    #[arg(default_value = "-")]
    file: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
It adds, and touches nothing that is there: jobs and schedules of the same id, and settings
that are not the default, stay. It can be done again after it failed, but not once somebody
works on what has arrived, or what is done comes back.")]
pub(crate) struct ImportArgs {
    /// From where; - for stdin
    #[arg(default_value = "-")]
    file: String,
}

pub(crate) async fn export(args: ExportArgs, place: &StoreArgs, out: Out) -> Result<()> {
    let store = place.open(IfMissing::Refuse).await?;
    if args.file == "-" {
        let mut stdout = BufWriter::with_capacity(BUFFER, io::stdout().lock());
        let done = write(&*store, &mut stdout).await?;
        // Not on stdout, where the export is.
        note(&if out.json { json(done).to_string() } else { told("exported", done) });
        return Ok(());
    }
    let done = match std::fs::metadata(&args.file) {
        // A pipe or a device: it is there to be written to, and not to be replaced.
        Ok(found) if !found.is_file() => {
            let failed = |error: io::Error| Failure::file("write", &args.file, &error);
            let file = OpenOptions::new().write(true).open(&args.file).map_err(failed)?;
            write(&*store, &mut BufWriter::with_capacity(BUFFER, file)).await?
        }
        // Behind a link is the file that is meant.
        Ok(_) => {
            let file = std::fs::canonicalize(&args.file);
            replace(&*store, &file.map_err(|error| Failure::file("find", &args.file, &error))?)
                .await?
        }
        Err(_) => replace(&*store, Path::new(&args.file)).await?,
    };
    out.say(|| json(done), || told("exported", done))
}

/// Writes beside the file, which is then replaced by a whole export or not at all.
async fn replace(store: &dyn Store, file: &Path) -> Result<Progress> {
    let mut half = file.as_os_str().to_owned();
    half.push(".part");
    let half = PathBuf::from(half);
    let done = write_file(store, &half, file).await;
    if done.is_err() {
        // Best effort: what is left says by its name that it is not whole.
        let _ = std::fs::remove_file(&half);
    }
    done
}

async fn write_file(store: &dyn Store, half: &Path, whole: &Path) -> Result<Progress> {
    let name = half.display().to_string();
    let failed = |error: io::Error| Failure::file("write", &name, &error);
    let mut buffered = BufWriter::with_capacity(BUFFER, File::create(half).map_err(failed)?);
    let done = write(store, &mut buffered).await?;
    let file = buffered.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    std::fs::rename(half, whole)
        .map_err(|error| Failure::file("rename to", &whole.display().to_string(), &error))?;
    sync_directory_of(whole).map_err(failed)?;
    Ok(done)
}

/// So that the name is there after a power cut, too.
fn sync_directory_of(file: &Path) -> io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

async fn write(store: &dyn Store, to: &mut dyn Write) -> Result<Progress> {
    let bar = Bar::jobs();
    let done = transfer::export(store, to, |done| bar.at(done.jobs, done.jobs_in_all)).await;
    bar.end();
    Ok(done?)
}

pub(crate) async fn import(args: ImportArgs, place: &StoreArgs, out: Out) -> Result<()> {
    let mut input: Box<dyn BufRead> = if args.file == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&args.file);
        let file = file.map_err(|error| Failure::file("open", &args.file, &error))?;
        Box::new(BufReader::with_capacity(BUFFER, file))
    };
    let store = place.open(IfMissing::Make).await?;
    let bar = Bar::jobs();
    let progress = |done: Progress| bar.at(done.jobs, done.jobs_in_all);
    let done = transfer::import(&*store, &mut *input, progress).await;
    bar.end();
    let done = done?;
    out.say(|| json(done), || told("imported", done))
}

fn json(done: Progress) -> serde_json::Value {
    serde_json::json!({
        "kinds": done.kinds,
        "schedules": done.schedules,
        "jobs": done.jobs,
        "kept": done.kept,
        "ended": done.ended,
        "bytes": done.bytes,
    })
}

fn told(verb: &str, done: Progress) -> String {
    let Progress { jobs, kinds, schedules, kept, ended, bytes, .. } = done;
    let mut told =
        format!("{verb} {jobs} jobs of {kinds} kinds, {schedules} schedules ({bytes} bytes)");
    if kept > 0 {
        told += &format!("; {kept} were there already");
    }
    if ended > 0 {
        told += &format!("; {ended} had been cancelled");
    }
    told
}
