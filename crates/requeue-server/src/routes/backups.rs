//! Backups of the store, if the operator enabled them.

use super::Problems;
use super::streaming::BodyWriter;
use crate::app::App;
use crate::response::ApiResult;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};
use serde::Serialize;

/// A function that makes a backup of the store. It calls its argument with the number of bytes
/// copied so far and the total, and returns the backup or an error message.
pub type BackupFn = dyn Fn(&mut dyn FnMut(u64, u64)) -> Result<BackedUp, String> + Send + Sync;

/// A finished backup.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct BackedUp {
    /// The directory of the backup, on the machine of the server.
    pub directory: String,
    /// Total size of its files in bytes.
    pub bytes: u64,
    /// Number of its files.
    pub files: u64,
}

/// A line of the response.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(title = "BackupLine")]
pub(super) enum BackupLine {
    /// The backup makes progress.
    Copied(BackupProgress),
    /// The backup is complete and was verified by reading it.
    Done(BackedUp),
    /// The backup failed.
    Error(Box<Problem>),
}

/// The progress of a backup.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct BackupProgress {
    /// Bytes copied so far.
    bytes: u64,
    /// Approximate total.
    of: u64,
}

/// Make a backup of the store while it is in use.
///
/// The response is JSON Lines: progress, and at last the directory of the backup or an error. It
/// requires a server that was started with a directory for backups. Only one backup runs at a time.
#[utoipa::path(
    post, path = "/v1/backups", tag = "service", operation_id = "create_backup",
    responses(
        (
            status = 200, description = "JSON Lines: progress, and at last the result.",
            body = BackupLine, content_type = "application/jsonl"
        ),
        Problems
    )
)]
pub(super) async fn backup(State(app): State<App>) -> ApiResult<Response> {
    let Some(backup) = app.backup() else {
        let detail = "this server makes no backups: start it with --backups DIRECTORY, on the \
                      disk store";
        return Err(Problem::new(ProblemType::NotAllowed, detail).into());
    };
    let Ok(lock) = app.backup_lock().try_lock_owned() else {
        return Err(
            Problem::new(ProblemType::Busy, "another backup is running; try again later").into()
        );
    };
    let (writer, body) = BodyWriter::new();
    app.tasks().spawn_blocking(move || {
        let _lock = lock;
        // The backup is completed even if the client disconnects.
        let made = backup(&mut |bytes, of| {
            writer.maybe_line(&BackupLine::Copied(BackupProgress { bytes, of }));
        });
        writer.line(&match made {
            Ok(done) => BackupLine::Done(done),
            Err(reason) => {
                tracing::error!(%reason, "a backup failed");
                BackupLine::Error(Box::new(Problem::new(ProblemType::Unavailable, reason)))
            }
        });
    });
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], body).into_response())
}
