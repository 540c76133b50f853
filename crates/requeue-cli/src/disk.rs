//! `verify` and `backup`: check and copy data directories.

use crate::error::{CliError, Exit, Result};
use crate::format::byte_size;
use crate::output::{Output, count};
use crate::progress::Bar;
use crate::store_args::{
    IfMissing, StoreArgs, StoreLocation, no_jobs, open_directory, warn_about_directory,
};
use requeue_disk::{Backup, Corrupt, DiskError, Verified};
use requeue_http::HttpStore;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Reads every byte and prints each problem with its file and offset. Exits with 0
if the directory is sound, and with 1 if it is damaged.

Examples:
  requeue backup --data requeue-data --to copy
  requeue verify copy")]
pub(crate) struct VerifyArgs {
    /// Data directory; no process may have it open
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --data, the server copies its own data directory while it keeps running.
It must have been started with --backups DIR, and creates the copy below DIR.
With --data, the command copies a directory that no server has open.

Examples:
  requeue backup
  requeue backup --data requeue-data --to copy")]
pub(crate) struct BackupArgs {
    /// With --data, the directory to copy to; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// Checks a data directory. Fails with [`Exit::Failed`] if it has damage that opening it does not
/// repair.
pub(crate) fn verify(args: &VerifyArgs, out: Output) -> Result<()> {
    warn_about_directory(&args.directory);
    let bar = Bar::bytes();
    let progress = |progress: requeue_disk::ByteProgress| bar.at(progress.bytes, progress.total);
    let verified = requeue_disk::verify(&args.directory, progress);
    bar.end();
    let found = verified.map_err(|error| match &error {
        DiskError::InUse { pid, .. } => CliError::from_error(Exit::Unavailable, &error).hint(
            format!("verify a copy made by `requeue backup`, or stop that process: kill {pid}"),
        ),
        _ => error.into(),
    })?;
    if found.bytes == 0 {
        // An empty directory has no damage, but it is not a backup that can be relied on.
        return Err(no_jobs(&args.directory));
    }
    out.print(|| json(&found), || text(&found))?;
    if found.is_sound() {
        return Ok(());
    }
    let message = format!("{} is damaged", args.directory.display());
    Err(CliError::new(Exit::Failed, message).hint(
        "restore a copy that was made by `requeue backup`; or save what can be read: \
               requeue export --data DIR --salvage FILE",
    ))
}

fn json(found: &Verified) -> serde_json::Value {
    let corrupt = |corrupt: &Corrupt| {
        let Corrupt { file, offset, what } = corrupt;
        serde_json::json!({ "file": file, "offset": offset, "what": what })
    };
    let all = |list: &[Corrupt]| list.iter().map(corrupt).collect::<Vec<_>>();
    serde_json::json!({
        "sound": found.is_sound(),
        "problems": all(&found.problems),
        "harmless": all(&found.harmless),
        "more": found.more,
        "orphans": found.orphans,
        "kinds": found.kinds,
        "jobs": found.jobs,
        "groups": found.groups,
        "tables": found.tables,
        "bytes": found.bytes,
    })
}

fn text(found: &Verified) -> String {
    let mut lines = Vec::new();
    lines.extend(found.problems.iter().map(|problem| format!("problem: {problem}")));
    lines.extend(found.harmless.iter().map(|harmless| format!("harmless: {harmless}")));
    if found.more > 0 {
        lines.push(format!("and {} more", found.more));
    }
    lines.extend(found.orphans.iter().map(|name| format!("orphan: {name}")));
    let sound = if found.is_sound() { "sound" } else { "damaged" };
    let Verified { jobs, kinds, groups, tables, bytes, .. } = found;
    lines.push(format!(
        "{sound}: {} of {}, {} in the log, {}, {}",
        count(*jobs, "job"),
        count(*kinds as u64, "kind"),
        count(*groups, "group"),
        count(*tables as u64, "table"),
        byte_size(*bytes),
    ));
    lines.join("\n")
}

pub(crate) async fn backup(args: BackupArgs, store_args: &StoreArgs, out: Output) -> Result<()> {
    match (store_args.location()?, args.to) {
        (StoreLocation::Data(directory), Some(to)) => {
            let copied = copy(&directory, &to)?;
            let (bytes, files) = (copied.bytes, copied.files as u64);
            let made = BackupResult { directory: to.display().to_string(), files, bytes };
            out.print(
                || &made,
                || {
                    let (bytes, files) = (byte_size(bytes), count(files, "file"));
                    format!("copied {bytes} in {files} to {}", made.directory)
                },
            )
        }
        (StoreLocation::Data(_), None) => {
            Err(CliError::usage("--data needs --to DIR, the directory to copy to"))
        }
        (StoreLocation::Server(_), Some(_)) => Err(CliError::usage(
            "--to does not apply to a server, which copies to its --backups DIR",
        )
        .hint("to copy a directory that no server has open: --data DIR --to DIR")),
        (StoreLocation::Server(url), None) => ask_server(&store_args.connect(&url)?, out).await,
        (StoreLocation::Redis(_), _) => {
            Err(CliError::usage("backup does not apply to Redis, which makes its own snapshots")
                .hint("use BGSAVE in redis-cli, or: requeue export"))
        }
        (StoreLocation::Postgres(_), _) => Err(CliError::usage(
            "backup does not apply to Postgres: its own backups contain the jobs",
        )
        .hint("use pg_dump, or: requeue export")),
    }
}

fn copy(directory: &Path, to: &Path) -> Result<Backup> {
    let store = open_directory(directory, IfMissing::Fail)?;
    let bar = Bar::bytes();
    let copied = store.backup(to, |progress| bar.at(progress.bytes, progress.total));
    bar.end();
    Ok(copied?)
}

/// The result of a backup.
#[derive(Debug, Deserialize, Serialize)]
struct BackupResult {
    directory: String,
    files: u64,
    bytes: u64,
}

async fn ask_server(server: &HttpStore, out: Output) -> Result<()> {
    let bar = Bar::bytes();
    let made = server.backup(|bytes, total| bar.at(bytes, total)).await;
    bar.end();
    let made: BackupResult = serde_json::from_value(made?).map_err(|error| {
        CliError::new(Exit::Failed, format!("the server's response is invalid: {error}"))
    })?;
    out.print(
        || &made,
        || {
            let BackupResult { directory, files, bytes } = &made;
            let (bytes, files) = (byte_size(*bytes), count(*files, "file"));
            format!("the server copied {bytes} in {files} to {directory}")
        },
    )
}
