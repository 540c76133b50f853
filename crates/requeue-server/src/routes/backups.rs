//! Copies of the store, where the operator allowed them.

use super::Problems;
use super::streaming::BodyWriter;
use crate::app::App;
use crate::response::ApiResult;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, Sort};
use serde::Serialize;

/// Makes a copy of the store, and tells how far it is: bytes that were copied, of so many.
pub type Backup = dyn Fn(&mut dyn FnMut(u64, u64)) -> Result<BackedUp, String> + Send + Sync;

/// A copy that was made.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct BackedUp {
    /// Where, on the machine of the server.
    pub directory: String,
    /// Bytes of all its files.
    pub bytes: u64,
    /// How many they are.
    pub files: u64,
}

/// A line of the answer.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(title = "BackupLine")]
pub(super) enum BackupLine {
    /// So far: bytes that were copied, and about how many there are.
    Copied {
        /// Copied.
        bytes: u64,
        /// In all.
        of: u64,
    },
    /// It is made, and was read once more.
    Done(BackedUp),
    /// It was not made.
    Error(Box<Problem>),
}

/// Makes a copy of the store, while it goes on working.
///
/// The answer is JSON Lines: how far it is, and in the end where it is, or why there is none. Only
/// where the server was started with a directory for backups; one at a time.
#[utoipa::path(
    post, path = "/v1/backups", tag = "service", operation_id = "make_backup",
    responses((status = 200, body = BackupLine, content_type = "application/jsonl"), Problems)
)]
pub(super) async fn backup(State(app): State<App>) -> ApiResult<Response> {
    let Some(backup) = app.backup() else {
        let detail = "this server makes no backups: start it with --backups DIRECTORY, on the \
                      disk store";
        return Err(Problem::new(Sort::NotAllowed, detail).into());
    };
    let Ok(alone) = app.backup_lock().try_lock_owned() else {
        return Err(Problem::new(Sort::Busy, "another backup is under way").into());
    };
    let (writer, body) = BodyWriter::new();
    app.tasks().spawn_blocking(move || {
        let _alone = alone;
        // Whoever asked for it may go away: it is made all the same.
        let made = backup(&mut |bytes, of| writer.maybe_line(&BackupLine::Copied { bytes, of }));
        writer.line(&match made {
            Ok(done) => BackupLine::Done(done),
            Err(reason) => {
                tracing::error!(%reason, "a backup was not made");
                BackupLine::Error(Box::new(Problem::new(Sort::Unavailable, reason)))
            }
        });
    });
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], body).into_response())
}
