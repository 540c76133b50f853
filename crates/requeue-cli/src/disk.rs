//! `verify` and `backup`: a directory of jobs.

use crate::failure::{Exit, Failure, Result};
use crate::out::Out;
use crate::progress::Bar;
use crate::store_args::{IfMissing, StoreArgs, Where, no_jobs, open_directory};
use requeue_disk::{Backup, Corrupt, DiskError, Verified};
use requeue_http::HttpStore;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The directory, which nobody may have open: a copy, or that of a server that is stopped
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --data, copies a directory that no server has open. Otherwise asks the server to copy
its own, which it does while it works, to where it was started to allow it (serve --backups).")]
pub(crate) struct BackupArgs {
    /// With --data: to this directory, which must be empty, or not be there yet
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// Reads all that is in a directory. Ends with 1 if anything is wrong that stays so.
pub(crate) fn verify(args: &VerifyArgs, out: Out) -> Result<()> {
    let bar = Bar::bytes();
    let progress = |progress: requeue_disk::Progress| bar.at(progress.bytes, progress.total);
    let verified = requeue_disk::verify(&args.directory, progress);
    bar.end();
    let found = verified.map_err(|error| match &error {
        DiskError::InUse { pid, .. } => Failure::of(Exit::Unavailable, &error)
            .hint(format!("verify a copy (requeue backup), or end that process first: kill {pid}")),
        _ => error.into(),
    })?;
    if found.bytes == 0 {
        // Nothing is wrong with it, but it is not what was meant, and no copy to rely on.
        return Err(no_jobs(&args.directory));
    }
    out.say(|| json(&found), || text(&found))?;
    if found.is_sound() {
        return Ok(());
    }
    let told = format!("{} is damaged", args.directory.display());
    Err(Failure::new(Exit::Refused, told).hint("go back to a copy: it was made by requeue backup"))
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
        "{sound}: {jobs} jobs of {kinds} kinds, {groups} groups in the log, {tables} tables, \
         {bytes} bytes"
    ));
    lines.join("\n")
}

pub(crate) async fn backup(args: BackupArgs, place: &StoreArgs, out: Out) -> Result<()> {
    match (place.chosen()?, args.to) {
        (Where::Data(directory), Some(to)) => {
            let copied = copy(&directory, &to)?;
            let (bytes, files) = (copied.bytes, copied.files as u64);
            let made = Made { directory: to.display().to_string(), files, bytes };
            out.say(
                || &made,
                || format!("copied {bytes} bytes in {files} files to {}", made.directory),
            )
        }
        (Where::Data(_), None) => Err(Failure::usage("--data is copied to where --to says")),
        (Where::Server(_), Some(_)) => {
            Err(Failure::usage("a server copies to where it was told at its start, and not --to")
                .hint("for a directory that no server has open: --data DIR --to DIR"))
        }
        (Where::Server(url), None) => ask_server(&place.connect(&url)?, out).await,
        (Where::Redis(_), _) => {
            Err(Failure::usage("Redis makes its own copies").hint("BGSAVE, or: requeue export"))
        }
    }
}

fn copy(directory: &Path, to: &Path) -> Result<Backup> {
    let store = open_directory(directory, IfMissing::Refuse)?;
    let bar = Bar::bytes();
    let copied = store.backup(to, |progress| bar.at(progress.bytes, progress.total));
    bar.end();
    Ok(copied?)
}

/// A copy that was made.
#[derive(Debug, Deserialize, Serialize)]
struct Made {
    directory: String,
    files: u64,
    bytes: u64,
}

async fn ask_server(server: &HttpStore, out: Out) -> Result<()> {
    let bar = Bar::bytes();
    let made = server.backup(|bytes, total| bar.at(bytes, total)).await;
    bar.end();
    let made: Made = serde_json::from_value(made?).map_err(|error| {
        Failure::new(Exit::Refused, format!("the server's answer is not understood: {error}"))
    })?;
    out.say(
        || &made,
        || {
            let Made { directory, files, bytes } = &made;
            format!("the server copied {bytes} bytes in {files} files to {directory}")
        },
    )
}
