//! `export` and `import`: copy a whole store to a JSON Lines file, and back.

use crate::error::{AGAIN, CliError, Exit, Result};
use crate::format::byte_size;
use crate::output::{Output, count, print_json_note, print_note};
use crate::private_files;
use crate::progress::Bar;
use crate::store_args::{IfMissing, StoreArgs, StoreLocation, no_jobs, warn_about_directory};
use requeue_disk::{DiskError, Loss, Salvage};
use requeue_http::client::CallError;
use requeue_http::{HttpStore, ProblemType};
use requeue_jobs::Store;
use requeue_jobs::transfer::{self, TransferError, TransferProgress};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Buffer size for reading and writing, in bytes.
const BUFFER: usize = 1 << 16;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The format is JSON Lines, documented in docs/transfer.md. An existing file is
replaced when the export is complete. The file can be read only by you, because
it contains every body. A symbolic link to a file is rejected.

With --salvage, a damaged data directory is read as far as possible, and stderr
lists everything that is lost. Exits with 6 if something is lost.

Examples:
  requeue export jobs.jsonl
  requeue export --data requeue-data | gzip > jobs.jsonl.gz
  requeue export --data requeue-data --salvage jobs.jsonl 2> lost.txt")]
pub(crate) struct ExportArgs {
    /// File to write; - for stdout
    #[arg(default_value = "-")]
    file: String,
    /// Write what can be read of a damaged --data directory, and list the rest
    #[arg(long)]
    salvage: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
An import only adds. Jobs and schedules whose id already exists are kept as they
are, and so are settings that differ from the default.

If an import fails, run it again. Do so before workers start: jobs that were
imported and finished would be imported again.

Examples:
  requeue import jobs.jsonl
  requeue import jobs.jsonl --store redis://127.0.0.1:6379/
  requeue import jobs.jsonl --store postgres://app@127.0.0.1/shop")]
pub(crate) struct ImportArgs {
    /// File to read; - for stdin
    #[arg(default_value = "-")]
    file: String,
}

pub(crate) async fn export(args: ExportArgs, store_args: &StoreArgs, out: Output) -> Result<()> {
    if args.salvage {
        return salvage(&args.file, store_args, out).await;
    }
    let store = store_args.open(IfMissing::Fail).await?;
    let is_data = matches!(store_args.location()?, StoreLocation::Data(_));
    let done = export_to(&*store, &args.file).await.map_err(|error| {
        // A store opens if the damage is in a part that it reads later.
        let is_damage = is_data && error.mentions("is damaged at byte");
        if is_damage { error.hint(SALVAGE_HINT) } else { error }
    })?;
    print_done(done, &args.file, out)
}

/// What to do with a damaged data directory.
pub(crate) const SALVAGE_HINT: &str =
    "restore a backup; or save what can be read: requeue export --data DIR --salvage FILE";

/// Writes what can be read of a damaged directory, and lists the rest on stderr.
async fn salvage(file: &str, store_args: &StoreArgs, out: Output) -> Result<()> {
    let StoreLocation::Data(directory) = store_args.location()? else {
        return Err(CliError::usage("--salvage needs --data DIR, the damaged directory"));
    };
    warn_about_directory(&directory);
    let json = out.json;
    let report = move |loss: Loss| {
        if json {
            print_json_note(&loss_json(&loss));
        } else {
            print_note(&format!("lost: {loss}"));
        }
    };
    let salvage = Salvage::open(&directory, report).map_err(|error| match &error {
        DiskError::InUse { pid, .. } => CliError::from_error(Exit::Unavailable, &error)
            .hint(format!("stop that process: kill {pid}")),
        _ => error.into(),
    })?;
    let is_empty = salvage.kinds().await?.is_empty() && salvage.losses() == 0;
    if is_empty && salvage.harmless().is_empty() {
        return Err(no_jobs(&directory));
    }
    for corrupt in salvage.harmless() {
        if json {
            print_json_note(&serde_json::json!({ "harmless": corrupt.to_string() }));
        } else {
            print_note(&format!("harmless: {corrupt}"));
        }
    }
    let done = export_to(&salvage, file).await?;
    print_done(done, file, out)?;
    let raised = salvage.raised();
    if !json {
        print_note(&format!("the generations and fences of all kinds are raised by {raised}"));
    }
    match salvage.losses() {
        0 => Ok(()),
        losses => {
            let found = if losses == 1 { "1 loss".to_owned() } else { format!("{losses} losses") };
            let message = format!("{} is damaged: {found}, listed above", directory.display());
            Err(CliError::new(Exit::Incomplete, message)
                .hint("the export is complete otherwise, and can be imported"))
        }
    }
}

fn loss_json(loss: &Loss) -> serde_json::Value {
    let text = loss.to_string();
    match loss {
        Loss::Bytes { file, from, to, what, contents } => serde_json::json!({
            "lost": "bytes", "file": file, "from": from, "to": to, "what": what,
            "contents": contents,
        }),
        Loss::Groups { first, last } => {
            serde_json::json!({ "lost": "groups", "first": first, "last": last })
        }
        Loss::Job { kind, id, why } => serde_json::json!({
            "lost": "job", "kind": kind.as_str(), "id": id.as_str(), "what": why,
        }),
        Loss::Version { kind, id, lost, returned } => serde_json::json!({
            "lost": "version", "kind": kind.as_str(), "id": id.as_str(), "generation": lost.0,
            "written_generation": returned.0,
        }),
        Loss::FailedAttempts { kind, id } => serde_json::json!({
            "lost": "failed_attempts", "kind": kind.as_str(), "id": id.as_str(),
        }),
        Loss::KindName { number, returned_as } => serde_json::json!({
            "lost": "kind_name", "number": number, "written_as": returned_as.as_str(),
        }),
        _ => serde_json::json!({ "lost": "other", "what": text }),
    }
}

fn print_done(done: TransferProgress, file: &str, out: Output) -> Result<()> {
    if file == "-" {
        // To stderr, because stdout contains the export.
        if out.json {
            print_json_note(&json(done));
        } else {
            print_note(&summary("exported", done));
        }
        return Ok(());
    }
    out.print(|| json(done), || summary("exported", done))
}

/// Exports a store to a file, or to stdout if that is `-`.
async fn export_to(store: &dyn Store, file: &str) -> Result<TransferProgress> {
    if file == "-" {
        let mut stdout = BufWriter::with_capacity(BUFFER, io::stdout().lock());
        return write(store, &mut stdout, "stdout").await;
    }
    // Somebody else may have placed it: a pipe, to read the export, or a link, to have another file replaced.
    if let Ok(found) = std::fs::symlink_metadata(file)
        && !found.is_file()
    {
        let what = if found.is_symlink() {
            "it is a symbolic link, which is not followed"
        } else if found.is_dir() {
            "it is a directory"
        } else {
            "it is not a regular file"
        };
        let message = format!("could not write {file}: {what}");
        return Err(CliError::new(Exit::Failed, message)
            .hint("use the name of a file that may be replaced, or - for stdout"));
    }
    replace(store, Path::new(file)).await
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
    let file = private_files::create(half).map_err(failed)?;
    let mut buffered = BufWriter::with_capacity(BUFFER, file);
    let done = write(store, &mut buffered, &name).await?;
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

async fn write(store: &dyn Store, to: &mut dyn Write, name: &str) -> Result<TransferProgress> {
    let bar = Bar::jobs();
    let done = transfer::export(store, to, |done| bar.at(done.jobs, done.jobs_in_all)).await;
    bar.end();
    done.map_err(|error| match error {
        // The program that read the pipe has exited. The export is incomplete.
        TransferError::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            CliError::already_reported(Exit::Failed)
        }
        TransferError::Write(error) => CliError::io("write", name, &error),
        other => other.into(),
    })
}

pub(crate) async fn import(args: ImportArgs, store_args: &StoreArgs, out: Output) -> Result<()> {
    let (mut input, len): (Box<dyn BufRead>, _) = if args.file == "-" {
        (Box::new(io::stdin().lock()), 0)
    } else {
        let file = File::open(&args.file);
        let file = file.map_err(|error| CliError::io("open", &args.file, &error))?;
        let len = file.metadata().map_or(0, |found| found.len());
        (Box::new(BufReader::with_capacity(BUFFER, file)), len)
    };
    let done = if let StoreLocation::Server(url) = store_args.location()? {
        send(&store_args.connect(&url)?, &mut *input, len, &args.file).await?
    } else {
        let store = store_args.open(IfMissing::Create).await?;
        let bar = Bar::jobs();
        let progress = |done: TransferProgress| bar.at(done.jobs, done.jobs_in_all);
        let done = transfer::import(&*store, &mut *input, progress).await;
        bar.end();
        done?
    };
    out.print(|| json(done), || summary("imported", done))
}

/// Sends an export to a server as it is. The server imports it like a store that it has opened: one
/// request per setting would be rejected for a kind whose secrets the export does not contain.
async fn send(
    server: &HttpStore,
    input: &mut dyn BufRead,
    len: u64,
    name: &str,
) -> Result<TransferProgress> {
    let mut input = Counted { input, bytes: 0, len, bar: Bar::bytes() };
    let imported = server.import(&mut input).await;
    let Counted { bytes, bar, .. } = input;
    bar.end();
    let counts = imported.map_err(|error| match error {
        CallError::File(error) => CliError::io("read", name, &error),
        // The file is wrong, and not the command.
        CallError::Problem(problem)
            if matches!(problem.problem_type(), ProblemType::Malformed | ProblemType::Invalid) =>
        {
            CliError::from_error(Exit::Failed, &*problem)
        }
        CallError::Unknown { .. } => CliError::from(error).hint(AGAIN),
        other => other.into(),
    })?;
    let count = |name: &str| counts[name].as_u64().unwrap_or_default();
    let mut done = TransferProgress::default();
    (done.kinds, done.schedules, done.jobs) = (count("kinds"), count("schedules"), count("jobs"));
    (done.kept, done.ended, done.bytes) = (count("kept"), count("ended"), bytes);
    Ok(done)
}

/// An input that shows how much of it was read.
struct Counted<'a> {
    input: &'a mut dyn BufRead,
    bytes: u64,
    /// Its length, or 0 if that is unknown.
    len: u64,
    bar: Bar,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes += read as u64;
        self.bar.at(self.bytes, self.len);
        Ok(read)
    }
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
        byte_size(bytes),
    );
    if kept > 0 {
        text += &format!("; {kept} existed already");
    }
    if ended > 0 {
        text += &format!("; {ended} were cancelled and not imported");
    }
    text
}
